"""The Spring-style strategy: a payment platform's groups, retry profiles, `.DLT` topics and lag."""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_alerts, checks_errors, checks_groups, checks_settings
from keepfast.audit.profile import Profile
from keepfast.audit.rule import must, should
from neotool_common.profiles import checks_alerts as alerts
from neotool_common.profiles import checks_errors as errors
from neotool_common.profiles import checks_groups as groups
from neotool_common.profiles import checks_letters as letters
from neotool_common.profiles import checks_settings as settings
from neotool_common.profiles.hooks import REPLACED

SPRING: Final = Profile(
    "spring",
    "the Spring-style strategy",
    (
        must("spring:groups.1", "Each purpose has its own group."),
        must("spring:groups.2", "Several groups may read one topic independently."),
        should("spring:groups.3", "Groups are named cg-<purpose>.", groups.group_by_purpose),
        must("spring:retry.1", "Default: 3 retries, 1 s doubling to 30 s.", settings.retries_by_default),
        must("spring:retry.2", "Financial topics: 5 retries, 5 s doubling to 60 s.", settings.retries_of("financial")),
        must("spring:retry.3", "Notifications: 3 retries, 1 s doubling to 10 s.", settings.retries_of("notification")),
        must("spring:retry.4", "Reconciliation: no retries.", settings.no_retries),
        must("spring:retry.5", "Each consumer may have its own profile."),
        must(
            "spring:dlt.1",
            "The dead-letter topic is named <topic>.DLT.",
            letters.letter_topics_as("spring"),
        ),
        must(
            "spring:dlt.2",
            "A letter is the original record with headers kafka_dlt-exception-fqcn, -message, -stacktrace and"
            " kafka_dlt-original-topic, -partition, -offset, -timestamp.",
            letters.letters_as("headers", "the Spring-style strategy"),
        ),
        must(
            "spring:poison.1",
            "Undecodable records are dead-lettered at once, without calling the handler.",
            errors.decode_errors,
        ),
        must(
            "spring:poison.2",
            "Invalid records (missing field, unknown value, wrong schema) are dead-lettered without a retry.",
            errors.final(ValueError),
        ),
        must(
            "spring:poison.3",
            "Errors of databases, locks and services are retried, then dead-lettered.",
            checks_errors.retried("sqlstate:40P01", "http:503"),
        ),
        must("spring:commit.1", "A record is committed manually after processing."),
        must("spring:commit.2", "On failure it is retried or dead-lettered before the commit."),
        must("spring:commit.3", "A record is committed when its letter was published."),
        must("spring:commit.4", "A crash loses nothing: delivery is at-least-once."),
        should(
            "spring:commit.5", "Idempotency keys turn at-least-once into effectively-once.", checks_groups.idempotent
        ),
        should(
            "spring:lag.1",
            "Financial topics: a lag above 100 warns, above 1000 is critical.",
            alerts.lag_alert_exists("financial"),
        ),
        should(
            "spring:lag.2",
            "Notifications: a lag above 500 warns, above 5000 is critical.",
            alerts.lag_alert_exists("notification"),
        ),
        should(
            "spring:lag.3",
            "Other topics: a lag above 1000 warns, above 10000 is critical.",
            alerts.lag_alert_exists("other"),
        ),
        should(
            "spring:lag.4",
            "Any dead letter warns, more than 10 are critical.",
            checks_alerts.alert_exists("KeepfastDeadLetters", "letters_warning", "letters_critical"),
        ),
        should(
            "spring:lag.5", "kafka_consumer_records_lag_max is exposed per group.", checks_settings.metrics_are_exposed
        ),
        should(
            "spring:lag.6",
            "kafka_consumer_records_consumed_total is exposed per group.",
            checks_settings.metrics_are_exposed,
        ),
        must("spring:rebalance", "Assignment is cooperative and sticky.", groups.cooperative),
        should("spring:reprocessing.1", "Dead letters can be read."),
        should("spring:reprocessing.2", "A dead letter names the cause: the error and where it was raised."),
        should("spring:reprocessing.3", "Dead letters can be sent to their original topic again."),
        should("spring:reprocessing.4", "Records that failed for good are retained."),
    ),
    replaced=REPLACED,
)
