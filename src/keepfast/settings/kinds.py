"""Kinds of values: how each is read from text, and how it is checked when it comes with a type (keepfast.toml, code).

Both raise Unfit; its text is the end of a sentence that begins with the setting's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from keepfast.core import checks
from keepfast.core.retry_topics import EXPECTED, delay_s, delay_text
from keepfast.settings.secret import Secret


class InvalidValue(ValueError):
    """The value does not fit; the message says what would, and never repeats a secret."""


class Kind(Protocol):
    """What a setting takes."""

    @property
    def expects(self) -> str:
        """For messages and for the docs: `a whole number from 1 to 65,535`."""

    def parse(self, text: str) -> object:
        """From an environment variable; never called with blank text. Raises Unfit."""

    def check(self, value: object) -> object:
        """From keepfast.toml or code. Raises Unfit."""


def takes_none(kind: Kind) -> bool:
    """None is a value of its own here (`for ever`), not `left out`."""
    return isinstance(kind, Whole | Number) and kind.none_word is not None


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number. `none_word`, where there is one, is written for None."""

    low: int
    high: int | None = None
    none_word: str | None = None

    @property
    def expects(self) -> str:
        return _or_word(checks.range_of("a whole number", self.low, self.high), self.none_word)

    def parse(self, text: str) -> object:
        plain = text.strip().lower()
        if self.none_word is not None and plain == self.none_word:
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,30}", plain):
            raise InvalidValue(f"must be {self.expects}; got {checks.shown(text)}")
        return self.check(int(plain))

    def check(self, value: object) -> object:
        if self.none_word is not None and (value is None or value == self.none_word):
            return None
        if checks.whole(value, self.low, self.high):
            raise InvalidValue(f"must be {self.expects}; got {checks.shown(value)}")
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number; `above` leaves the lower bound itself out."""

    low: float
    high: float | None = None
    above: bool = False
    none_word: str | None = None

    @property
    def expects(self) -> str:
        return _or_word(checks.range_of("a number", self.low, self.high, above=self.above), self.none_word)

    def parse(self, text: str) -> object:
        plain = text.strip().lower()
        if self.none_word is not None and plain == self.none_word:
            return None
        if not re.fullmatch(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})(e[+-]?[0-9]{1,3})?", plain):
            raise InvalidValue(f"must be {self.expects}; got {checks.shown(text)}")
        return self.check(float(plain))

    def check(self, value: object) -> object:
        if self.none_word is not None and (value is None or value == self.none_word):
            return None
        if checks.number(value, self.low, self.high, above=self.above):
            raise InvalidValue(f"must be {self.expects}; got {checks.shown(value)}")
        return value


def _or_word(expects: str, word: str | None) -> str:
    return expects if word is None else f'{expects}, or "{word}"'


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false, with the words people write in the environment."""

    expects: str = "true or false"

    def parse(self, text: str) -> object:
        match text.strip().lower():
            case "true" | "1" | "yes" | "on":
                return True
            case "false" | "0" | "no" | "off":
                return False
            case _:
                raise InvalidValue(f"must be {self.expects}; got {checks.shown(text)}")

    def check(self, value: object) -> object:
        if not isinstance(value, bool):
            raise InvalidValue(f"must be {self.expects}; got {checks.shown(value)}")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words; upper and lower case are the same."""

    options: tuple[str, ...]

    @property
    def expects(self) -> str:
        return f"one of {', '.join(self.options)}"

    def parse(self, text: str) -> object:
        return self.check(text.strip())

    def check(self, value: object) -> object:
        if isinstance(value, str):
            for option in self.options:
                if option.lower() == value.lower():
                    return option
        raise InvalidValue(f"must be {self.expects}; got {checks.shown(value)}")


@dataclass(frozen=True, slots=True)
class Text:
    """Any text that is not empty and has no control characters; `rule` may say more about it."""

    expects: str = "a text"
    rule: Callable[[str], str | None] | None = None

    def parse(self, text: str) -> object:
        return self.check(text.strip())

    def check(self, value: object) -> object:
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise InvalidValue(f"must be {self.expects}; got {checks.shown(value)}")
        problem = self.rule(value) if self.rule else None
        if problem:
            raise InvalidValue(problem)
        return value


@dataclass(frozen=True, slots=True)
class NameList:
    """One or several names: separated by commas in text, a list in keepfast.toml and code."""

    expects: str = "a name, or several"
    or_none: bool = False

    def parse(self, text: str) -> object:
        return self.check([part.strip() for part in text.split(",") if part.strip()])

    def check(self, value: object) -> object:
        several = (value,) if isinstance(value, str) else value
        if not isinstance(several, list | tuple) or not (several or self.or_none):
            raise InvalidValue(f"must be {self.expects}; got {checks.shown(value)}")
        for name in several:
            if not isinstance(name, str) or not name.strip() or not name.isprintable():
                raise InvalidValue(f"must be {self.expects}; got {checks.shown(name)} among them")
        return tuple(dict.fromkeys(several))


@dataclass(frozen=True, slots=True)
class Delays:
    """Delays like `5s, 1m, 10m`, in text or as a list; `off` for none at all."""

    expects: str = f'{EXPECTED}, or "off"'

    def parse(self, text: str) -> object:
        return self.check(text)

    def check(self, value: object) -> object:
        if isinstance(value, str):
            value = [] if value.strip().lower() == "off" else [part.strip() for part in value.split(",")]
        if not isinstance(value, list | tuple):
            raise InvalidValue(f"must be {self.expects}; got {checks.shown(value)}")
        found = []
        for part in value:
            seconds = delay_s(part)
            if seconds is None:
                raise InvalidValue(f"must be {self.expects}; got {checks.shown(part)}")
            found.append(delay_text(seconds))
        return tuple(found)


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
class SettingPlace:
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
            raise InvalidValue(f"must be {self.expects}; it does not begin with a scheme such as file://")
        if scheme == "file" and not rest.startswith("/"):
            raise InvalidValue("must name an absolute folder after file://, such as file:///var/spool/app")
        if not rest and scheme != "memory":
            raise InvalidValue(f"must be {self.expects}; nothing follows {scheme}://")
        return Secret(text)


_HOST = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?\.?|\[[0-9a-fA-F:.]+\]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Brokers:
    """Addresses, `host:port`. A wrong one is named by its place, not shown: people paste URLs with passwords here."""

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
        for place, address in enumerate(addresses, start=1):
            if "://" in address:
                raise InvalidValue(f"must be {self.expects}; number {place} is a URL: leave out what stands before ://")
            if not _is_address(address):
                raise InvalidValue(f"must be {self.expects}; number {place} is not host:port")
        return tuple(dict.fromkeys(addresses))


def _is_address(address: str) -> bool:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):  # no port: the client takes 9092
        host, port = address, "9092"
    return bool(_HOST.fullmatch(host)) and bool(re.fullmatch(r"[0-9]{1,5}", port)) and 0 < int(port) < 65536


@dataclass(frozen=True, slots=True)
class Table:
    """Client properties, name → value; `rule` refuses names. Messages never repeat a value: some are secrets."""

    rule: Callable[[str], str | None]
    callables: frozenset[str] = frozenset()
    expects: str = "a table of client properties"

    def parse(self, text: str) -> object:  # noqa: ARG002 - as every kind
        raise InvalidValue(f"must be {self.expects}; give one variable per property")

    def check(self, value: object) -> object:
        if not isinstance(value, Mapping):
            raise InvalidValue(f"must be {self.expects}; got something of type {type(value).__name__}")
        return {name: self.one(name, item) for name, item in flat(value)}

    def one(self, name: str, value: object) -> object:
        """Check one property; what the client takes is text, so booleans and numbers become that."""
        problem = self.rule(name)
        if problem:
            raise InvalidValue(problem)
        if name in self.callables:
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
