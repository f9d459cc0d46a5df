"""Looking at what errors mean in an app: rules of its own go before the built-in ones."""

from __future__ import annotations

from keepfast.audit.clause import Finding, Look, each, failed, overruled, passed
from keepfast.audit.decisions import BUSINESS_ERRORS, CHOSEN_BY_NAME, UNKNOWN_ERRORS
from keepfast.audit.subject import Asked
from keepfast.classify.classification import classify_class, classify_key
from keepfast.core.errors import DecodeError, Discard

Known = type[BaseException] | str


def retried(*errors: Known) -> Look:
    """All of these are tried again."""
    return each(lambda one: _all_are(one, "retryable", errors))


def final(*errors: Known) -> Look:
    """None of these is tried again, and all of them end in a letter."""
    return each(lambda one: _all_are(one, "non-retryable", errors))


def _all_are(one: Asked, kind: str, errors: tuple[Known, ...]) -> Finding:
    wrong = {_named(error): found for error in errors if (found := _kind(one, error)) != kind}
    if not wrong:
        return passed(f"{', '.join(map(_named, errors))}: {kind}.")
    if set(wrong.values()) == {"retryable"} and one.own.retry.max_retries is None:
        return overruled(
            CHOSEN_BY_NAME, "Tried for ever until somebody mends it, as the loop article advises, by name."
        )
    said = ", ".join(f"{name} is {found}" for name, found in wrong.items())
    return failed(f"By the app's own rules {said}.", f"Remove the rule, or give it the kind {kind}.")


def _kind(one: Asked, error: Known) -> str:
    own = one.own
    if isinstance(error, str):
        return classify_key(error, one.book, unknown=own.unknown_errors, not_found=own.not_found).kind
    return classify_class(error, one.book, unknown=own.unknown_errors, not_found=own.not_found).kind


def _named(error: Known) -> str:
    return error if isinstance(error, str) else error.__name__


@each
def not_found(one: Asked) -> Finding:
    kind = _kind(one, "http:404")
    if kind in {"retryable", "non-retryable"}:
        return passed(f"http:404 is {kind}, by the setting consumer.not_found or a rule.")
    return failed(f"http:404 is {kind}.", "Decide by not_found=…: `final`, or `retry` for what may still come.")


@each
def business_errors(one: Asked) -> Finding:
    kind = _kind(one, "sqlstate:23505")
    if kind == "retryable":
        return overruled(BUSINESS_ERRORS, "The app retries business errors by a rule of its own.")
    return _all_are(one, "non-retryable", ("sqlstate:23505",))


@each
def decode_errors(one: Asked) -> Finding:
    if _kind(one, DecodeError) == "discard":
        return overruled(CHOSEN_BY_NAME, "What cannot be decoded is dropped and logged, as the loop article has it.")
    return _all_are(one, "non-retryable", (DecodeError,))


@each
def unknown_errors(one: Asked) -> Finding:
    """The fraud service buries them at once."""
    if one.own.unknown_errors == "dead-letter":
        return passed("unknown_errors is dead-letter.")
    return overruled(
        UNKNOWN_ERRORS, "Unknown errors are retried, then buried; unknown_errors=dead-letter buries them at once."
    )


@each
def nothing_is_dropped(one: Asked) -> Finding:
    """Errors that the app's rules discard leave no letter."""
    own = {key: rule.kind for rule in one.own.rules for key in rule.keys}
    dropped = [key for key, kind in own.items() if kind == "discard"]
    decoding, own_word = (f"{cls.__module__}.{cls.__qualname__}" for cls in (DecodeError, Discard))
    dropped = [key for key in dropped if key != own_word]  # a handler's own word is no error
    others = [key for key in dropped if key != decoding]
    if others:
        return failed(
            f"Records that fail with {', '.join(others)} are dropped without a letter.",
            "Give these rules the kind non-retryable; raise Discard where a single record is not wanted.",
        )
    if dropped:
        return overruled(CHOSEN_BY_NAME, "What cannot be decoded is dropped and logged, as the loop article has it.")
    return passed("No rule of the app drops records.")
