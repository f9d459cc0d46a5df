"""`keepfast doctor`, the cluster: topics, permissions, dead-letter topics and clocks.

All functions are pure: from what the cluster answered to findings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from keepfast.cli.doctor_findings import DoctorFinding, Section
from keepfast.core.errors import Fault, SourceError, StartError
from keepfast.kafka.probe import GroupFacts, Operations, RetainedRecords, TopicProbe
from keepfast.settings import ConsumerSettings
from keepfast.wiring.clients import group_protocol
from keepfast.wiring.cluster import create_command, kept_days
from keepfast.wiring.share_groups import fitted

SHORT_RETENTION_MS: Final = 7 * 86_400_000
AHEAD_MS: Final = 5_000
DIAGNOSTICS_BYTES: Final = 20_000
"""The size of a letter without the record, after its diagnostics have been truncated as far as possible."""
MAX_MESSAGE_BYTES: Final = "max.message.bytes"

TopicAnswer = TopicProbe | SourceError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """Everything that the cluster answered about the topics and groups of an app."""

    topics: Mapping[str, TopicAnswer]
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    groups: Mapping[str, GroupFacts | SourceError] = field(default_factory=dict)
    transactions: Mapping[str, SourceError | None] = field(default_factory=dict)
    share_groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The configuration of the groups of queues."""
    held: Mapping[str, RetainedRecords] = field(default_factory=dict)
    creatable: Mapping[str, SourceError | None] = field(default_factory=dict)
    """Of the topics that a start would create: why this login may not, or None."""
    new_protocol: bool | None = None
    """Whether the brokers support the group protocol of KIP-848."""
    brokers: int = 1
    user: str = "…"
    bootstrap: str = "…"
    """The addresses of the brokers, for the commands that are suggested."""
    embedded: bool = False

    def probe(self, topic: str) -> TopicProbe | None:
        found = self.topics.get(topic)
        return found if isinstance(found, TopicProbe) else None

    def may_not_create(self, topic: str) -> bool:
        why = self.creatable.get(topic)
        return why is not None and why.fault is Fault.REFUSED


def findings(own: ConsumerSettings, seen: ClusterView, now_ms: int) -> Iterator[DoctorFinding]:
    """The findings for one consumer."""
    if own.pattern is not None and not own.topics:
        yield DoctorFinding("topics", "warning", f"No topic matches the pattern {own.pattern} of {own.name} yet")
    if own.order != "queue":
        yield _protocol(own, seen)
    for topic in own.topics:
        yield from _source(topic, seen)
        yield from _inbox(own, topic, seen)
    if own.order == "queue":
        yield from _share_group(own, seen)
    else:
        yield from _group(own.group, seen)
    yield from _transactional(own, seen)
    for source, letters in own.dead_letter_topics.items():
        yield from _letters(own, source, letters, seen)
    for topic in own.topics:
        for retry in own.retry_topics.topics(topic, own.group):
            yield from _retry_topic(own, retry, seen)
    yield from _clock(own, seen, now_ms)


def _protocol(own: ConsumerSettings, seen: ClusterView) -> DoctorFinding:
    protocol, reason = group_protocol(own, new_protocol=seen.new_protocol, embedded=seen.embedded)
    if own.group_protocol == "consumer" and seen.new_protocol is False:
        text = f"{own.name} has group_protocol=consumer, which the brokers do not support: Kafka 4.0 or newer does"
        return DoctorFinding("groups", "problem", text, "Set group_protocol=auto, or upgrade the brokers.")
    text = f"{own.name} joins its group with the {protocol} protocol: {reason}"
    unknown = own.group_protocol == "auto" and not seen.embedded and seen.new_protocol is None
    return DoctorFinding("groups", "unknown" if unknown else "ok", text)


def _source(topic: str, seen: ClusterView) -> Iterator[DoctorFinding]:
    probe = seen.topics[topic]
    if isinstance(probe, SourceError):
        yield _not_seen("topics", topic, seen, create=_create(seen, topic), needed=("Read",))
        return
    replicas = f"{probe.replicas} replica{'s' * (probe.replicas != 1)}"
    yield DoctorFinding("topics", "ok", f"{topic} has {_partitions(probe)}, {replicas}")
    if probe.replicas == 1 and seen.brokers > 1:
        text = f"{topic} has one replica: while a broker is down, its partitions are unavailable"
        yield DoctorFinding("topics", "warning", text, "Increase it to 3 replicas with kafka-reassign-partitions.sh.")
    yield from _permissions(topic, probe.operations, ("READ",), seen, "read from")


def _partitions(probe: TopicProbe) -> str:
    return f"{probe.partitions} partition{'s' * (probe.partitions != 1)}"


def _inbox(own: ConsumerSettings, topic: str, seen: ClusterView) -> Iterator[DoctorFinding]:
    kept = kept_days(seen.configs.get(topic, {}))
    if own.inbox_days is None or kept is None or kept <= own.inbox_days:
        return
    shown = "forever" if kept == math.inf else f"for {kept:g} days"
    text = f"{topic} keeps records {shown}, the inbox of {own.name} knows them for {own.inbox_days:g} days"
    fix = (
        "A later replay of the topic is processed again: increase retention_days, or let the handler bear it (upsert)."
    )
    yield DoctorFinding("topics", "warning", text, fix)


