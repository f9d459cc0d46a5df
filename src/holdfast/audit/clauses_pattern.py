"""The consumer pattern: how a consumer is built, packaged, ended and watched. Its Kotlin parts are not for us."""

from __future__ import annotations

from typing import Final

from holdfast.audit import evidence as e
from holdfast.audit import look_errors as errors
from holdfast.audit import look_groups as groups
from holdfast.audit import look_letters as letters
from holdfast.audit import look_project as project
from holdfast.audit import look_settings as settings
from holdfast.audit.clause import Clause, must, should

PATTERN: Final[tuple[Clause, ...]] = (
    must("pattern:design.1", "Records of a partition run one after another.", e.PARTITION_ORDER, groups.sequential),
    must("pattern:design.2", "Commits are manual, after success or a letter.", e.COMMITTED_AFTER),
    must("pattern:design.3", "Signals end it gracefully.", e.DRAINED),
    must("pattern:package.1", "It is a package: pyproject.toml, src, tests.", e.PACKAGE, project.is_a_package),
    must("pattern:package.2", "It has a command of its own.", e.IMAGE, project.entry_point),
    must("pattern:runner.1", "The shared runner is used.", e.RUNNER),
    must("pattern:runner.2", "It takes the hooks by their names.", e.HOOKS),
    must("pattern:runner.3", "Its import paths are neotool_common's.", e.SHIM),
    must("pattern:config.1", "KAFKA_BROKERS, KAFKA_INPUT_TOPIC and KAFKA_CONSUMER_GROUP are read.", e.VARIABLES),
    must("pattern:config.2", "The RETRY_* variables are read.", e.VARIABLES),
    must("pattern:config.3", "The POSTGRES_* variables are read, with a pool of 2 to 10.", e.POOLED),
    should("pattern:config.4", "Environment variables configure everything; .env files serve locally.", e.ONE_PLACE),
    should("pattern:config.5", "Configuration is typed, and validated at the start.", e.CHECKED_WHOLE),
    should("pattern:docker.1", "The image is small.", e.IMAGE, project.small_base),
    must("pattern:docker.2", "It runs as a user that is not root, uid 1000.", e.IMAGE, project.not_root),
    must("pattern:docker.3", "A health check asks /health.", e.IMAGE, project.health_check),
    should("pattern:docker.4", "Dependencies have a layer of their own.", e.IMAGE, project.dependencies_first),
    should("pattern:docker.5", "pip keeps no cache.", e.IMAGE, project.no_pip_cache),
    should("pattern:docker.6", "Consumers are in a compose file with Kafka and PostgreSQL.", e.COMPOSE),
    must(
        "pattern:health.1", "/health answers on port 8080, or HEALTH_CHECK_PORT.", e.HEALTH, settings.health_is_served
    ),
    must("pattern:health.2", "It is 200 while the consumer is healthy.", e.HEALTH_SHOWS),
    should("pattern:health.3", "It knows membership, assignments, stuck partitions and the letters' way.", e.STUCK),
    must("pattern:retry.1", "Errors are classified before a retry, unknown ones are retried.", e.SHARED_RULES),
    must("pattern:retry.2", "Delays are the formula's.", e.FORMULA),
    must(
        "pattern:letters.1",
        "Letters have the standard's fields.",
        e.ENVELOPE,
        letters.letters_as("envelope", "the pattern"),
    ),
    must(
        "pattern:letters.2",
        "The dead-letter topic is <domain>.<entity>.dlq.",
        e.LETTER_NAMES,
        letters.letter_topics_as("standard"),
    ),
    should("pattern:letters.3", "What cannot be published is kept elsewhere.", e.SPOOLED, letters.has_a_spool),
    must("pattern:shutdown.1", "After a signal nothing new starts.", e.DRAINED),
    must("pattern:shutdown.2", "Work in hand is finished and committed.", e.DRAINED),
    must("pattern:shutdown.3", "Waits for a retry are cut short.", e.CUT_SHORT),
    must(
        "pattern:shutdown.4",
        "It is over by a deadline that can be configured, 30 s by default.",
        e.DEADLINE,
        settings.drains_long_enough,
    ),
    should("pattern:shutdown.5", "Consumers, producers and pools are closed at the end.", e.ENDS_IN_ORDER),
    should("pattern:polling.1", "No retry holds up polling past max.poll.interval.ms.", e.NOT_EVICTED),
    should("pattern:polling.2", "Partitions are paused only when there is need.", e.BOUNDED),
    should("pattern:poison.1", "Poison messages end in the dead-letter topic soon.", e.ROUTED),
    should("pattern:poison.2", "The time for one record can be limited.", e.TIMED_OUT, letters.has_a_timeout),
    should("pattern:poison.3", "Stuck partitions are noticed.", e.STUCK),
    must("pattern:metrics.1", "The five metrics of the standard are exposed.", e.EXPOSED, settings.metrics_are_exposed),
    should("pattern:metrics.2", "Lag is told by partition.", e.LAG),
    should("pattern:metrics.3", "Failures to commit and to publish letters are counted.", e.METRIC_NAMES),
    should("pattern:testing.1", "The package has tests.", e.PACKAGE, project.has_tests),
    should("pattern:practice.1", "Commits are manual.", e.MANUAL),
    should("pattern:practice.2", "Processing is idempotent.", e.DECLARED, groups.idempotent),
    should("pattern:practice.3", "Messages are validated before they are processed.", e.DECODED, groups.validated),
    should("pattern:practice.4", "There is always a dead-letter topic.", e.LETTER_TOPIC_MADE),
    should("pattern:practice.5", "Validation errors are not retried.", e.CATEGORIES, errors.final(ValueError)),
    should("pattern:practice.6", "Databases are reached through a pool, in transactions.", e.POOLED),
    should(
        "pattern:practice.7",
        "Rates of others are respected, with records one at a time if need be.",
        e.RATE,
        settings.rate_limited,
    ),
    should("pattern:practice.8", "Lines of the log are structured, with the record's place.", e.LOGGED),
    should("pattern:pitfalls.1", "Retries end.", e.CHOSEN, settings.retries_end),
    should("pattern:pitfalls.2", "Memory does not grow with what is assigned.", e.BOUNDED),
    should("pattern:pitfalls.3", "A commit that fails is tried more than once.", e.COMMITS_RETRIED),
    should("pattern:missing.1", "A breaker protects what is down.", e.BREAKER, letters.has_a_breaker),
    should("pattern:missing.2", "Letters can be replayed.", e.REPLAYED),
    should("pattern:missing.3", "Rates can be limited, per partition and in all.", e.RATE),
    should("pattern:missing.4", "Records can be processed in batches.", e.BATCHED),
    should("pattern:alerts.1", "More than 5 % errors raise an alert.", e.ALERTS),
    should("pattern:alerts.2", "More than 1 % letters raise an alert.", e.ALERTS),
    should("pattern:alerts.3", "A lag of more than 10,000 records of a partition raises an alert.", e.ALERTS),
    should("pattern:alerts.4", "A stuck partition raises an alert.", e.ALERTS),
    should("pattern:alerts.5", "More than 10 % letters that cannot be published raise an alert.", e.ALERTS),
    should("pattern:alerts.6", "More than one rebalance an hour raises an alert.", e.ALERTS),
    should("pattern:alerts.7", "An end that misses its deadline raises an alert.", e.ALERTS),
)
