"""The fraud service's decision: a consumer with a dead-letter topic, idempotent, and without card numbers."""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_alerts, checks_errors, checks_groups
from keepfast.audit.profile import Profile
from keepfast.audit.rule import must, not_checkable, should
from keepfast.core.errors import Reject
from neotool_common.profiles import checks_errors as errors
from neotool_common.profiles import checks_groups as groups
from neotool_common.profiles import checks_letters as letters
from neotool_common.profiles import checks_settings as settings
from neotool_common.profiles.hooks import REPLACED

FRAUD: Final = Profile(
    "fraud",
    "the fraud service's decision",
    (
        must("fraud:context.1", "No valid event is lost."),
        must("fraud:context.2", "An event that is delivered twice creates no duplicate.", checks_groups.idempotent),
        must("fraud:context.3", "An invalid event does not block the others."),
        must("fraud:context.4", "Failed events can be inspected."),
        must("fraud:decision.1", "The topic's name ends with a version.", groups.versioned),
        must(
            "fraud:decision.2",
            "The dead-letter topic is named <topic>.dlq.<env>.",
            letters.letter_topics_as("fraud"),
        ),
        must("fraud:decision.3", "The group is named <service>.<env>.", groups.group_with_env),
        must("fraud:decision.4", "An offset is committed after the write to the database."),
        must("fraud:consumer.1", "An event is parsed and validated first.", groups.validated),
        must("fraud:consumer.2", "After dead-lettering the offset is committed."),
        must("fraud:consumer.3", "Database errors are retried with back-off."),
        must(
            "fraud:envelope",
            "A letter groups the original message, the error (type, message, time) and where it came from (topic,"
            " partition, offset, group).",
            letters.letters_as("nested", "the fraud service"),
        ),
        should("fraud:consequences.1", "It recovers from transient errors by itself."),
        should("fraud:consequences.2", "Failure patterns are visible."),
        should("fraud:consequences.3", "A replay is safe; records that fail again are dead-lettered again."),
        should(
            "fraud:consequences.4",
            "The dead-letter topic is monitored, so that it does not grow unnoticed.",
            checks_alerts.alert_exists("KeepfastDeadLetters"),
        ),
        should(
            "fraud:consequences.5",
            "There is a runbook for triage and replay.",
            not_checkable("The runbook of an app is not read; the one in keepfast's documentation has it."),
        ),
        must("fraud:errors.1", "Validation errors: no retry, a dead letter.", errors.final(ValueError)),
        must(
            "fraud:errors.2",
            "Unavailable database: retries, no dead letter.",
            checks_errors.retried("sqlstate:08006"),
        ),
        must("fraud:errors.3", "Card number: no retry, no dead letter, a security event.", groups.cards_are_discarded),
        must("fraud:errors.4", "Business errors: no retry, a dead letter.", errors.final(Reject)),
        must("fraud:errors.5", "Unexpected errors: no retry, a dead letter.", errors.unknown_errors),
        must(
            "fraud:idempotency",
            "A replay changes no business field: an upsert by the event's id.",
            checks_groups.idempotent,
        ),
        should("fraud:monitoring.1", "kafka.consumer.lag is tracked."),
        should("fraud:monitoring.2", "kafka.dlq.messages is tracked."),
        should("fraud:monitoring.3", "kafka.dlq.errors_by_type is tracked."),
        should("fraud:monitoring.4", "ingestion.events_processed is tracked."),
        should("fraud:monitoring.5", "ingestion.events_failed is tracked."),
        should("fraud:alternatives.1", "One bad message does not stop the consumer."),
        should("fraud:alternatives.2", "No record is skipped without a dead letter.", errors.nothing_is_dropped),
        should("fraud:alternatives.3", "Retries are limited.", settings.retries_end),
        should("fraud:alternatives.4", "One consumer handles every kind of error."),
    ),
    replaced=REPLACED,
)
