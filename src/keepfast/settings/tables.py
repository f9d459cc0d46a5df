"""Kinds of values with entries of their own: rules and retry policies by exception, and patterns.

In keepfast.toml and code they are tables, `"http:409" = "retryable"`; in a variable the entries are separated by
semicolons or lines, `http:409=retryable; mylib.errors.Busy=retryable outage`. What several sources say holds together:
the nearer one is asked first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from keepfast.classify.rules import Rule, normal_key, parse_rule
from keepfast.classify.rules.rule import name_of
from keepfast.core import checks
from keepfast.core.errors import ConfigError
from keepfast.core.policies import RetryPolicy
from keepfast.settings.kinds import InvalidValue

_RETRY_SETTINGS: Final = {"profile", *(part.name for part in fields(RetryPolicy))}
Entry = tuple[object, object]
RetryEntry = tuple[str, "RetryPolicy | str | Mapping[str, object]"]
"""A key, and a policy, the name of a profile, or some settings of a policy."""


class InvalidTable(InvalidValue):
    """Some entries do not fit; each problem is a sentence of its own."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(" ".join(problems))


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules: a table of texts, and in code also a list of `Rule`."""

    expects: str = 'a table such as {"http:409" = "retryable"}'

    def parse(self, text: str) -> object:
        return _each(_entries(text), self._rule)

    def check(self, value: object) -> object:
        if isinstance(value, Rule):
            return (value,)
        if isinstance(value, list | tuple):
            return _each([(one, one) for one in value], self._rule)
        if not isinstance(value, Mapping):
            raise InvalidValue(f"must be {self.expects}; got something of type {type(value).__name__}")
        return _each(_leaves(value, lambda inner: not isinstance(inner, Mapping) or not inner), self._rule)

    def _rule(self, key: object, value: object) -> Rule:
        if isinstance(value, Rule):
            return value
        if key is value:
            raise ConfigError(f"a list of rules is made of Rule(…); got {checks.shown(value)}.")
        return parse_rule(_named(key), value)


@dataclass(frozen=True, slots=True)
class Retries:
    """Retry policies by exception: a profile's name, a table of retry settings, in code also a RetryPolicy."""

    expects: str = 'a table such as {"http:429" = "financial"}'

    def parse(self, text: str) -> object:
        return _each(_entries(text), self._entry)

    def check(self, value: object) -> object:
        if isinstance(value, list | tuple) and not value:
            return ()
        if not isinstance(value, Mapping):
            raise InvalidValue(f"must be {self.expects}; got something of type {type(value).__name__}")
        return _each(_leaves(value, _is_policy), self._entry)

    def _entry(self, key: object, value: object) -> RetryEntry:
        own = normal_key(_named(key))
        if isinstance(value, RetryPolicy | str):
            return own, value
        if isinstance(value, Mapping):
            return own, dict(value)
        raise ConfigError(
            f"the retry policy for {checks.shown(_named(key))} must be the name of a profile, or a table of retry"
            f" settings; got {checks.shown(value)}."
        )


@dataclass(frozen=True, slots=True)
class Patterns:
    """Regular expressions: a list, in a variable one a line. They may tell what is secret, so none is repeated."""

    expects: str = "a list of regular expressions"

    def parse(self, text: str) -> object:
        return self.check([line.strip() for line in text.splitlines() if line.strip()])

    def check(self, value: object) -> object:
        several = (value,) if isinstance(value, str) else value
        if not isinstance(several, list | tuple) or not all(isinstance(one, str) and one for one in several):
            raise InvalidValue(f"must be {self.expects}; got something else")
        problems = []
        for number, one in enumerate(several, start=1):
            try:
                if re.compile(one).match(""):
                    problems.append(f"pattern number {number} matches the empty text; let it match something.")
            except re.error as error:
                problems.append(f"pattern number {number} is no regular expression: {error}.")
        if problems:
            raise InvalidTable(problems)
        return tuple(several)


def _is_policy(value: object) -> bool:
    """Not one more step of a dotted name, which TOML makes a table of."""
    return not isinstance(value, Mapping) or not value or not _RETRY_SETTINGS.isdisjoint(value)


def _entries(text: str) -> list[Entry]:
    found: list[Entry] = []
    problems = []
    for part in re.split(r"[;\n]", text):
        key, equals, value = part.partition("=")
        if not part.strip():
            continue
        if not equals:
            problems.append(f"{checks.shown(part.strip())} is no entry; write them as http:409=retryable; …")
        found.append((key.strip(), value.strip()))
    if problems:
        raise InvalidTable(problems)
    return found


def _leaves(tree: Mapping[Any, object], is_leaf: Callable[[object], bool], prefix: str = "") -> list[Entry]:
    """`mylib.errors.Busy = …` without quotes is a table in a table in TOML."""
    found: list[Entry] = []
    for name, value in tree.items():
        path: object = f"{prefix}{name}" if isinstance(name, str) else name
        if is_leaf(value) or not isinstance(value, Mapping):
            found.append((path, value))
        else:
            found.extend(_leaves(value, is_leaf, f"{path}."))
    return found


def _each(entries: list[Entry], make: Callable[[object, object], Any]) -> tuple[Any, ...]:
    made: list[Any] = []
    problems: list[str] = []
    for key, value in entries:
        try:
            made.append(make(key, value))
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise InvalidTable(problems)
    return tuple(made)


def _named(key: object) -> str:
    return name_of(key) if isinstance(key, type) else str(key)
