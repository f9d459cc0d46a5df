"""The Spring-style strategy: a payment platform's groups, retry profiles, `.DLT` topics and lag."""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_alerts as alerts
from keepfast.audit import checks_errors as errors
from keepfast.audit import checks_groups as groups
from keepfast.audit import checks_letters as letters
from keepfast.audit import checks_settings as settings
from keepfast.audit.clause import Clause, must, should

SPRING: Final[tuple[Clause, ...]] = (
    must("spring:groups.1", "Each purpose has a group of its own."),
    must("spring:groups.2", "Several groups may read one topic, each for itself."),
    should("spring:groups.3", "Groups are named cg-<purpose>.", groups.group_by_purpose),
    must("spring:retry.1", "By default 3 retries, 1 s doubling to 30 s."),
    must("spring:retry.2", "Financial topics: 5 retries, 5 s doubling to 60 s."),
    must("spring:retry.3", "Notifications: 3 retries, 1 s doubling to 10 s."),
    must("spring:retry.4", "Reconciliation: no retries."),
    must("spring:retry.5", "Each consumer may have a profile of its own."),
    must(
        "spring:dlt.1",
        "The dead-letter topic is named <topic>.DLT.",
        letters.letter_topics_as("spring"),
    ),
    must(
        "spring:dlt.2",
        "A letter is the original with headers kafka_dlt-exception-fqcn, -message, -stacktrace and"
        " kafka_dlt-original-topic, -partition, -offset, -timestamp.",
        letters.letters_as("headers", "the Spring-style strategy"),
    ),
    must(
        "spring:poison.1",
        "What cannot be decoded goes to the dead-letter topic at once, unseen by the handler.",
        errors.decode_errors,
    ),
    must(
        "spring:poison.2",
        "What is not valid (a field that is missing, an unknown value, another schema) goes there without a retry.",
        errors.final(ValueError),
    ),
    must(
        "spring:poison.3",
        "Trouble of databases, locks and services is retried, then buried.",
        errors.retried("sqlstate:40P01", "http:503"),
    ),
    must("spring:commit.1", "A record is committed by hand when it was processed."),
    must("spring:commit.2", "On failure it is retried or buried before anything is committed."),
    must("spring:commit.3", "A record is committed when its letter was published."),
    must("spring:commit.4", "A crash loses nothing: delivery is at least once."),
    should("spring:commit.5", "Keys of idempotency make once out of at least once.", groups.idempotent),
    should(
        "spring:lag.1",
        "Financial topics: a lag above 100 warns, above 1000 is critical.",
        alerts.lag_raised("financial"),
    ),
    should(
        "spring:lag.2",
        "Notifications: a lag above 500 warns, above 5000 is critical.",
        alerts.lag_raised("notification"),
    ),
    should(
        "spring:lag.3",
        "Other topics: a lag above 1000 warns, above 10000 is critical.",
        alerts.lag_raised("other"),
    ),
    should(
        "spring:lag.4",
        "Any letter warns, more than 10 are critical.",
        alerts.raised("KeepfastDeadLetters", "letters_warning", "letters_critical"),
    ),
    should("spring:lag.5", "kafka_consumer_records_lag_max is told by group.", settings.metrics_are_exposed),
    should(
        "spring:lag.6",
        "kafka_consumer_records_consumed_total is told by group.",
        settings.metrics_are_exposed,
    ),
    must("spring:rebalance", "Assignment is cooperative and sticky.", groups.cooperative),
    should("spring:reprocessing.1", "Letters can be read."),
    should("spring:reprocessing.2", "A letter says what to mend: the error and where it was raised."),
    should("spring:reprocessing.3", "Letters can be sent to their original topic again."),
    should("spring:reprocessing.4", "What has failed for good stays on record."),
)
