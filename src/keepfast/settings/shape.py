"""What a setting and a section of settings are, and how they are called in the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from keepfast.settings.kinds import Kind

PREFIX: Final = "KEEPFAST_"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `default` None: worked out when the settings are resolved; the doc says how."""

    name: str
    kind: Kind
    default: object
    doc: str
    aliases: tuple[str, ...] = ()
    """Further environment variables, best first, after `KEEPFAST_<SECTION>_<NAME>`."""
    one_consumer: bool = False
    """Belongs to one consumer: set for the whole app, it is an error if the app has several."""
    merged: bool = False
    """What all sources say holds, the nearest first, instead of the nearest alone."""
    code_only: bool = False
    """Says something about the code, so only the code can say it."""


@dataclass(frozen=True, slots=True)
class Section:
    """A table in keepfast.toml. `per_consumer`: may also be set for one consumer."""

    name: str
    doc: str
    settings: tuple[Setting, ...]
    per_consumer: bool = False
    policy: type | None = None
    """Code may give this object instead of a table."""
    shorthand: str | None = None
    """A plain text in place of the table means this setting: `retry = "financial"`."""
    switch: str | None = None
    """True or false in place of the table means this setting, and a policy in code switches it on: `breaker=True`."""

    def find(self, name: str) -> Setting | None:
        return next((setting for setting in self.settings if setting.name == name), None)


def variable(*path: str) -> str:
    """The environment variable of a path: `kafka`, `brokers` → KEEPFAST_KAFKA_BROKERS."""
    return PREFIX + "_".join(variable_part(part) for part in path)


def variable_part(name: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name).upper()
