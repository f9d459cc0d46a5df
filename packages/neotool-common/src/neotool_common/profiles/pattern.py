"""The consumer pattern: how a consumer is built, packaged, stopped, tested and monitored.

Numbers are those of the document, where it has them. Its Kotlin and JVM parts are left out.
"""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_alerts, checks_groups, checks_image, checks_letters, checks_project, checks_settings
from keepfast.audit.profile import Profile
from keepfast.audit.rule import must, not_checkable, should
from neotool_common.profiles import checks_errors as errors
from neotool_common.profiles import checks_groups as groups
from neotool_common.profiles import checks_image as image
from neotool_common.profiles import checks_letters as letters
from neotool_common.profiles import checks_project as project
from neotool_common.profiles import checks_settings as settings
from neotool_common.profiles.hooks import REPLACED

_BUILT_ELSEWHERE = not_checkable(
    "The files do not show where an image is built; ours needs nothing outside its folder."
)

_REGISTRY = not_checkable(
    "Values are validated against the handler's annotation. keepfast has no schema registry client; a handler of bytes"
    " may use one."
)
_RUNBOOK = not_checkable("The runbook of an app is not read; the one in keepfast's documentation has it.")
_PARTITIONS = not_checkable("Only the brokers know the partition count; see `keepfast doctor`.")

