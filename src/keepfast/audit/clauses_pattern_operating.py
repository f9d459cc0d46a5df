"""The consumer pattern, operating a consumer: shutdown, tests, monitoring, pitfalls, and known gaps."""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_alerts as alerts
from keepfast.audit import checks_groups as groups
from keepfast.audit import checks_letters as letters
from keepfast.audit import checks_project as project
from keepfast.audit import checks_settings as settings
from keepfast.audit.clause import Clause, must, not_checkable, should

_REGISTRY = not_checkable(
    "Values are validated against the handler's annotation. keepfast has no schema registry client; a handler of bytes"
    " may use one."
)
_RUNBOOK = not_checkable("The runbook of an app is not read; the one in keepfast's documentation has it.")
_PARTITIONS = not_checkable("Only the brokers know the partition count; see `keepfast doctor`.")

PATTERN_OPERATING: Final[tuple[Clause, ...]] = (
    must("pattern:shutdown.1", "After a signal no new record starts."),
    must("pattern:shutdown.2", "No assigned partition is fetched any more, idle ones included."),
    must("pattern:shutdown.3", "Records in flight are finished and committed."),
    must("pattern:shutdown.4", "The consumer closes only after that."),
    must("pattern:shutdown.5", "Back-off waits are interrupted."),
    must(
        "pattern:shutdown.6",
        "The shutdown timeout can be configured, 30 s by default.",
        settings.drains_long_enough,
    ),
    must("pattern:shutdown.7", "It ends by its deadline; unfinished records are delivered again."),
    should("pattern:shutdown.8", "Its progress is logged periodically."),
    should("pattern:shutdown.9", "Records that finish after the deadline are not committed."),
    should("pattern:polling.1", "No retry delays polling past max.poll.interval.ms."),
    should("pattern:polling.2", "Partitions are paused only when needed."),
    should(
        "pattern:polling.3",
        "max.poll.interval.ms covers all retries, processing and a buffer.",
        settings.retry_sum,
    ),
    should("pattern:poison.1", "Retries can be reduced, so that poison messages are removed sooner."),
    should("pattern:poison.2", "Poison messages are dead-lettered soon."),
    should("pattern:poison.3", "Lag, stuck partitions, retries and dead letters are monitored."),
    should("pattern:poison.4", "Other keys of the partition can continue."),
    should("pattern:poison.5", "The time per record can be limited, retries included."),
    should("pattern:watch.1", "Lag is reported per partition.", settings.metrics_are_exposed),
    should("pattern:watch.2", "The processing duration is reported.", settings.metrics_are_exposed),
    should("pattern:watch.3", "Retries are reported.", settings.metrics_are_exposed),
    should("pattern:watch.4", "Dead letters are reported.", settings.metrics_are_exposed),
    should("pattern:watch.5", "Records in flight are reported, also during shutdown.", settings.metrics_are_exposed),
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
    should("pattern:unit.3", "Dead letters are tested.", project.has_tests),
    should("pattern:unit.4", "Validation is tested.", project.has_tests),
    should("pattern:unit.5", "Tests can use a fake Kafka."),
    should("pattern:integration.1", "Tests can use a real Kafka."),
    should("pattern:integration.2", "Messages are tested end to end.", project.tested_by_keepfast),
    should("pattern:integration.3", "Dead-lettering is tested.", project.tested_by_keepfast),
    should("pattern:integration.4", "Groups are tested.", project.tested_by_keepfast),
    should("pattern:limits.1", "No retry is long enough to lose group membership."),
    should("pattern:limits.2", "A poison message does not block its partition for long."),
    should("pattern:limits.3", "A commit does not wait for the next record."),
    should("pattern:limits.4", "No commit is attempted on a closing consumer."),
    should("pattern:limits.5", "Letters that cannot be published are stored elsewhere.", letters.has_a_spool),
    should("pattern:limits.6", "A circuit breaker protects unavailable downstreams.", letters.has_a_breaker),
    must("pattern:pitfalls.1", "Auto-commit is off."),
    must("pattern:pitfalls.2", "There is a dead-letter topic."),
    must("pattern:pitfalls.3", "Retries are limited.", settings.retries_end),
    must("pattern:pitfalls.4", "There are metrics.", settings.metrics_are_exposed),
    should("pattern:pitfalls.5", "Every kind of exception is handled."),
    must("pattern:pitfalls.6", "The state of a partition is dropped with it: memory does not grow."),
    must("pattern:pitfalls.7", "Every stop drains."),
    should("pattern:pitfalls.8", "Retries do not exceed max.poll.interval.ms."),
    should("pattern:pitfalls.9", "Poison messages do not block partitions."),
    should("pattern:pitfalls.10", "Partitions are not paused without need."),
    should("pattern:pitfalls.11", "An idle consumer that shuts down pauses its partitions too."),
    should("pattern:pitfalls.12", "A failed commit is retried."),
    should("pattern:pitfalls.13", "Idempotent processing is supported.", groups.idempotent),
    should("pattern:pitfalls.14", "Full buffers or an unavailable downstream pause fetching."),
    should(
        "pattern:high.1",
        "Letters that Kafka does not accept are stored completely.",
        letters.has_a_spool,
    ),
    should(
        "pattern:high.2",
        "Health covers membership, assignments, stuck partitions and dead-letter publishing.",
        settings.health_is_ours,
    ),
    should("pattern:high.3", "Lag is a metric per partition.", settings.metrics_are_exposed),
    should("pattern:high.4", "Commits are retried with back-off, and failures are counted."),
    should("pattern:high.5", "A record may have a timeout, after which it is dead-lettered.", letters.has_a_timeout),
    should("pattern:medium.1", "A circuit breaker opens at a threshold and closes by itself.", letters.has_a_breaker),
    should("pattern:medium.2", "Dead letters can be queried and replayed, some or all."),
    should("pattern:medium.3", "The shutdown duration is a metric.", settings.metrics_are_exposed),
    should("pattern:medium.4", "Rates can be limited, per partition and in total."),
    should("pattern:low.1", "Records can be processed in batches."),
    should("pattern:low.2", "Schemas are validated with a registry.", _REGISTRY),
    should("pattern:low.3", "Processing is traced through OpenTelemetry."),
    should("pattern:runbook.1", "Runbook: no records are processed.", _RUNBOOK),
    should("pattern:runbook.2", "Runbook: lag grows.", _RUNBOOK),
    should("pattern:runbook.3", "Runbook: frequent rebalances.", _RUNBOOK),
    should("pattern:runbook.4", "Runbook: dead letters cannot be published.", _RUNBOOK),
    should("pattern:runbook.5", "Runbook: shutdown takes too long.", _RUNBOOK),
    should("pattern:throughput.1", "More records can be fetched at once."),
    should("pattern:throughput.2", "The overhead per record is small."),
    should("pattern:throughput.3", "More instances share the load."),
    should("pattern:throughput.4", "There are enough partitions.", _PARTITIONS),
    should("pattern:throughput.5", "Several records can share one transaction."),
    should("pattern:latency.1", "Retry delays can be reduced."),
    should("pattern:latency.2", "Fewer records can be fetched at once."),
    should("pattern:latency.3", "A record starts within milliseconds."),
    should("pattern:constrained.1", "Buffers can be small."),
    should("pattern:constrained.2", "Retries can be reduced."),
    should("pattern:constrained.3", "Memory is monitored.", settings.metrics_are_exposed),
    should(
        "pattern:checklist.1",
        "Processed records, durations and errors are monitored.",
        settings.metrics_are_exposed,
    ),
    should("pattern:checklist.2", "Retries are monitored.", settings.metrics_are_exposed),
    should(
        "pattern:checklist.3",
        "Dead letters, and failures to publish them, are monitored.",
        settings.metrics_are_exposed,
    ),
    should(
        "pattern:checklist.4",
        "Lag, membership, assignments and failed commits are monitored.",
        settings.metrics_are_exposed,
    ),
    should(
        "pattern:checklist.5",
        "Threads, memory, CPU and network are monitored.",
        settings.metrics_are_exposed,
    ),
    should(
        "pattern:alerts.1",
        "More than 5 % errors raise an alert.",
        alerts.alert_exists("KeepfastHighErrorRate", "error_share"),
    ),
    should(
        "pattern:alerts.2",
        "More than 1 % dead letters raise an alert.",
        alerts.alert_exists("KeepfastHighDeadLetterRate", "letter_share"),
    ),
    should(
        "pattern:alerts.3",
        "A partition lag of more than 10,000 records raises an alert.",
        alerts.alert_exists("KeepfastHighPartitionLag", "partition_lag"),
    ),
    should("pattern:alerts.4", "A stuck partition raises an alert.", alerts.alert_exists("KeepfastStuckPartitions")),
    should(
        "pattern:alerts.5",
        "More than 10 % failures to publish dead letters raise an alert.",
        alerts.alert_exists("KeepfastDeadLettersNotPublished", "publish_failure_share"),
    ),
    should(
        "pattern:alerts.6",
        "More than one rebalance per hour raises an alert.",
        alerts.alert_exists("KeepfastFrequentRebalances", "rebalances_per_hour"),
    ),
    should(
        "pattern:alerts.7",
        "A shutdown that misses its deadline raises an alert.",
        alerts.app_alert_exists("KeepfastShutdownTimeout"),
    ),
    should(
        "pattern:indicators.1",
        "Consumer health: a group member with partitions that processes records.",
        settings.health_is_ours,
    ),
    should("pattern:indicators.2", "Processing health: no partition is stuck.", settings.health_is_ours),
    should("pattern:indicators.3", "Dead-letter health: letters can be published.", settings.health_is_ours),
)
