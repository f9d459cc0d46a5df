"""Patterns of topic names: which topics a consumer reads that names none of them, and which it must never read.

A pattern never matches what keepfast writes itself: a consumer of `.*` that read its own dead letters would
dead-letter them again, forever.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from keepfast.core.errors import ConfigError
from keepfast.core.names import LETTER_FIELDS, MAX_TOPIC_LENGTH

INTERNAL: Final = re.compile(
    r"__.*"  # Kafka's own
    r"|keepfast\.desk.*"
    r"|.*\.dlq|.*\.DLT|.*-dlt"  # dead letters of any program
    r"|.+\..+\.retry\.[0-9]+[smhd]"  # <topic>.<group>.retry.<delay>
    r"|.+\..+\.(?:replay|parked)",  # <topic>.<group>.replay
    re.ASCII,
)
"""Topics that no pattern matches, by their names alone."""

_SUFFIXES: Final = (".dlq", ".DLT", "-dlt")
_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
ENV: Final = "{env}"


@dataclass(frozen=True, slots=True)
class Pattern:
    """Topics by a regular expression of Python's `re` that the whole name must match: `Pattern(r"audit\\..*")`.

    Topics that match are looked up at the start and every `topics_refresh_s` (30 s). `{env}` is filled in. Never
    matched: topics of Kafka (`__…`), of the desk (`keepfast.desk…`), dead-letter topics (`….dlq`, `….DLT`, `…-dlt`, and
    those of the app), retry, replay and parking topics. Raises ConfigError for what is no regular expression, and for
    one that no topic can match.
    """

    regex: str

    def __post_init__(self) -> None:
        problem = pattern_problem(self.regex)
        if problem:
            raise ConfigError(f"Pattern {problem}.")


def pattern_problem(regex: object) -> str | None:
    """Why this cannot be a pattern of topics, as the end of a sentence; None if it can."""
    if not isinstance(regex, str) or not regex:
        return f"must be a regular expression as text; got {regex!r}"
    filled = with_env(regex, "env")
    try:
        re.compile(filled)
    except re.error as error:
        hint = "any text is .*, not *" if regex.startswith("*") else "write a backslash before what is meant literally"
        return f"{regex!r} is no regular expression of Python's re: {error}; {hint}"
    parser: Any = getattr(re, "_parser", None)  # the standard library has no public one
    if parser is None:
        return None
    items = list(parser.parse(filled))
    shortest, _ = parser.parse(filled).getwidth()
    if shortest > MAX_TOPIC_LENGTH or not _possible(items):
        return (
            f"{regex!r} matches no name that a topic can have; names are made of letters, digits, dots, underscores and"
            " hyphens"
        )
    start, end = _literal(items), _literal(items[::-1])[::-1]
    if start.startswith(("__", "keepfast.desk")) or end.endswith(_SUFFIXES):
        return f"{regex!r} matches only topics that patterns leave out; name such a topic itself: @app.consumer('…')"
    return None


def with_env(regex: str, env: str) -> str:
    """The expression with `{env}` filled in; other braces are those of a repetition."""
    return regex.replace(ENV, re.escape(env))


def _literal(items: Iterable[Any]) -> str:
    """The characters that every match begins with, in this order of the items."""
    found = ""
    for operator, argument in items:
        if str(operator) == "AT":
            continue
        if str(operator) != "LITERAL":
            break
        found += chr(argument)
    return found


def _possible(items: Iterable[Any]) -> bool:
    """Whether a topic's name can match; what is not understood may match."""
    return all(_item_possible(str(operator), argument) for operator, argument in items)


def _item_possible(operator: str, argument: Any) -> bool:
    match operator:
        case "LITERAL":
            return chr(argument) in _NAME
        case "IN":
            return _set_possible(argument)
        case "BRANCH":
            return any(_possible(branch) for branch in argument[1])
        case "SUBPATTERN":
            return _possible(argument[-1])
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return argument[0] == 0 or _possible(argument[2])
        case _:
            return True


def _set_possible(members: Iterable[Any]) -> bool:
    """Whether a set in brackets has a character of names."""
    for operator, argument in members:
        match str(operator):
            case "LITERAL" if chr(argument) not in _NAME:
                continue
            case "RANGE" if not any(argument[0] <= ord(one) <= argument[1] for one in _NAME):
                continue
            case "CATEGORY" if str(argument) == "CATEGORY_SPACE":
                continue
            case _:
                return True
    return False


def letter_pattern(template: str, *, env: str, group: str) -> re.Pattern[str]:
    """The names that a template of dead-letter topics can make, for whatever topic."""
    filled = re.escape(template)
    for field in LETTER_FIELDS:
        value = {"env": re.escape(env), "group": re.escape(group)}.get(field, ".+")
        filled = filled.replace(re.escape(f"{{{field}}}"), value)
    return re.compile(filled)


def matching(
    regex: str, existing: Iterable[str], written: Iterable[re.Pattern[str]], named: Iterable[str]
) -> list[str]:
    """The topics among these that a pattern stands for, in order of their names. `written`: the names of other topics
    that the app itself writes; `named`: those it writes or reads by name.
    """
    found, known, others = re.compile(regex), set(named), tuple(written)
    return sorted(
        name
        for name in existing
        if name not in known
        and found.fullmatch(name)
        and not INTERNAL.fullmatch(name)
        and not any(other.fullmatch(name) for other in others)
    )
