"""The consumer pattern, how a consumer is ended, tested and watched, what goes wrong, and what was missing."""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_alerts as alerts
from keepfast.audit import checks_groups as groups
from keepfast.audit import checks_letters as letters
from keepfast.audit import checks_project as project
from keepfast.audit import checks_settings as settings
from keepfast.audit import evidence as e
from keepfast.audit import evidence_around as a
from keepfast.audit.clause import Clause, must, outside, should

_REGISTRY = outside(
    "Values are checked against the handler's annotation. keepfast brings no client of a registry; a handler that takes"
    " bytes may use one."
)
_PARTITIONS = outside("How many partitions a topic has is known to its brokers: `keepfast doctor` tells.")

PATTERN_OPERATING: Final[tuple[Clause, ...]] = (
    must("pattern:shutdown.1", "After a signal nothing new starts.", e.DRAINED),
    must("pattern:shutdown.2", "No assigned partition is read any more, an idle one neither.", e.INTAKE_CLOSED),
    must("pattern:shutdown.3", "Work in hand is finished and committed.", e.DRAINED),
    must("pattern:shutdown.4", "Only then it closes.", e.DRAINED),
    must("pattern:shutdown.5", "Waits for a retry are cut short.", e.CUT_SHORT),
    must(
        "pattern:shutdown.6",
        "How long that may take can be configured, 30 s by default.",
        e.DRAIN_DEFAULT,
        settings.drains_long_enough,
    ),
    must("pattern:shutdown.7", "By its deadline it is over; what was not finished comes again.", e.DEADLINE),
    should("pattern:shutdown.8", "Its progress is logged now and then.", e.DRAIN_REPORTED),
    should("pattern:shutdown.9", "What ends too late commits nothing.", e.FENCED),
    should("pattern:polling.1", "No retry holds up polling past max.poll.interval.ms.", e.NOT_EVICTED),
    should("pattern:polling.2", "Partitions are paused only when there is need.", e.BOUNDED),
    should(
        "pattern:polling.3",
        "max.poll.interval.ms covers all retries, processing and a buffer.",
        e.RETRY_SUM,
        settings.retry_sum,
    ),
    should("pattern:poison.1", "Retries can be fewer and quicker, so that poison is gone sooner.", e.VARIABLES),
    should("pattern:poison.2", "Poison messages end in the dead-letter topic soon.", e.ROUTED),
    should("pattern:poison.3", "Lag, stuck partitions, retries and letters are watched.", a.STUCK),
    should("pattern:poison.4", "Other keys of the partition can go on beside it.", e.KEY_ORDER),
    should("pattern:poison.5", "The time for one record can be limited, all retries included.", e.ELAPSED),
    should("pattern:watch.1", "Lag is told by partition.", a.LAG, settings.metrics_are_exposed),
    should("pattern:watch.2", "The duration of processing is told.", a.COUNTED, settings.metrics_are_exposed),
    should("pattern:watch.3", "Retries are told.", a.COUNTED, settings.metrics_are_exposed),
    should("pattern:watch.4", "Letters are told.", a.COUNTED, settings.metrics_are_exposed),
    should("pattern:watch.5", "Work in hand is told, also while it ends.", a.IN_HAND, settings.metrics_are_exposed),
    must("pattern:metrics.1", "{domain}.{entity}.processed is exposed.", a.EXPOSED, settings.metrics_are_exposed),
    must(
        "pattern:metrics.2",
        "{domain}.{entity}.processing.duration is exposed.",
        a.EXPOSED,
        settings.metrics_are_exposed,
    ),
    must("pattern:metrics.3", "{domain}.{entity}.dlq.count is exposed.", a.EXPOSED, settings.metrics_are_exposed),
    must("pattern:metrics.4", "{domain}.{entity}.retry.count is exposed.", a.EXPOSED, settings.metrics_are_exposed),
    must("pattern:metrics.5", "{domain}.{entity}.error.count is exposed.", a.EXPOSED, settings.metrics_are_exposed),
    should("pattern:unit.1", "Success is tested.", a.HARNESS, project.has_tests),
    should("pattern:unit.2", "Retries are tested.", a.HARNESS, project.has_tests),
    should("pattern:unit.3", "Letters are tested.", a.HARNESS, project.has_tests),
    should("pattern:unit.4", "Validation is tested.", a.HARNESS, project.has_tests),
    should("pattern:unit.5", "A stand-in for Kafka serves in tests.", a.HARNESS),
    should("pattern:integration.1", "A real Kafka serves in tests.", a.FIXTURES),
    should("pattern:integration.2", "Messages are tested from end to end.", a.FIXTURES),
    should("pattern:integration.3", "The way to the dead-letter topic is tested.", e.ROUTED),
    should("pattern:integration.4", "Groups are tested.", a.FIXTURES),
    should("pattern:limits.1", "No retry is long enough to lose the group.", e.NOT_EVICTED),
    should("pattern:limits.2", "A poison message does not hold up its partition for long.", e.ROUTED),
    should("pattern:limits.3", "A commit does not wait for the next record.", e.CONFIRMED),
    should("pattern:limits.4", "Nothing is committed against a consumer that closes.", e.FENCED),
    should("pattern:limits.5", "What cannot be published is kept elsewhere.", e.SPOOLED, letters.has_a_spool),
    should("pattern:limits.6", "A breaker protects what is down.", e.BREAKER, letters.has_a_breaker),
    must("pattern:pitfalls.1", "The client does not commit by itself.", e.MANUAL),
    must("pattern:pitfalls.2", "There is a dead-letter topic.", e.LETTER_TOPIC_MADE),
    must("pattern:pitfalls.3", "Retries end.", e.RETRIED, settings.retries_end),
    must("pattern:pitfalls.4", "There are metrics.", a.EXPOSED, settings.metrics_are_exposed),
    should("pattern:pitfalls.5", "Every kind of exception is dealt with.", e.NEVER_RAISES),
    must("pattern:pitfalls.6", "What is known of a partition goes with it: memory does not grow.", e.FORGOTTEN),
    must("pattern:pitfalls.7", "Nothing stops without draining.", e.DRAINED),
    should("pattern:pitfalls.8", "Retries do not exceed max.poll.interval.ms.", e.NOT_EVICTED),
    should("pattern:pitfalls.9", "Poison messages do not block partitions.", e.ROUTED),
    should("pattern:pitfalls.10", "Partitions are not paused without need.", e.BOUNDED),
    should("pattern:pitfalls.11", "An idle consumer that ends pauses its partitions, too.", e.INTAKE_CLOSED),
    should("pattern:pitfalls.12", "A commit that fails is tried more than once.", e.COMMITS_RETRIED),
    should("pattern:pitfalls.13", "There is a way to be idempotent.", e.DECLARED, groups.idempotent),
    should("pattern:pitfalls.14", "Buffers that are full, or a downstream that is away, hold back reading.", e.BOUNDED),
    should(
        "pattern:high.1",
        "Letters that Kafka does not take are stored with all they say.",
        e.SPOOLED,
        letters.has_a_spool,
    ),
    should(
        "pattern:high.2",
        "Health knows membership, assignments, stuck partitions and the letters' way.",
        a.HEALTH,
        settings.health_is_ours,
    ),
    should("pattern:high.3", "Lag is a metric of each partition.", a.LAG, settings.metrics_are_exposed),
    should("pattern:high.4", "Commits are retried with a back-off, their failures counted.", e.COMMITS_RETRIED),
    should(
        "pattern:high.5", "A record may have a time-out, and is buried after it.", e.TIMED_OUT, letters.has_a_timeout
    ),
    should(
        "pattern:medium.1", "A breaker opens at a threshold and closes by itself.", e.BREAKER, letters.has_a_breaker
    ),
    should("pattern:medium.2", "Letters can be queried and replayed, some or all.", e.REPLAYED),
    should("pattern:medium.3", "How long the end takes is a metric.", a.DRAIN_TIMED, settings.metrics_are_exposed),
    should("pattern:medium.4", "Rates can be limited, per partition and in all.", e.RATES),
    should("pattern:low.1", "Records can be processed in batches.", e.BATCHED),
    should("pattern:low.2", "Schemas of a registry are validated.", e.DECODED, _REGISTRY),
    should("pattern:low.3", "Processing is traced through OpenTelemetry.", a.TRACED),
    should("pattern:runbook.1", "Nothing is processed: what to look at, what to do.", a.RUNBOOK),
    should("pattern:runbook.2", "Lag grows: what to look at, what to do.", a.RUNBOOK),
    should("pattern:runbook.3", "Rebalances are frequent: what to look at, what to do.", a.RUNBOOK),
    should("pattern:runbook.4", "Letters cannot be published: what to look at, what to do.", a.RUNBOOK),
    should("pattern:runbook.5", "The end takes too long: what to look at, what to do.", a.RUNBOOK),
    should("pattern:throughput.1", "More records can be taken at once.", e.TUNED),
    should("pattern:throughput.2", "Little is added to the time of a record.", e.QUICK),
    should("pattern:throughput.3", "More instances share the work.", e.COOPERATIVE),
    should("pattern:throughput.4", "There are enough partitions.", a.SHOWN, _PARTITIONS),
    should("pattern:throughput.5", "Many records can be one transaction.", e.BATCHED),
    should("pattern:latency.1", "Delays of retries can be lowered.", e.VARIABLES),
    should("pattern:latency.2", "Fewer records can be taken at once.", e.TUNED),
    should("pattern:latency.3", "A record starts within milliseconds.", e.QUICK),
    should("pattern:constrained.1", "Buffers can be small.", e.BOUNDED),
    should("pattern:constrained.2", "Retries can be fewer.", e.VARIABLES),
    should("pattern:constrained.3", "Memory is watched.", a.PROCESS, settings.metrics_are_exposed),
    should(
        "pattern:checklist.1",
        "Processed records, their duration and errors are watched.",
        a.COUNTED,
        settings.metrics_are_exposed,
    ),
    should("pattern:checklist.2", "Retries are watched.", a.COUNTED, settings.metrics_are_exposed),
    should(
        "pattern:checklist.3",
        "Letters, and failures to publish them, are watched.",
        a.METRIC_NAMES,
        settings.metrics_are_exposed,
    ),
    should(
        "pattern:checklist.4",
        "Lag, membership, assignments and failed commits are watched.",
        a.COUNTED,
        settings.metrics_are_exposed,
    ),
    should(
        "pattern:checklist.5",
        "Threads, memory, processor and network are watched.",
        a.PROCESS,
        settings.metrics_are_exposed,
    ),
    should(
        "pattern:alerts.1",
        "More than 5 % errors raise an alert.",
        a.ALERTS,
        alerts.raised("KeepfastHighErrorRate", "error_share"),
    ),
    should(
        "pattern:alerts.2",
        "More than 1 % letters raise an alert.",
        a.ALERTS,
        alerts.raised("KeepfastHighDeadLetterRate", "letter_share"),
    ),
    should(
        "pattern:alerts.3",
        "A lag of more than 10,000 records of a partition raises an alert.",
        a.ALERTS,
        alerts.raised("KeepfastHighPartitionLag", "partition_lag"),
    ),
    should(
        "pattern:alerts.4", "A stuck partition raises an alert.", a.ALERTS, alerts.raised("KeepfastStuckPartitions")
    ),
    should(
        "pattern:alerts.5",
        "More than 10 % letters that cannot be published raise an alert.",
        a.ALERTS,
        alerts.raised("KeepfastDeadLettersNotPublished", "publish_failure_share"),
    ),
    should(
        "pattern:alerts.6",
        "More than one rebalance an hour raises an alert.",
        a.ALERTS,
        alerts.raised("KeepfastFrequentRebalances", "rebalances_per_hour"),
    ),
    should("pattern:alerts.7", "An end that misses its deadline raises an alert.", a.ALERTS),
    should(
        "pattern:indicators.1",
        "Health of a consumer: a member, with partitions, at work.",
        a.HEALTH,
        settings.health_is_ours,
    ),
    should("pattern:indicators.2", "Health of processing: nothing is stuck.", a.STUCK_HEALTH, settings.health_is_ours),
    should(
        "pattern:indicators.3", "Health of letters: they can be published.", e.LETTER_HEALTH, settings.health_is_ours
    ),
)