def _not_seen(at: Section, topic: str, seen: ClusterView, *, create: str, needed: tuple[str, ...]) -> DoctorFinding:
    """Report a topic that was not described. `create`: the command that creates it. `needed`: operations on it, each of
    which includes Describe.
    """
    why = seen.topics[topic]
    if not isinstance(why, SourceError) or why.fault is Fault.MISSING:
        return DoctorFinding(at, "problem", f"{topic} does not exist, or this user may not describe it", create)
    if why.fault is Fault.REFUSED:
        fix = _acl(seen, needed, "topic", topic)
        if seen.may_not_create(topic):
            fix += ". If it does not exist yet, create it, or add --operation Create"
        return DoctorFinding("permissions", "problem", f"This login may not see {topic}", fix)
    return DoctorFinding(at, "problem", str(why), "Try again; if it persists, check the broker's log.")


def _permissions(
    topic: str, allowed: Operations, needed: tuple[str, ...], seen: ClusterView, verb: str
) -> Iterator[DoctorFinding]:
    if allowed is None:
        return
    missing = [operation for operation in needed if operation not in allowed]
    if not missing:
        yield DoctorFinding("permissions", "ok", f"This login may {verb} {topic}")
    for operation in missing:
        text = f"This login may not {verb} {topic}: it has no {operation} permission"
        yield DoctorFinding("permissions", "problem", text, _acl(seen, (operation.capitalize(),), "topic", topic))


def _group(group: str, seen: ClusterView) -> Iterator[DoctorFinding]:
    facts = seen.groups.get(group)
    if facts is None:
        return
    acl = _acl(seen, ("Read",), "group", group)
    if isinstance(facts, SourceError):
        if facts.fault is Fault.REFUSED:
            yield DoctorFinding("permissions", "problem", f"This login may not use the group {group}", acl)
        else:
            yield DoctorFinding("permissions", "unknown", f"The group {group} could not be described: {facts}")
        return
    if facts.operations is not None and "READ" not in facts.operations:
        yield DoctorFinding("permissions", "problem", f"This login may not join or commit for the group {group}", acl)
        return
    members = f"{facts.members} member{'s' * (facts.members != 1)}" if facts.members else "no members now"
    yield DoctorFinding("permissions", "ok", f"This login may join the group {group} ({members})")


def _transactional(own: ConsumerSettings, seen: ClusterView) -> Iterator[DoctorFinding]:
    """The transactional ids of a group begin with its name, so a prefix is to be allowed."""
    if own.group not in seen.transactions:
        return
    why = seen.transactions[own.group]
    if why is None:
        text = f"This login may use transactional ids that begin with {own.group}."
        yield DoctorFinding("permissions", "ok", text)
    elif why.fault is Fault.REFUSED:
        text = f"This login may not use transactional ids that begin with {own.group}., which exactly_once needs"
        acl = _acl(seen, ("Write",), "transactional-id", f"{own.group}. --resource-pattern-type prefixed")
        yield DoctorFinding("permissions", "problem", text, acl)
    else:
        yield DoctorFinding("permissions", "unknown", f"Transactions of {own.group} could not be tried: {why}")


def _share_group(own: ConsumerSettings, seen: ClusterView) -> Iterator[DoctorFinding]:
    config = seen.share_groups.get(own.group)
    if config is None:
        yield DoctorFinding("permissions", "unknown", f"The share group {own.group} could not be described")
        return
    try:
        fits = fitted(own, config, bootstrap=seen.bootstrap)
    except StartError as error:
        yield DoctorFinding("topics", "problem", str(error))
        return
    yield DoctorFinding(
        "topics",
        "ok",
        f"The share group {own.group} locks a record for {fits.lock_s:g} s: its handler may take"
        f" {fits.timeout.timeout_s:g} s",
    )


def _letters(own: ConsumerSettings, source: str, letters: str, seen: ClusterView) -> Iterator[DoctorFinding]:
    probe = seen.topics[letters]
    from_source = seen.probe(source)
    count = from_source.partitions if from_source else 4
    if isinstance(probe, SourceError):
        yield _letters_not_seen(own, letters, count, probe, seen)
        return
    held = seen.held.get(letters)
    waiting = (
        f"; {held.offsets:,} letter{'s' * (held.offsets != 1)}: keepfast dlq causes {letters}"
        if held and held.offsets
        else ""
    )
    yield DoctorFinding("dead letters", "ok", f"{letters} has {_partitions(probe)}{waiting}")
    if probe.partitions < count:
        text = f"{letters} has fewer partitions than {source} ({count}): letters do not keep their partition"
        fix = f"kafka-topics.sh --alter --topic {letters} --partitions {count} --bootstrap-server {seen.bootstrap}"
        yield DoctorFinding("dead letters", "warning", text, fix)
    yield from _letters_config(own, source, letters, seen)
    yield from _permissions(letters, probe.operations, ("WRITE",), seen, "write to")


