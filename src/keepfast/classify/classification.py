"""What an exception means for its record: tried again, buried, dropped, or a stop. Decided by rules, never by raising.

How a rule is found. The classes of the exception are walked from the most derived to `BaseException`. Before the first
class of a library whose errors are known, the error is *read* (its HTTP status, SQLSTATE, …, and the error that it
wraps), and what was read is looked up before the library's classes are. A user's own subclass therefore goes before
what is read, and what is read before the general class. Rules of the user are all asked before any built-in one.

If nothing is found: a group is what its worst member is; else the cause (`raise … from …`) decides, and so on along the
chain; else the error is unknown and the setting decides. The context of an error (raised *during* another) is not
asked: it may have nothing to do with it.
"""

from __future__ import annotations

from typing import Final

from keepfast.classify.rules.book import (
    UNKNOWN_RULE,
    Lookup,
    NotFound,
    RuleBook,
    Unknown,
    unknown_error,
)
from keepfast.classify.rules.rule import Rule, normal_key, parse_rule
from keepfast.classify.rules.seeking import is_error
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
    """Say what the error means. Never raises, whatever the error is or does.

    `unknown` decides about errors that no rule knows, `not_found` about HTTP 404 and its like. `now_wall`
    (seconds of the wall clock) is for Retry-After headers that name a date; without it they are not obeyed.
    """
    case = Lookup(unknown, not_found, now_wall)
    if type(error) is HandlerTimeout:
        rules = BUILT_IN  # final by the standard, whatever a rule of the user says about its bases
    try:
        return rules.classify(error, case) or unknown_error(case)
    except BaseException:  # noqa: BLE001 - an error that cannot be looked at is unknown; signals arrive in another thread
        return unknown_error(case)


def classify_key(
    key: str, rules: RuleBook = BUILT_IN, *, unknown: Unknown = "retry", not_found: NotFound = "final"
) -> Classification:
    """What becomes of an error that says `http:503`, `sqlstate:40P01` or is a `module.Class`, known by that name alone.

    Raises ConfigError if it is no key.
    """
    case = Lookup(unknown, not_found, None)
    return rules.of_key(normal_key(key), case) or unknown_error(case)


def classify_class(
    cls: type[BaseException], rules: RuleBook = BUILT_IN, *, unknown: Unknown = "retry", not_found: NotFound = "final"
) -> Classification:
    """What becomes of an error of this class that says nothing more about itself (see `RuleBook.asked`)."""
    case = Lookup(unknown, not_found, None)
    return rules.of_class(cls, case) or unknown_error(case)


def is_retryable_error(error: object) -> bool:
    """Whether it makes sense to try again, by the built-in rules. What is no exception, or unknown, does."""
    return not is_error(error) or classify(error).kind == "retryable"
