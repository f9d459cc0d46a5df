"""The share groups of queues before they start: what the broker does for each, compared with the settings, and changed
where that is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from keepfast.core.errors import SourceError, StartError
from keepfast.core.policies import RetryPolicy
from keepfast.kafka import KafkaAdmin
from keepfast.settings import ConsumerSettings
from keepfast.telemetry.logs import get_logger
from keepfast.wiring.cluster import ASK_TIMEOUT_S, ClusterFacts

log = get_logger("keepfast.start")

LOCK, RESET = "share.record.lock.duration.ms", "share.auto.offset.reset"
ISOLATION, LIMIT = "share.isolation.level", "share.delivery.count.limit"

MARGIN_S: Final = 5.0
"""Between the end of a handler's time and that of the lock: for the dead letter and the acknowledgement."""

PREVIEW: Final = "the Kafka client calls share groups a preview, and so does order=queue: it may change"


def with_share_groups(admin: KafkaAdmin, cluster: ClusterFacts, consumers: Sequence[ConsumerSettings]) -> ClusterFacts:
    """With the settings of queues as their share groups allow: the lock, the time that a handler and its retries have.
    Raises StartError with everything that is wrong.
    """
    queues = [own for own in consumers if own.order == "queue"]
    found: dict[str, ConsumerSettings] = {}
    problems: list[str] = []
    for own in queues:
        try:
            found[own.name] = fitted(own, group_config(admin, own), bootstrap=admin.bootstrap)
            log.warning("queue_is_experimental", consumer=own.name, group=own.group, why=PREVIEW)
        except StartError as error:
            problems.append(str(error))
    if problems:
        raise StartError("\n".join(problems))
    return replace(cluster, consumers={**cluster.consumers, **found}) if found else cluster


def group_config(admin: KafkaAdmin, own: ConsumerSettings) -> dict[str, str]:
    """The configuration of its share group, changed where that is asked for. Raises StartError."""
    try:
        config = admin.group_config(own.group, ASK_TIMEOUT_S)
        if LOCK in config and admin.is_plain_group(own.group, ASK_TIMEOUT_S):
            raise StartError(
                f"{own.group} is a group of plain consumers, and cannot be that of the queue {own.name}: give this"
                " consumer another one."
            )
        wanted = differences(own, config)
        if LOCK in config and own.configure_group and wanted:
            admin.configure_group(own.group, wanted, ASK_TIMEOUT_S)
            log.info("share_group_configured", consumer=own.name, group=own.group, **wanted)
            return config | wanted
    except SourceError as error:
        raise StartError(str(error)) from error
    return config


def differences(own: ConsumerSettings, config: Mapping[str, str]) -> dict[str, str]:
    """What the settings say of the share group, where it is configured otherwise."""
    wanted: dict[str, str] = {RESET: own.auto_offset_reset, ISOLATION: own.isolation_level}
    if own.lock_s is not None:
        wanted[LOCK] = str(round(own.lock_s * 1000))
    return {name: value for name, value in wanted.items() if config.get(name) != value}


def fitted(own: ConsumerSettings, config: Mapping[str, str], *, bootstrap: str) -> ConsumerSettings:
    """The settings within the lock. Raises StartError; `bootstrap`: the addresses, for a command in its text."""
    if LOCK not in config:
        raise StartError(
            f"Consumer {own.name} has order queue, and the broker has no share groups (Kafka 4.2 or newer has them,"
            " unless the feature share.version is 0). Choose another order, or upgrade."
        )
    different = differences(own, config)
    if different:
        command = f"kafka-configs.sh --alter --entity-type groups --entity-name {own.group} --add-config"
        pairs = ",".join(f"{name}={value}" for name, value in different.items())
        now = ", ".join(f"{name} is {config.get(name)}" for name in different)
        raise StartError(
            f"The share group {own.group} is configured otherwise than the consumer {own.name}: {now}. Start with"
            f" `keepfast run --configure`, or change it: {command} {pairs} --bootstrap-server {bootstrap}, or the"
            " settings."
        )
    lock_s, limit = int(config[LOCK]) / 1000, int(config.get(LIMIT, "5"))
    time_s = lock_s - MARGIN_S
    if time_s <= 0:
        raise StartError(
            f"The share group {own.group} locks a record for {lock_s:g} s, which leaves no time for a handler beside"
            f" the {MARGIN_S:g} s for its dead letter and its acknowledgement. Set a longer lock_s."
        )
    if own.timeout.timeout_s is not None and own.timeout.timeout_s > time_s:
        raise StartError(
            f"timeout_s of the consumer {own.name} is {own.timeout.timeout_s:g}, and the share group {own.group} locks"
            f" a record for {lock_s:g} s: it may be {time_s:g} at most. Lower it, or set a longer lock_s."
        )
    if own.max_deliveries is not None and own.max_deliveries >= limit:
        raise StartError(
            f"max_deliveries of the consumer {own.name} is {own.max_deliveries}, and the broker drops a record silently"
            f" at its delivery {limit} ({LIMIT}): max_deliveries must be lower."
        )
    return replace(
        own,
        lock_s=lock_s,
        timeout=replace(own.timeout, timeout_s=own.timeout.timeout_s or time_s),
        retry=_within(own.retry, time_s),
        retries=tuple((key, _within(policy, time_s)) for key, policy in own.retries),
    )


def _within(policy: RetryPolicy, time_s: float) -> RetryPolicy:
    """Retries are over before the lock is: then the record is dead-lettered with its cause."""
    return replace(policy, max_elapsed_s=min(time_s, policy.max_elapsed_s or time_s))
