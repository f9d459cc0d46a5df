"""Checks of the classification of errors in an app, whose own rules take precedence over the built-in ones."""

from __future__ import annotations

from keepfast.audit.rule import Check, Finding, failed, passed, per_consumer, trial
from keepfast.audit.subject import AuditedConsumer
from keepfast.classify.classification import classify_class, classify_key
from keepfast.core.errors import Discard

ErrorKey = type[BaseException] | str


def retried(*errors: ErrorKey) -> Check:
    """Return a check that all of these errors are retried."""
    return trial(lambda one: are_of_kind(one, "retryable", errors))


def final(*errors: ErrorKey) -> Check:
    """Return a check that all of these errors are dead-lettered without a retry."""
    return trial(lambda one: are_of_kind(one, "non-retryable", errors))


def are_of_kind(one: AuditedConsumer, kind: str, errors: tuple[ErrorKey, ...]) -> Finding:
    """Classify errors as the consumer would, and compare with the expected kind."""
    wrong = {_name_of(error): actual for error in errors if (actual := kind_of(one, error)) != kind}
    if not wrong:
        return passed(f"{', '.join(map(_name_of, errors))}: {kind}.")
    kinds = ", ".join(f"{name} is {actual}" for name, actual in wrong.items())
    return failed(f"By the app's own rules {kinds}.", f"Remove the rule, or set its kind to {kind}.")


def kind_of(one: AuditedConsumer, error: ErrorKey) -> str:
    """Return the kind that the consumer's rules give an error."""
    own = one.own
    if isinstance(error, str):
        return classify_key(error, one.book, unknown=own.unknown_errors, not_found=own.not_found).kind
    return classify_class(error, one.book, unknown=own.unknown_errors, not_found=own.not_found).kind


def _name_of(error: ErrorKey) -> str:
    return error if isinstance(error, str) else error.__name__


def discarded_by_rules(one: AuditedConsumer) -> list[str]:
    """Return the errors that the app's rules discard without a letter, except Discard, which handlers raise."""
    signal = f"{Discard.__module__}.{Discard.__qualname__}"
    return [key for rule in one.own.rules for key in rule.keys if rule.kind == "discard" and key != signal]


@per_consumer
def nothing_is_dropped(one: AuditedConsumer) -> Finding:
    dropped = discarded_by_rules(one)
    if not dropped:
        return passed("No rule of the app discards records.")
    return failed(
        f"Records that fail with {', '.join(dropped)} are discarded without a letter.",
        "Set the kind of these rules to non-retryable; raise Discard to skip a single record.",
    )
