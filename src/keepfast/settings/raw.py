"""What the sources say, checked value by value, with where each came from. Lives only while settings are loaded."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum
from typing import Literal, NamedTuple

from keepfast.settings.app_wide import LIBRDKAFKA
from keepfast.settings.kinds import InvalidValue, takes_none
from keepfast.settings.shape import PREFIX, Section, Setting
from keepfast.settings.tables import InvalidTable


class SettingSource(IntEnum):
    """Highest first. What is handed over is a thing that is made already, such as a client: nobody can outvote it."""

    HANDED_OVER = 0
    ENVIRONMENT = 1
    DOTENV = 2
    FILE = 3
    CODE = 4


class Scope(NamedTuple):
    """What a value is for: the whole app, one consumer, or a retry profile."""

    kind: Literal["app", "consumer", "profile"]
    name: str = ""


APP = Scope("app")


class Sourced(NamedTuple):
    """A checked value and where it came from."""

    value: object
    origin: str


class SourcePosition(NamedTuple):
    """How near a value is to the running process: by source first, then one consumer before the whole app."""

    source: SettingSource
    scope: Scope


class RawSettings:
    """All values and all problems of one load. One owner: the function that loads."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self._values: dict[SourcePosition, dict[str, Sourced]] = {}
        self._refused: set[str] = set()

    def take(self, position: SourcePosition, section: Section, setting: Setting, raw: object, origin: str) -> None:
        """Check a value and keep it, or note what is wrong with it. Variables are text, all else has a type."""
        key = f"{section.name}.{setting.name}"
        textual = position.source in {SettingSource.ENVIRONMENT, SettingSource.DOTENV}
        if textual and not str(raw).strip():
            return  # `NAME=` is how compose files pass on what is not set
        if raw is None and not takes_none(setting.kind):
            return  # an option that was left out
        if setting.code_only and position.source not in {SettingSource.CODE, SettingSource.HANDED_OVER}:
            self._refuse(key, f"{origin}: only the code can say {setting.name}; remove it here.")
            return
        try:
            value = setting.kind.parse(str(raw)) if textual else setting.kind.check(raw)
        except InvalidTable as unfit:
            self._refuse(key, *(f"{origin}: {problem}" for problem in unfit.problems))
            return
        except InvalidValue as unfit:
            self._refuse(key, f"{origin}: {unfit}. {_remedy(setting)}")
            return
        self._keep(position, key, value, origin)

    def take_property(self, position: SourcePosition, name: str, raw: object, origin: str) -> None:
        """The same for one property of the client."""
        if raw is None or (isinstance(raw, str) and not raw.strip()):
            return
        try:
            value = LIBRDKAFKA.one(name, raw)
        except InvalidValue as unfit:
            self.problems.append(f"{origin}: the client property {name} {unfit}.")
            return
        self._keep(position, f"kafka.librdkafka.{name}", value, origin)

    def find(self, positions: Iterable[SourcePosition], key: str) -> tuple[SourcePosition, Sourced] | None:
        """The value at the first of these positions that has one."""
        for position in positions:
            given = self._values.get(position, {}).get(key)
            if given is not None:
                return position, given
        return None

    def find_all(self, positions: Iterable[SourcePosition], key: str) -> list[Sourced]:
        """The values at all of these positions that have one, in their order."""
        found = (self._values.get(position, {}).get(key) for position in positions)
        return [given for given in found if given is not None]

    def under(self, prefix: str) -> dict[str, Sourced]:
        """The app's values whose key begins so, the nearest each, with the prefix cut off."""
        found: dict[str, Sourced] = {}
        for source in SettingSource:
            for key, given in self._values.get(SourcePosition(source, APP), {}).items():
                if key.startswith(prefix):
                    found.setdefault(key.removeprefix(prefix), given)
        return found

    def profiles(self) -> set[str]:
        return {position.scope.name for position in self._values if position.scope.kind == "profile"}

    def refused(self, key: str) -> bool:
        """A value was given and is wrong, which is said already: nothing must be concluded from its absence."""
        return key in self._refused

    def unknown(
        self, origin: str, what: str, wrong: str, known: Iterable[str], *, sure: str = "", else_: str = ""
    ) -> None:
        """Note a name that does not exist, with advice: what is `sure`, the nearest known name, or `else_`."""
        # Variables share their beginnings, so for them only a slip of the pen is near.
        cutoff = 0.85 if wrong.startswith(PREFIX) else 0.6
        near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=cutoff)
        advice = sure or (f"Did you mean {near[0]}?" if near else else_ or "Remove it, or look it up in the reference.")
        self.problems.append(f"{origin}: there is no {what} of this name. {advice}")

    def _keep(self, position: SourcePosition, key: str, value: object, origin: str) -> None:
        self._values.setdefault(position, {})[key] = Sourced(value, origin)

    def _refuse(self, key: str, *problems: str) -> None:
        self._refused.add(key)
        self.problems.extend(problems)


def _remedy(setting: Setting) -> str:
    if setting.default is None:
        return "Put it right or remove it."
    return f"Put it right or remove it; the default is {_written(setting.default)}."


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
