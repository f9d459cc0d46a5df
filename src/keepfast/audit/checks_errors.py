"""Checks of the classification of errors in an app, whose own rules take precedence over the built-in ones."""

from __future__ import annotations

from keepfast.audit.clause import Check, Finding, failed, overruled, passed, per_consumer, trial
from keepfast.audit.decisions import BUSINESS_ERRORS, CHOSEN_BY_NAME, UNKNOWN_ERRORS
from keepfast.audit.subject import AuditedConsumer
from keepfast.classify.classification import classify_class, classify_key
from keepfast.core.errors import DecodeError, Discard

ErrorKey = type[BaseException] | str


def retried(*errors: ErrorKey) -> Check:
    """All of these are retried."""
    return trial(lambda one: _all_are(one, "retryable", errors))


def final(*errors: ErrorKey) -> Check:
    """None of these is retried, and all of them are dead-lettered."""
    return trial(lambda one: _all_are(one, "non-retryable", errors))


def _all_are(one: AuditedConsumer, kind: str, errors: tuple[ErrorKey, ...]) -> Finding:
    wrong = {_named(error): found for error in errors if (found := _kind(one, error)) != kind}
    if not wrong:
        return passed(f"{', '.join(map(_named, errors))}: {kind}.")
    if set(wrong.values()) == {"retryable"} and one.own.retry.max_retries is None:
        return overruled(CHOSEN_BY_NAME, "Retried without limit, chosen explicitly, as the loop article advises.")
    kinds = ", ".join(f"{name} is {found}" for name, found in wrong.items())
    return failed(f"By the app's own rules {kinds}.", f"Remove the rule, or set its kind to {kind}.")


def _kind(one: AuditedConsumer, error: ErrorKey) -> str:
    own = one.own
    if isinstance(error, str):
        return classify_key(error, one.book, unknown=own.unknown_errors, not_found=own.not_found).kind
    return classify_class(error, one.book, unknown=own.unknown_errors, not_found=own.not_found).kind


def _named(error: ErrorKey) -> str:
    return error if isinstance(error, str) else error.__name__


@trial
def not_found(one: AuditedConsumer) -> Finding:
    kind = _kind(one, "http:404")
    if kind in {"retryable", "non-retryable"}:
        return passed(f"http:404 is {kind}, by the setting consumer.not_found or a rule.")
    return failed(f"http:404 is {kind}.", "Set not_found=…: `final`, or `retry` if the resource may still appear.")


@trial
def business_errors(one: AuditedConsumer) -> Finding:
    kind = _kind(one, "sqlstate:23505")
    if kind == "retryable":
        return overruled(BUSINESS_ERRORS, "The app retries business errors by its own rule.")
    return _all_are(one, "non-retryable", ("sqlstate:23505",))


@trial
def decode_errors(one: AuditedConsumer) -> Finding:
    if _kind(one, DecodeError) == "discard":
        return overruled(CHOSEN_BY_NAME, "Undecodable records are discarded and logged, as in the loop article.")
    return _all_are(one, "non-retryable", (DecodeError,))


@per_consumer
def unknown_errors(one: AuditedConsumer) -> Finding:
    """The fraud service dead-letters them at once."""
    if one.own.unknown_errors == "dead-letter":
        return passed("unknown_errors is dead-letter.")
    return overruled(
        UNKNOWN_ERRORS, "Unknown errors are retried, then dead-lettered; unknown_errors=dead-letter skips the retries."
    )


@per_consumer
def nothing_is_dropped(one: AuditedConsumer) -> Finding:
    """No error is discarded without a letter by the app's rules."""
    own = {key: rule.kind for rule in one.own.rules for key in rule.keys}
    dropped = [key for key, kind in own.items() if kind == "discard"]
    decoding, signal = (f"{cls.__module__}.{cls.__qualname__}" for cls in (DecodeError, Discard))
    dropped = [key for key in dropped if key != signal]  # raised by a handler on purpose
    others = [key for key in dropped if key != decoding]
    if others:
        return failed(
            f"Records that fail with {', '.join(others)} are discarded without a letter.",
            "Set the kind of these rules to non-retryable; raise Discard to skip a single record.",
        )
    if dropped:
        return overruled(CHOSEN_BY_NAME, "Undecodable records are discarded and logged, as in the loop article.")
    return passed("No rule of the app discards records.")
