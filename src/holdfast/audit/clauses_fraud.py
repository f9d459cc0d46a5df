"""The fraud service's decision: a consumer with a dead-letter topic, idempotent, and blind to card numbers."""

from __future__ import annotations

from typing import Final

from holdfast.audit import evidence as e
from holdfast.audit import look_errors as errors
from holdfast.audit import look_groups as groups
from holdfast.audit import look_letters as letters
from holdfast.audit import look_settings as settings
from holdfast.audit.clause import Clause, must, should
from holdfast.core.errors import Reject

FRAUD: Final[tuple[Clause, ...]] = (
    must("fraud:context.1", "No valid event is lost.", e.NOT_LOST),
    must("fraud:context.2", "An event that comes twice makes no duplicate.", e.DECLARED, groups.idempotent),
    must("fraud:context.3", "An invalid event does not hold up the others.", e.GARBAGE),
    must("fraud:context.4", "Failed events can be inspected.", e.CAUSES),
    must(
        "fraud:decision.1",
        "The dead-letter topic is named <topic>.dlq.<env>.",
        e.LETTER_NAMES,
        letters.letter_topics_as("fraud"),
    ),
    must("fraud:decision.2", "The group ends with the environment.", e.CHOSEN, groups.group_with_env),
    must("fraud:decision.3", "An offset is committed after the database was written.", e.COMMITTED_AFTER),
    must(
        "fraud:envelope",
        "A letter groups the original message, the error and the metadata.",
        e.NESTED,
        letters.letters_as("nested", "the fraud service"),
    ),
    must("fraud:errors.1", "Validation errors: no retry, a letter.", e.FRAUD_TABLE, errors.final(ValueError)),
    must(
        "fraud:errors.2",
        "A database that is unavailable: retried, no letter.",
        e.FRAUD_TABLE,
        errors.retried("sqlstate:08006"),
    ),
    must("fraud:errors.3", "A card number: no retry, no letter, a security event.", e.SUNK, groups.cards_are_sunk),
    must("fraud:errors.4", "Errors of business logic: no retry, a letter.", e.FRAUD_TABLE, errors.final(Reject)),
    must("fraud:errors.5", "Unexpected errors: no retry, a letter.", e.CHOSEN, errors.unknown_errors),
    must(
        "fraud:idempotency",
        "A replay changes no business field: an upsert on the event's identity.",
        e.DECLARED,
        groups.idempotent,
    ),
    should("fraud:monitoring.1", "kafka.consumer.lag is tracked.", e.METRIC_NAMES),
    should("fraud:monitoring.2", "kafka.dlq.messages is tracked.", e.METRIC_NAMES),
    should("fraud:monitoring.3", "kafka.dlq.errors_by_type is tracked.", e.METRIC_NAMES),
    should("fraud:monitoring.4", "ingestion.events_processed is tracked.", e.METRIC_NAMES),
    should("fraud:monitoring.5", "ingestion.events_failed is tracked.", e.METRIC_NAMES),
    should("fraud:replay", "Letters are kept for a replay, which is safe.", e.REPLAYED),
    should("fraud:alternatives.1", "One bad message does not stop the consumer.", e.ROUTED),
    should("fraud:alternatives.2", "Nothing is skipped without a letter.", e.ROUTED_UNLESS, errors.nothing_is_dropped),
    should("fraud:alternatives.3", "Nothing is retried for ever.", e.CHOSEN, settings.retries_end),
)