PATTERN: Final = Profile(
    "pattern",
    "the consumer pattern",
    (
        must("pattern:design.1", "Records of a partition run one after another.", groups.sequential),
        should("pattern:design.2", "A failed record is retried in place."),
        must("pattern:design.3", "Commits are manual, after success or dead-lettering."),
        must("pattern:design.4", "Dead letters describe the error completely."),
        must("pattern:design.5", "Signals cause a graceful shutdown."),
        must("pattern:package.1", "It is a package: pyproject.toml, src, tests.", project.is_a_package),
        must("pattern:package.2", "Beside the Dockerfile there is a .dockerignore.", checks_project.dockerignore),
        should("pattern:package.3", "Flow and tasks are separate modules.", project.layout),
        must(
            "pattern:package.4",
            "It depends on the shared package, with its import paths.",
            project.names_of_the_shared_package,
        ),
        must("pattern:package.5", "It implements no classification and no back-off itself."),
        must("pattern:package.6", "pyproject.toml has a command for it.", project.own_command),
        should("pattern:package.7", "PYTHONPATH is not changed, pytest included.", project.no_pythonpath),
        should("pattern:components.1", "The consumer is the flow: it reads, retries, commits and shuts down."),
        should("pattern:components.2", "Messages are typed and parsed from JSON.", groups.validated),
        should("pattern:components.3", "The processor may return success or an error."),
        should("pattern:components.4", "Failures to publish a dead letter are handled."),
        should("pattern:components.5", "Errors are classified by the standard."),
        should("pattern:components.6", "Back-off has jitter and respects rates."),
        should(
            "pattern:components.7",
            "Connections to PostgreSQL are pooled, and closed at shutdown.",
            project.of_the_database,
        ),
        must("pattern:runner.1", "The shared runner is used."),
        must(
            "pattern:runner.2",
            "It is imported from neotool_common, and so are classification and back-off.",
            project.names_of_the_shared_package,
        ),
        must("pattern:runner.3", "It takes the hooks by their names."),
        must("pattern:runner.4", "It logs the classification of errors.", checks_settings.logged_at("WARNING")),
        must(
            "pattern:runner.5", "It shuts down on signals, and calls the hooks for health, shutdown flag and cleanup."
        ),
        should("pattern:config.1", "Environment variables configure everything."),
        should("pattern:config.2", "Defaults work locally."),
        should("pattern:config.3", "Configuration is typed."),
        should("pattern:config.4", "It is validated at startup."),
        should("pattern:config.5", ".env files are read locally."),
        must("pattern:config.6", "POSTGRES_HOST, _PORT, _DB, _USER and _PASSWORD are read.", project.of_the_database),
        must("pattern:config.7", "POSTGRES_POOL_MIN and _MAX are read; 2 and 10 by default.", project.of_the_database),
        must("pattern:config.8", "KAFKA_BROKERS, KAFKA_INPUT_TOPIC and KAFKA_CONSUMER_GROUP are read."),
        must("pattern:config.9", "The RETRY_* variables are read."),
        should(
            "pattern:config.10",
            "MAX_RETRIES, INITIAL_RETRY_DELAY_MS and MAX_RETRY_DELAY_MS are read too.",
        ),
        must(
            "pattern:docker.1",
            "System packages are installed with Alpine's package manager, users created with its tools.",
            image.alpine_tools,
        ),
        must("pattern:docker.2", "It runs as a non-root user.", checks_image.not_root),
        must("pattern:docker.3", "The shared package is in the image.", image.installed),
        must("pattern:docker.4", "The consumer's code is in the image.", image.has_the_code),
        must("pattern:docker.5", "A health check requests /health.", checks_image.health_check),
        must("pattern:docker.6", "Dependencies have a layer of their own.", checks_image.dependencies_first),
        should("pattern:docker.7", "The base image is Python on Alpine.", image.small_base),
        should(
            "pattern:docker.8",
            "Its interval is 30 s, its timeout 10 s, its start period 40 s, with 3 retries.",
            image.health_timings,
        ),
        should("pattern:docker.9", "The entry point is its own command, without a shell.", checks_image.entry_point),
        should("pattern:docker.10", "Port 8080 is exposed.", checks_image.port_exposed),
        must("pattern:docker.11", "The build context contains the shared package.", _BUILT_ELSEWHERE),
        should("pattern:compose.1", "Consumers are in a compose file, with Kafka and PostgreSQL.", project.composed),
        should(
            "pattern:compose.2",
            "It sets brokers, topic, group, database and the health port.",
            project.inside_the_compose_file,
        ),
        should("pattern:compose.3", "The consumer starts after both.", project.inside_the_compose_file),
        should("pattern:compose.4", "It has a health check for the consumer.", project.inside_the_compose_file),
        must(
            "pattern:health.1",
            "/health is served on port 8080, or HEALTH_CHECK_PORT.",
            checks_settings.health_is_served,
        ),
        must("pattern:health.2", "Its status is 200 while the consumer is healthy.", settings.health_is_ours),
        should("pattern:health.3", "All consumers share one health module."),
        must("pattern:security.1", "It runs as uid 1000.", image.uid_1000),
        should("pattern:security.2", "The image is small.", image.small_base),
        should("pattern:security.3", "There is no pip cache.", checks_image.no_pip_cache),
        should("pattern:security.4", "Requirements are copied before the code.", checks_image.dependencies_first),
        should("pattern:security.5", "Only required system packages are installed.", checks_image.few_packages),
        should("pattern:build.1", "Code is compiled in a separate stage.", checks_image.no_compiler),
        should("pattern:build.2", "Dependencies come first, the code last.", checks_image.dependencies_first),
        should("pattern:build.3", "The shared package has a layer before the code.", checks_image.dependencies_first),
        should("pattern:build.4", "Requirements have a layer of their own.", checks_image.dependencies_first),
        must(
            "pattern:retry.1", "Retries follow the standard: classification, formula, defaults, dead letters, metrics."
        ),
        must("pattern:retry.2", "429, 502, 503 and 504 are retried; 400, 401, 403 and 404 are final."),
        must("pattern:retry.3", "Database connection errors are retried, constraint violations are final."),
        must("pattern:retry.4", "Network errors and timeouts are retried, validation errors are final."),
        must("pattern:retry.5", "Unknown errors are retried."),
        must("pattern:retry.6", "Delays follow the formula, in integer milliseconds."),
        must("pattern:retry.7", "Results, errors and retries are counted when they occur."),
        must(
            "pattern:letters.1",
            "The dead-letter topic is <domain>.<entity>.dlq.",
            letters.letter_topics_as("standard"),
        ),
        must(
            "pattern:letters.2",
            "Dead letters have the standard's fields.",
            letters.letters_as("envelope", "the pattern"),
        ),
        must("pattern:practice.1", "Commits are manual."),
        should("pattern:practice.2", "Processing is idempotent.", checks_groups.idempotent),
        should("pattern:practice.3", "Errors are handled at every level."),
        should("pattern:practice.4", "Everything is logged and counted."),
        should("pattern:practice.5", "Messages are validated before they are processed.", groups.validated),
        must("pattern:practice.6", "There is always a dead-letter topic."),
        should(
            "pattern:practice.7",
            "Transient errors are retried, validation errors are not.",
            errors.final(ValueError),
        ),
        should("pattern:practice.8", "All relevant metrics are exposed.", checks_settings.metrics_are_exposed),
        must(
            "pattern:python.1",
            "Databases are accessed through a pool; connections are returned, the pool is closed.",
            project.of_the_database,
        ),
        should(
            "pattern:python.2",
            "Calls to external services are rate-limited, and retries respect that.",
            settings.rate_limited,
        ),
        should("pattern:python.3", "Errors are classified by type and status, unknown ones are retried."),
        should("pattern:python.4", "SIGTERM and SIGINT stop new records; everything is closed at the end."),
        should("pattern:python.5", "Configuration is typed, has defaults, and is validated."),
        should(
            "pattern:python.6",
            "With a rate limit, records are fetched one at a time.",
            settings.one_at_a_time,
        ),
        should(
            "pattern:python.7",
            "Log lines are structured, with the record's position, time and error.",
        ),
        should(
            "pattern:python.8", "Database writes are transactional, with rollback on errors.", project.of_the_database
        ),
        must(
            "pattern:python.9",
            "Dead letters have the message, the error, its classification, the retries and the time.",
        ),
        should(
            "pattern:python.10",
            "Health is served by a separate thread, for liveness and readiness probes.",
            settings.health_is_ours,
        ),
        must("pattern:shutdown.1", "After a signal no new record starts."),
        must("pattern:shutdown.2", "No assigned partition is fetched any more, idle ones included."),
        must("pattern:shutdown.3", "Records in flight are finished and committed."),
        must("pattern:shutdown.4", "The consumer closes only after that."),
        must("pattern:shutdown.5", "Back-off waits are interrupted."),
        must(
            "pattern:shutdown.6",
            "The shutdown timeout can be configured, 30 s by default.",
            checks_settings.drains_long_enough,
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
        should("pattern:watch.1", "Lag is reported per partition.", checks_settings.metrics_are_exposed),
        should("pattern:watch.2", "The processing duration is reported.", checks_settings.metrics_are_exposed),
        should("pattern:watch.3", "Retries are reported.", checks_settings.metrics_are_exposed),
        should("pattern:watch.4", "Dead letters are reported.", checks_settings.metrics_are_exposed),
        should(
            "pattern:watch.5",
            "Records in flight are reported, also during shutdown.",
            checks_settings.metrics_are_exposed,
        ),
        must("pattern:metrics.1", "{domain}.{entity}.processed is exposed.", checks_settings.metrics_are_exposed),
        must(
            "pattern:metrics.2",
            "{domain}.{entity}.processing.duration is exposed.",
            checks_settings.metrics_are_exposed,
        ),
        must("pattern:metrics.3", "{domain}.{entity}.dlq.count is exposed.", checks_settings.metrics_are_exposed),
        must("pattern:metrics.4", "{domain}.{entity}.retry.count is exposed.", checks_settings.metrics_are_exposed),
        must("pattern:metrics.5", "{domain}.{entity}.error.count is exposed.", checks_settings.metrics_are_exposed),
        should("pattern:unit.1", "Success is tested.", checks_project.has_tests),
        should("pattern:unit.2", "Retries are tested.", checks_project.has_tests),
        should("pattern:unit.3", "Dead letters are tested.", checks_project.has_tests),
        should("pattern:unit.4", "Validation is tested.", checks_project.has_tests),
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
        must("pattern:pitfalls.4", "There are metrics.", checks_settings.metrics_are_exposed),
        should("pattern:pitfalls.5", "Every kind of exception is handled."),
        must("pattern:pitfalls.6", "The state of a partition is dropped with it: memory does not grow."),
        must("pattern:pitfalls.7", "Every stop drains."),
        should("pattern:pitfalls.8", "Retries do not exceed max.poll.interval.ms."),
        should("pattern:pitfalls.9", "Poison messages do not block partitions."),
        should("pattern:pitfalls.10", "Partitions are not paused without need."),
        should("pattern:pitfalls.11", "An idle consumer that shuts down pauses its partitions too."),
        should("pattern:pitfalls.12", "A failed commit is retried."),
        should("pattern:pitfalls.13", "Idempotent processing is supported.", checks_groups.idempotent),
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
        should("pattern:high.3", "Lag is a metric per partition.", checks_settings.metrics_are_exposed),
        should("pattern:high.4", "Commits are retried with back-off, and failures are counted."),
        should(
            "pattern:high.5",
            "A record may have a timeout, after which it is dead-lettered.",
            checks_letters.has_a_timeout,
        ),
        should(
            "pattern:medium.1", "A circuit breaker opens at a threshold and closes by itself.", letters.has_a_breaker
        ),
        should("pattern:medium.2", "Dead letters can be queried and replayed, some or all."),
        should("pattern:medium.3", "The shutdown duration is a metric.", checks_settings.metrics_are_exposed),
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
        should("pattern:constrained.3", "Memory is monitored.", checks_settings.metrics_are_exposed),
        should(
            "pattern:checklist.1",
            "Processed records, durations and errors are monitored.",
            checks_settings.metrics_are_exposed,
        ),
        should("pattern:checklist.2", "Retries are monitored.", checks_settings.metrics_are_exposed),
        should(
            "pattern:checklist.3",
            "Dead letters, and failures to publish them, are monitored.",
            checks_settings.metrics_are_exposed,
        ),
        should(
            "pattern:checklist.4",
            "Lag, membership, assignments and failed commits are monitored.",
            checks_settings.metrics_are_exposed,
        ),
        should(
            "pattern:checklist.5",
            "Threads, memory, CPU and network are monitored.",
            checks_settings.metrics_are_exposed,
        ),
        should(
            "pattern:alerts.1",
            "More than 5 % errors raise an alert.",
            checks_alerts.alert_exists("KeepfastHighErrorRate", "error_share"),
        ),
        should(
            "pattern:alerts.2",
            "More than 1 % dead letters raise an alert.",
            checks_alerts.alert_exists("KeepfastHighDeadLetterRate", "letter_share"),
        ),
        should(
            "pattern:alerts.3",
            "A partition lag of more than 10,000 records raises an alert.",
            checks_alerts.alert_exists("KeepfastHighPartitionLag", "partition_lag"),
        ),
        should(
            "pattern:alerts.4",
            "A stuck partition raises an alert.",
            checks_alerts.alert_exists("KeepfastStuckPartitions"),
        ),
        should(
            "pattern:alerts.5",
            "More than 10 % failures to publish dead letters raise an alert.",
            checks_alerts.alert_exists("KeepfastDeadLettersNotPublished", "publish_failure_share"),
        ),
        should(
            "pattern:alerts.6",
            "More than one rebalance per hour raises an alert.",
            checks_alerts.alert_exists("KeepfastFrequentRebalances", "rebalances_per_hour"),
        ),
        should(
            "pattern:alerts.7",
            "A shutdown that misses its deadline raises an alert.",
            checks_alerts.app_alert_exists("KeepfastShutdownTimeout"),
        ),
        should(
            "pattern:indicators.1",
            "Consumer health: a group member with partitions that processes records.",
            settings.health_is_ours,
        ),
        should("pattern:indicators.2", "Processing health: no partition is stuck.", settings.health_is_ours),
        should("pattern:indicators.3", "Dead-letter health: letters can be published.", settings.health_is_ours),
    ),
    replaced=REPLACED,
)
