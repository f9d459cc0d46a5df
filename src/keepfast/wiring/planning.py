"""From settings, and what the cluster said, to a plan."""

from __future__ import annotations

from collections.abc import Callable

from keepfast.classify.classification import BUILT_IN, RuleBook
from keepfast.core.names import TopicParts
from keepfast.engine.plan import Plan
from keepfast.settings import ConsumerSettings, Settings
from keepfast.wiring.cluster import ClusterFacts


def plan_from(
    own: ConsumerSettings,
    settings: Settings,
    cluster: ClusterFacts,
    *,
    capacity: int,
    handler: str,
    retry_floor_s: Callable[[], float] | None = None,
) -> Plan:
    """What the loop needs to know. `capacity` holds where the settings say no concurrency."""
    return Plan(
        name=own.name,
        group=own.group,
        topics=own.topics,
        order=own.order,
        capacity=own.concurrency or capacity,
        commit=own.commit,
        retry=own.retry,
        retry_by_error=own.retries,
        retry_floor_s=retry_floor_s,
        timeout=own.timeout,
        rules=RuleBook(own.rules) if own.rules else BUILT_IN,
        breaker=own.breaker,
        storm_guard=own.storm_guard,
        rate=own.rate,
        unknown_errors=own.unknown_errors,
        not_found=own.not_found,
        batch=own.batch,
        atomic=own.atomic,
        buffer=own.buffer,
        sweep=own.max_poll_records,
        reset=own.auto_offset_reset,
        revoke_timeout_s=own.timings.revoke_timeout_s,
        max_deliveries=own.max_deliveries or None,
        dead_letter_topics=own.dead_letter_topics,
        topic_ids=cluster.topic_ids,
        partition_counts=cluster.partition_counts,
        names={topic: TopicParts(names.domain, names.entity) for topic, names in own.names.items()},
        tiers=cluster.tiers.get(own.name),
        named_by_supervisor=own.named_by_supervisor,
        handler=handler,
        app_version=settings.app.version,
    )