def _letters_not_seen(
    own: ConsumerSettings, letters: str, count: int, why: SourceError, seen: ClusterView
) -> DoctorFinding:
    create = _create(seen, letters, count, letters=True)
    if why.fault is not Fault.MISSING:
        return _not_seen("dead letters", letters, seen, create=create, needed=("Write",))
    if not own.dead_letter.create_topic:
        return DoctorFinding("dead letters", "problem", f"{letters} does not exist, and create_topic is off", create)
    if seen.may_not_create(letters):
        text = f"{letters} does not exist, and this login has no permission to create it"
        acl = _acl(seen, ("Create",), "topic", letters)
        return DoctorFinding("dead letters", "problem", text, f"{create}, or {acl}")
    return DoctorFinding("dead letters", "ok", f"{letters} does not exist yet; the first start creates it")


def _letters_config(own: ConsumerSettings, source: str, letters: str, seen: ClusterView) -> Iterator[DoctorFinding]:
    config = seen.configs.get(letters, {})
    if "compact" in config.get("cleanup.policy", ""):
        text = f"{letters} is compacted: only the last letter of each key is retained"
        yield DoctorFinding("dead letters", "problem", text, _alter(seen, letters, "cleanup.policy=delete"))
    retention = config.get("retention.ms", "-1")
    if 0 <= int(retention) <= SHORT_RETENTION_MS:
        text = f"{letters} deletes its letters after {_days(int(retention))}"
        yield DoctorFinding("dead letters", "warning", text, _alter(seen, letters, "retention.ms=-1"))
    limits = [seen.configs.get(name, {}).get(MAX_MESSAGE_BYTES, "") for name in (source, letters)]
    if all(limit.isdigit() for limit in limits):
        largest, room = map(int, limits)
        needed = letter_bytes(largest, own.dead_letter.format)
        if room < needed:
            text = (
                f"{letters} accepts up to {room:,} bytes, but a letter for the largest record of {source} needs"
                f" {needed:,}: the record's partition would stop"
            )
            yield DoctorFinding("dead letters", "warning", text, _alter(seen, letters, f"{MAX_MESSAGE_BYTES}={needed}"))


def letter_bytes(record_bytes: int, form: str) -> int:
    """The largest letter for a record of this size: in JSON formats, bytes that are not JSON become base64."""
    return (record_bytes if form == "headers" else record_bytes * 4 // 3) + DIAGNOSTICS_BYTES


def _retry_topic(own: ConsumerSettings, topic: str, seen: ClusterView) -> Iterator[DoctorFinding]:
    probe = seen.topics[topic]
    if isinstance(probe, TopicProbe):
        yield DoctorFinding("topics", "ok", f"{topic} has {_partitions(probe)}")
        yield from _permissions(topic, probe.operations, ("READ", "WRITE"), seen, "read from and write to")
    elif probe.fault is not Fault.MISSING:
        yield _not_seen("topics", topic, seen, create="", needed=("Read", "Write"))
    elif not own.retry_topics.create_topics or seen.may_not_create(topic):
        text = f"The retry topic {topic} does not exist and may not be created"
        fix = "`keepfast run` prints how to create it; or set retry_topics.create_topics and grant Create."
        yield DoctorFinding("topics", "problem", text, fix)
    else:
        yield DoctorFinding("topics", "ok", f"The retry topic {topic} does not exist yet; the first start creates it")


def _clock(own: ConsumerSettings, seen: ClusterView, now_ms: int) -> Iterator[DoctorFinding]:
    newest = {topic: held.newest_ms for topic, held in seen.held.items() if topic in own.topics and held.newest_ms}
    for topic, at_ms in newest.items():
        ahead_ms = (at_ms or 0) - now_ms
        if ahead_ms > AHEAD_MS:
            text = (
                f"The newest record of {topic} is {ahead_ms / 1000:,.0f} s in the future: this machine's clock is"
                " behind, or the producer's is ahead"
            )
            fix = "Synchronize both with a time server: record ages and retry-topic delays depend on the clock."
            yield DoctorFinding("clock", "warning", text, fix)
        else:
            yield DoctorFinding("clock", "ok", f"No record of {topic} is in the future")


def _create(seen: ClusterView, topic: str, partitions: int = 4, *, letters: bool = False) -> str:
    if seen.embedded:
        return f"The embedded broker creates it when it starts: keepfast broker --embedded --topic {topic}"
    return create_command(topic, partitions, bootstrap=seen.bootstrap, letters=letters)


def _acl(seen: ClusterView, operations: tuple[str, ...], kind: str, name: str) -> str:
    allowed = " ".join(f"--operation {operation}" for operation in operations)
    return (
        f"kafka-acls.sh --add --allow-principal User:{seen.user} {allowed} --{kind} {name}"
        f" --bootstrap-server {seen.bootstrap}"
    )


def _alter(seen: ClusterView, topic: str, what: str) -> str:
    return (
        f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config {what}"
        f" --bootstrap-server {seen.bootstrap}"
    )


def _days(milliseconds: int) -> str:
    hours = milliseconds / 3_600_000
    return f"{hours / 24:g} days" if hours >= 48 else f"{hours:g} hours"
