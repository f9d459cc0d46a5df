"""The Spring-style strategy: a payment platform's groups, retry profiles, `.DLT` topics and lag."""

from __future__ import annotations

from typing import Final

from holdfast.audit import evidence as e
from holdfast.audit import look_errors as errors
from holdfast.audit import look_groups as groups
from holdfast.audit import look_letters as letters
from holdfast.audit.clause import Clause, must, should

SPRING: Final[tuple[Clause, ...]] = (
    must("spring:groups.1", "Each purpose has a group of its own.", e.OWN_GROUP),
    must("spring:groups.2", "Several groups may read one topic, each for itself.", e.FAN_OUT),
    must("spring:retry.1", "By default 3 retries, 1 s doubling to 30 s.", e.PROFILES),
    must("spring:retry.2", "Financial topics: 5 retries, 5 s doubling to 60 s.", e.PROFILES),
    must("spring:retry.3", "Notifications: 3 retries, 1 s doubling to 10 s.", e.PROFILES),
    must("spring:retry.4", "Reconciliation: no retries.", e.PROFILES),
    must(
        "spring:dlt.1",
        "The dead-letter topic is named <topic>.DLT.",
        e.LETTER_NAMES,
        letters.letter_topics_as("spring"),
    ),
    must(
        "spring:dlt.2",
        "A letter is the original with kafka_dlt-* headers.",
        e.SPRING_HEADERS,
        letters.letters_as("headers", "the Spring-style strategy"),
    ),
    must(
        "spring:poison.1",
        "What cannot be decoded goes to the dead-letter topic unseen by the handler.",
        e.GARBAGE,
        errors.decode_errors,
    ),
    must("spring:poison.2", "What is not valid goes there without a retry.", e.FRAUD_TABLE, errors.final(ValueError)),
    must(
        "spring:poison.3",
        "Trouble of databases, locks and services is retried, then buried.",
        e.DATABASES,
        errors.retried("sqlstate:40P01", "http:503"),
    ),
    must("spring:commit.1", "A record is committed by hand when it was processed.", e.CONFIRMED),
    must("spring:commit.2", "A record is committed when its letter was published.", e.CONFIRMED),
    should("spring:commit.3", "Keys of idempotency make once out of at least once.", e.DECLARED, groups.idempotent),
    should("spring:lag.1", "Lag is told by group.", e.METRIC_NAMES),
    should("spring:lag.2", "The number of letters is told by topic.", e.METRIC_NAMES),
    should("spring:lag.3", "How much lag is too much depends on the kind of topic, in two steps.", e.LAG_LIMITS),
    should("spring:lag.4", "Any letter raises an alert, ten a louder one.", e.ALERTS),
    must("spring:rebalance", "Assignment is cooperative and sticky.", e.COOPERATIVE, groups.cooperative),
    should("spring:reprocessing.1", "Letters can be read.", e.CAUSES),
    should("spring:reprocessing.2", "Letters can be sent to their original topic again.", e.REPLAYED),
)
