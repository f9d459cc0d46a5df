"""The consumer pattern, how a consumer is ended, tested and watched, what goes wrong, and what was missing."""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_alerts as alerts
from keepfast.audit import checks_groups as groups
from keepfast.audit import checks_letters as letters
from keepfast.audit import checks_project as project
from keepfast.audit import checks_settings as settings
from keepfast.audit.clause import Clause, must, outside, should

_REGISTRY = outside(
    "Values are checked against the handler's annotation. keepfast brings no client of a registry; a handler that takes"
    " bytes may use one."
)
_PARTITIONS = outside("How many partitions a topic has is known to its brokers: `keepfast doctor` tells.")

PATTERN_OPERATING: Final[tuple[Clause, ...]] = (
    must("pattern:shutdown.1", "After a signal nothing new starts."),
    must("pattern:shutdown.2", "No assigned partition is read any more, an idle one neither."),
    must("pattern:shutdown.3", "Work in hand is finished and committed."),
    must("pattern:shutdown.4", "Only then it closes."),
    must("pattern:shutdown.5", "Waits for a retry are cut short."),
    must(
        "pattern:shutdown.6",
        "How long that may take can be configured, 30 s by default.",
        settings.drains_long_enough,
    ),
    must("pattern:shutdown.7", "By its deadline it is over; what was not finished comes again."),
    should("pattern:shutdown.8", "Its progress is logged now and then."),
    should("pattern:shutdown.9", "What ends too late commits nothing."),
    should("pattern:polling.1", "No retry holds up polling past max.poll.interval.ms."),
    should("pattern:polling.2", "Partitions are paused only when there is need."),
    should(
        "pattern:polling.3",
        "max.poll.interval.ms covers all retries, processing and a buffer.",
        settings.retry_sum,
    ),
    should("pattern:poison.1", "Retries can be fewer and quicker, so that poison is gone sooner."),
    should("pattern:poison.2", "Poison messages end in the dead-letter topic soon."),
    should("pattern:poison.3", "Lag, stuck partitions, retries and letters are watched."),
    should("pattern:poison.4", "Other keys of the partition can go on beside it."),
    should("pattern:poison.5", "The time for one record can be limited, all retries included."),
    should("pattern:watch.1", "Lag is told by partition.", settings.metrics_are_exposed),
    should("pattern:watch.2", "The duration of processing is told.", settings.metrics_are_exposed),
    should("pattern:watch.3", "Retries are told.", settings.metrics_are_exposed),
    should("pattern:watch.4", "Letters are told.", settings.metrics_are_exposed),
    should("pattern:watch.5", "Work in hand is told, also while it ends.", settings.metrics_are_exposed),
    must("pattern:metrics.1", "{domain}.{entity}.processed is exposed.", settings.metrics_are_exposed),
    must(
        "pattern:metrics.2",
        "{domain}.{entity}.processing.duration is exposed.",
        settings.metrics_are_exposed,
    ),
    must("pattern:metrics.3", "{domain}.{entity}.dlq.count is exposed.", settings.metrics_are_exposed),
    must("pattern:metrics.4", "{domain}.{entity}.retry.count is exposed.", settings.metrics_are_exposed),
    must("pattern:metrics.5", "{domain}.{entity}.error.count is exposed.", settings.metrics_are_exposed),
    should("pattern:unit.1", "Success is tested.", project.has_tests),
    should("pattern:unit.2", "Retries are tested.", project.has_tests),
    should("pattern:unit.3", "Letters are tested.", project.has_tests),
    should("pattern:unit.4", "Validation is tested.", project.has_tests),
    should("pattern:unit.5", "A stand-in for Kafka serves in tests."),
    should("pattern:integration.1", "A real Kafka serves in tests."),
    should("pattern:integration.2", "Messages are tested from end to end.", project.tested_by_keepfast),
    should("pattern:integration.3", "The way to the dead-letter topic is tested.", project.tested_by_keepfast),
    should("pattern:integration.4", "Groups are tested.", project.tested_by_keepfast),
    should("pattern:limits.1", "No retry is long enough to lose the group."),
    should("pattern:limits.2", "A poison message does not hold up its partition for long."),
    should("pattern:limits.3", "A commit does not wait for the next record."),
    should("pattern:limits.4", "Nothing is committed against a consumer that closes."),
    should("pattern:limits.5", "What cannot be published is kept elsewhere.", letters.has_a_spool),
    should("pattern:limits.6", "A breaker protects what is down.", letters.has_a_breaker),
    must("pattern:pitfalls.1", "The client does not commit by itself."),
    must("pattern:pitfalls.2", "There is a dead-letter topic."),
    must("pattern:pitfalls.3", "Retries end.", settings.retries_end),
    must("pattern:pitfalls.4", "There are metrics.", settings.metrics_are_exposed),
    should("pattern:pitfalls.5", "Every kind of exception is dealt with."),
    must("pattern:pitfalls.6", "What is known of a partition goes with it: memory does not grow."),
    must("pattern:pitfalls.7", "Nothing stops without draining."),
    should("pattern:pitfalls.8", "Retries do not exceed max.poll.interval.ms."),
    should("pattern:pitfalls.9", "Poison messages do not block partitions."),
    should("pattern:pitfalls.10", "Partitions are not paused without need."),
    should("pattern:pitfalls.11", "An idle consumer that ends pauses its partitions, too."),
    should("pattern:pitfalls.12", "A commit that fails is tried more than once."),
    should("pattern:pitfalls.13", "There is a way to be idempotent.", groups.idempotent),
    should("pattern:pitfalls.14", "Buffers that are full, or a downstream that is away, hold back reading."),
    should(
        "pattern:high.1",
        "Letters that Kafka does not take are stored with all they say.",
        letters.has_a_spool,
    ),
    should(
        "pattern:high.2",
        "Health knows membership, assignments, stuck partitions and the letters' way.",
        settings.health_is_ours,
    ),
    should("pattern:high.3", "Lag is a metric of each partition.", settings.metrics_are_exposed),
    should("pattern:high.4", "Commits are retried with a back-off, their failures counted."),
    should("pattern:high.5", "A record may have a time-out, and is buried after it.", letters.has_a_timeout),
    should("pattern:medium.1", "A breaker opens at a threshold and closes by itself.", letters.has_a_breaker),
    should("pattern:medium.2", "Letters can be queried and replayed, some or all."),
    should("pattern:medium.3", "How long the end takes is a metric.", settings.metrics_are_exposed),
    should("pattern:medium.4", "Rates can be limited, per partition and in all."),
    should("pattern:low.1", "Records can be processed in batches."),
    should("pattern:low.2", "Schemas of a registry are validated.", _REGISTRY),
    should("pattern:low.3", "Processing is traced through OpenTelemetry."),
    should("pattern:runbook.1", "Nothing is processed: what to look at, what to do."),
    should("pattern:runbook.2", "Lag grows: what to look at, what to do."),
    should("pattern:runbook.3", "Rebalances are frequent: what to look at, what to do."),
    should("pattern:runbook.4", "Letters cannot be published: what to look at, what to do."),
    should("pattern:runbook.5", "The end takes too long: what to look at, what to do."),
    should("pattern:throughput.1", "More records can be taken at once."),
    should("pattern:throughput.2", "Little is added to the time of a record."),
    should("pattern:throughput.3", "More instances share the work."),
    should("pattern:throughput.4", "There are enough partitions.", _PARTITIONS),
    should("pattern:throughput.5", "Many records can be one transaction."),
    should("pattern:latency.1", "Delays of retries can be lowered."),
    should("pattern:latency.2", "Fewer records can be taken at once."),
    should("pattern:latency.3", "A record starts within milliseconds."),
    should("pattern:constrained.1", "Buffers can be small."),
    should("pattern:constrained.2", "Retries can be fewer."),
    should("pattern:constrained.3", "Memory is watched.", settings.metrics_are_exposed),
    should(
        "pattern:checklist.1",
        "Processed records, their duration and errors are watched.",
        settings.metrics_are_exposed,
    ),
    should("pattern:checklist.2", "Retries are watched.", settings.metrics_are_exposed),
    should(
        "pattern:checklist.3",
        "Letters, and failures to publish them, are watched.",
        settings.metrics_are_exposed,
    ),
    should(
        "pattern:checklist.4",
        "Lag, membership, assignments and failed commits are watched.",
        settings.metrics_are_exposed,
    ),
    should(
        "pattern:checklist.5",
        "Threads, memory, processor and network are watched.",
        settings.metrics_are_exposed,
    ),
    should(
        "pattern:alerts.1",
        "More than 5 % errors raise an alert.",
        alerts.raised("KeepfastHighErrorRate", "error_share"),
    ),
    should(
        "pattern:alerts.2",
        "More than 1 % letters raise an alert.",
        alerts.raised("KeepfastHighDeadLetterRate", "letter_share"),
    ),
    should(
        "pattern:alerts.3",
        "A lag of more than 10,000 records of a partition raises an alert.",
        alerts.raised("KeepfastHighPartitionLag", "partition_lag"),
    ),
    should("pattern:alerts.4", "A stuck partition raises an alert.", alerts.raised("KeepfastStuckPartitions")),
    should(
        "pattern:alerts.5",
        "More than 10 % letters that cannot be published raise an alert.",
        alerts.raised("KeepfastDeadLettersNotPublished", "publish_failure_share"),
    ),
    should(
        "pattern:alerts.6",
        "More than one rebalance an hour raises an alert.",
        alerts.raised("KeepfastFrequentRebalances", "rebalances_per_hour"),
    ),
    should(
        "pattern:alerts.7",
        "An end that misses its deadline raises an alert.",
        alerts.raised_by_the_app("KeepfastShutdownTimeout"),
    ),
    should(
        "pattern:indicators.1",
        "Health of a consumer: a member, with partitions, at work.",
        settings.health_is_ours,
    ),
    should("pattern:indicators.2", "Health of processing: nothing is stuck.", settings.health_is_ours),
    should("pattern:indicators.3", "Health of letters: they can be published.", settings.health_is_ours),
)
