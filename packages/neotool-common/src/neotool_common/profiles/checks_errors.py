"""Checks of the classification of errors, where the documents contradict each other."""

from __future__ import annotations

from keepfast.audit.checks_errors import ErrorKey, are_of_kind, discarded_by_rules, kind_of
from keepfast.audit.rule import Check, Finding, failed, overruled, passed, per_consumer, trial
from keepfast.audit.subject import AuditedConsumer
from keepfast.core.errors import DecodeError
from neotool_common.profiles.decisions import BUSINESS_ERRORS, CHOSEN_BY_NAME, UNKNOWN_ERRORS


def final(*errors: ErrorKey) -> Check:
    """Return a check that these errors are dead-lettered without a retry, unless the app retries without limit."""
    return trial(lambda one: _final(one, errors))


def _final(one: AuditedConsumer, errors: tuple[ErrorKey, ...]) -> Finding:
    finding = are_of_kind(one, "non-retryable", errors)
    if finding.status != "failed" or one.own.retry.max_retries is not None:
        return finding
    if {kind_of(one, error) for error in errors} <= {"retryable", "non-retryable"}:
        return overruled(CHOSEN_BY_NAME, "Retried without limit, chosen explicitly, as the loop article advises.")
    return finding


@trial
def not_found(one: AuditedConsumer) -> Finding:
    kind = kind_of(one, "http:404")
    if kind in {"retryable", "non-retryable"}:
        return passed(f"http:404 is {kind}, by the setting consumer.not_found or a rule.")
    return failed(f"http:404 is {kind}.", "Set not_found=…: `final`, or `retry` if the resource may still appear.")


@trial
def business_errors(one: AuditedConsumer) -> Finding:
    if kind_of(one, "sqlstate:23505") == "retryable":
        return overruled(BUSINESS_ERRORS, "The app retries business errors by its own rule.")
    return _final(one, ("sqlstate:23505",))


@trial
def decode_errors(one: AuditedConsumer) -> Finding:
    if kind_of(one, DecodeError) == "discard":
        return overruled(CHOSEN_BY_NAME, "Undecodable records are discarded and logged, as in the loop article.")
    return _final(one, (DecodeError,))


@per_consumer
def unknown_errors(one: AuditedConsumer) -> Finding:
    """Check for the fraud service's rule, which dead-letters unknown errors at once."""
    if one.own.unknown_errors == "dead-letter":
        return passed("unknown_errors is dead-letter.")
    return overruled(
        UNKNOWN_ERRORS, "Unknown errors are retried, then dead-lettered; unknown_errors=dead-letter skips the retries."
    )


@per_consumer
def nothing_is_dropped(one: AuditedConsumer) -> Finding:
    """Check that the app's rules discard no error without a letter, except that of decoding."""
    decoding = f"{DecodeError.__module__}.{DecodeError.__qualname__}"
    dropped = discarded_by_rules(one)
    others = [key for key in dropped if key != decoding]
    if others:
        return failed(
            f"Records that fail with {', '.join(others)} are discarded without a letter.",
            "Set the kind of these rules to non-retryable; raise Discard to skip a single record.",
        )
    if dropped:
        return overruled(CHOSEN_BY_NAME, "Undecodable records are discarded and logged, as in the loop article.")
    return passed("No rule of the app discards records.")
