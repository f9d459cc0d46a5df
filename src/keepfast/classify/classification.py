"""Classifies an exception by rules: its record is retried, dead-lettered or discarded, or the app halts.

How a rule is found: the classes of the exception are walked from the most derived to `BaseException`. Before the first
class of a known library, the error is *read* (its HTTP status, SQLSTATE, …, and the error that it wraps), and the keys
that were read are looked up before the library's classes. A user's own subclass therefore takes precedence over what is
read, and what is read over the general class. All rules of the user take precedence over the built-in ones.

If no rule matches: a group is classified like its worst member; otherwise the cause (`raise … from …`) decides, and so
on along the chain; otherwise the error is unknown and the setting decides. The context of an error (raised *during*
another) is ignored: it may be unrelated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from keepfast.classify.rules.error_keys import is_error
from keepfast.classify.rules.rule import Rule, normal_key, parse_rule
from keepfast.classify.rules.rule_book import (
    UNKNOWN_RULE,
    Lookup,
    NotFound,
    RuleBook,
    Unknown,
    unknown_error,
)
from keepfast.classify.rules.table import RULES
from keepfast.core.errors import HandlerTimeout
from keepfast.core.verdicts import Classification, Kind

__all__ = [
    "BUILT_IN",
    "RULES",
    "UNKNOWN_RULE",
    "Classification",
    "Kind",
    "NotFound",
    "Rule",
    "RuleBook",
    "Unknown",
    "classify",
    "classify_class",
    "classify_key",
    "is_retryable_error",
    "parse_rule",
]

BUILT_IN: Final = RuleBook()


def classify(
    error: BaseException,
    rules: RuleBook = BUILT_IN,
    *,
    unknown: Unknown = "retry",
    not_found: NotFound = "final",
    now_wall: float | None = None,
) -> Classification:
    """Classify the error. Never raises, whatever the error is or does.

    `unknown` decides about errors without a rule, `not_found` about HTTP 404 and the like. `now_wall` (seconds of the
    wall clock) is needed for Retry-After headers with a date; without it they are ignored.
    """
    lookup = Lookup(unknown, not_found, now_wall)
    if type(error) is HandlerTimeout:
        return _timed_out(error, lookup)
    try:
        return rules.classify(error, lookup) or unknown_error(lookup)
    except BaseException:  # noqa: BLE001 - an unreadable error is unknown; signals arrive in another thread
        return unknown_error(lookup)


def _timed_out(error: HandlerTimeout, lookup: Lookup) -> Classification:
    """An outage. Final by the standard, even if a user's rule matches its bases, unless `on_timeout` is "retry"."""
    found = BUILT_IN.classify(error, lookup) or unknown_error(lookup)
    return replace(found, kind="retryable" if error.retry else found.kind, outage=True)


def classify_key(
    key: str, rules: RuleBook = BUILT_IN, *, unknown: Unknown = "retry", not_found: NotFound = "final"
) -> Classification:
    """Classify an error by its key only: `http:503`, `sqlstate:40P01` or `module.Class`.

    Raises ConfigError if the text is not a key.
    """
    lookup = Lookup(unknown, not_found, None)
    return rules.of_key(normal_key(key), lookup) or unknown_error(lookup)


def classify_class(
    cls: type[BaseException], rules: RuleBook = BUILT_IN, *, unknown: Unknown = "retry", not_found: NotFound = "final"
) -> Classification:
    """Classify an error by its class only, without reading an instance (see `RuleBook.schemes`)."""
    lookup = Lookup(unknown, not_found, None)
    return rules.of_class(cls, lookup) or unknown_error(lookup)


def is_retryable_error(error: object) -> bool:
    """Whether the built-in rules retry this error. True for unknown errors and for what is not an exception."""
    return not is_error(error) or classify(error).kind == "retryable"
