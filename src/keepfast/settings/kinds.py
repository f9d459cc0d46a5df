"""Kinds of values that only settings have: secrets, addresses, client properties, and tables by exception.

Tables are tables in keepfast.toml and code, `"http:409" = "retryable"`; in a variable their entries are separated by
semicolons or lines, `http:409=retryable; mylib.errors.Busy=retryable outage`. What several sources say about one is
joined: the nearer source is asked first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from keepfast.classify.rules import Rule, normal_key, parse_rule
from keepfast.classify.rules.rule import name_of
from keepfast.core import checks
from keepfast.core.errors import ConfigError
from keepfast.core.fields import InvalidValue
from keepfast.core.policies import RetryPolicy
from keepfast.settings.client_properties import CALLABLES, property_problem

_RETRY_SETTINGS: Final = {"profile", *(part.name for part in fields(RetryPolicy))}
Entry = tuple[object, object]
RetryEntry = tuple[str, "RetryPolicy | str | Mapping[str, object]"]
"""A key, and a policy, the name of a profile, or some settings of a policy."""


class Secret:
    """A password. Only `reveal()` gives it out; repr, str and format show three stars, and it cannot be pickled."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other.reveal()

    def __hash__(self) -> int:
        return hash(("secret", self._value))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a secret is not serialised; read the settings again in the other process")


@dataclass(frozen=True, slots=True)
class Hidden:
    """A secret: kept as it is, spaces included, and never repeated in a message."""

    expects: str = "a text (kept secret)"

    def parse(self, text: str) -> object:
        return Secret(text)

    def check(self, value: object) -> object:
        if isinstance(value, Secret):
            return value
        if not isinstance(value, str) or not value:
            raise InvalidValue(f"must be {self.expects}; got something of type {type(value).__name__} (not shown)")
        return Secret(value)


@dataclass(frozen=True, slots=True)
class HiddenUrl:
    """A URL that may hold a password: kept secret, so a wrong one is described and not repeated."""

    expects: str = "a URL like file:///var/spool/app, postgresql://host/db or s3://bucket/folder (kept secret)"

    def parse(self, text: str) -> object:
        return self.check(text.strip())

    def check(self, value: object) -> object:
        text = value.reveal() if isinstance(value, Secret) else value
        if not isinstance(text, str) or not text.isprintable():
            raise InvalidValue(f"must be {self.expects}; got something of type {type(value).__name__}")
        scheme, found, rest = text.partition("://")
        if not found or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
            raise InvalidValue(f"must be {self.expects}; it does not start with a scheme such as file://")
        if scheme == "file" and not rest.startswith("/"):
            raise InvalidValue("must name an absolute folder after file://, such as file:///var/spool/app")
        if not rest and scheme != "memory":
            raise InvalidValue(f"must be {self.expects}; nothing follows {scheme}://")
        return Secret(text)


_HOST = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?\.?|\[[0-9a-fA-F:.]+\]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Brokers:
    """Addresses, `host:port`. A wrong one is named by its number, not shown: people paste URLs with passwords here."""

    expects: str = "addresses like kafka-1:9092,kafka-2:9092"

    def parse(self, text: str) -> object:
        return self.check(text)

    def check(self, value: object) -> object:
        several = value.split(",") if isinstance(value, str) else value
        if not isinstance(several, list | tuple) or not all(isinstance(address, str) for address in several):
            raise InvalidValue(f"must be {self.expects}; got something of type {type(value).__name__}")
        addresses = [address.strip() for address in several if address.strip()]
        if not addresses:
            raise InvalidValue(f"must be {self.expects}; got none")
        for number, address in enumerate(addresses, start=1):
            if "://" in address:
                raise InvalidValue(f"must be {self.expects}; number {number} is a URL: leave out what is before ://")
            if not _is_address(address):
                raise InvalidValue(f"must be {self.expects}; number {number} is not host:port")
        return tuple(dict.fromkeys(addresses))


def _is_address(address: str) -> bool:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):  # no port: the client takes 9092
        host, port = address, "9092"
    return bool(_HOST.fullmatch(host)) and bool(re.fullmatch(r"[0-9]{1,5}", port)) and 0 < int(port) < 65536


@dataclass(frozen=True, slots=True)
class ClientProperties:
    """Properties of librdkafka by their own names. Messages never repeat a value: some are secrets."""

    expects: str = "a table of client properties"

    def parse(self, text: str) -> object:  # noqa: ARG002 - as every kind
        raise InvalidValue(f"must be {self.expects}; give one variable per property")

    def check(self, value: object) -> object:
        if not isinstance(value, Mapping):
            raise InvalidValue(f"must be {self.expects}; got something of type {type(value).__name__}")
        return {name: self.one(name, item) for name, item in flat(value)}

    def one(self, name: str, value: object) -> object:
        """Check one property; the client takes text, so booleans and numbers become text. Raises InvalidValue."""
        problem = property_problem(name)
        if problem:
            raise InvalidValue(problem)
        if name in CALLABLES:
            if callable(value):
                return value
            raise InvalidValue("must be a function, so only code can give it")
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str | int | float):
            return str(value)
        raise InvalidValue(f"must be a text, a number or a boolean; got something of type {type(value).__name__}")


def flat(tree: Mapping[Any, object], prefix: str = "") -> list[tuple[str, object]]:
    """`a.b = 1` in TOML is a table in a table; the client calls that one property `a.b`."""
    found: list[tuple[str, object]] = []
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            found.extend(flat(value, f"{path}."))
        else:
            found.append((path, value))
    return found


class InvalidTable(InvalidValue):
    """Some entries are not accepted; each problem is a sentence of its own."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(" ".join(problems))


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules: a table of texts, and in code also a list of `Rule`."""

    in_code: ClassVar[str] = "Sequence[Rule] | Mapping[ErrorKey, str]"
    """The type of the option in code, which is not that of the field."""
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
        return parse_rule(_name(key), value)


@dataclass(frozen=True, slots=True)
class Retries:
    """Retry policies by exception: a profile's name, a table of retry settings, in code also a RetryPolicy."""

    in_code: ClassVar[str] = "Mapping[ErrorKey, RetryPolicy | str]"
    """The type of the option in code, which is not that of the field."""
    expects: str = 'a table such as {"http:429" = "financial"}'

    def parse(self, text: str) -> object:
        return _each(_entries(text), self._entry)

    def check(self, value: object) -> object:
        if isinstance(value, list | tuple) and all(isinstance(one, tuple) and len(one) == 2 for one in value):
            return _each(list(value), self._entry)
        if isinstance(value, int):
            raise InvalidValue(
                f"must be {self.expects}, for single errors; got {value}. How often records are retried:"
                f" retry=RetryPolicy(max_retries={max(0, int(value))}) in code, max_retries in the section retry"
            )
        if not isinstance(value, Mapping):
            raise InvalidValue(f"must be {self.expects}; got something of type {type(value).__name__}")
        return _each(_leaves(value, _is_policy), self._entry)

    def _entry(self, key: object, value: object) -> RetryEntry:
        own = normal_key(_name(key))
        if isinstance(value, RetryPolicy | str):
            return own, value
        if isinstance(value, Mapping):
            return own, dict(value)
        raise ConfigError(
            f"the retry policy for {checks.shown(_name(key))} must be the name of a profile, or a table of retry"
            f" settings; got {checks.shown(value)}."
        )


@dataclass(frozen=True, slots=True)
class Patterns:
    """Regular expressions: a list, in a variable one a line. They may show what is secret, so none is repeated."""

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


def _name(key: object) -> str:
    return name_of(key) if isinstance(key, type) else str(key)
