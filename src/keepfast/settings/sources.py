"""Reads the sources: variables (the environment, `.env`) and trees (keepfast.toml, what the code gave).

What they say is checked value by value and kept, with where it came from, as `RawSettings`; the resolver decides
between them. Trees of both sources have the same shape:

    kafka:     {brokers: …}              a section of the app
    retry:     {max_retries: …,          for all consumers
                profiles: {slow: {…}}}   named sets of retry settings
    consumers: {charge: {order: …,       a consumer's own settings, the section `consumer` may be left out
                         retry: {…}}}    a section for this consumer alone

A section may also be a text, its main setting (`retry = "financial"`), and in code its policy (`RetryPolicy(…)`).
"""

from __future__ import annotations

import difflib
import io
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import Final, Literal, NamedTuple

from keepfast.core import checks
from keepfast.core.fields import InvalidValue, PolicyField
from keepfast.settings import catalogue
from keepfast.settings.catalogue import PREFIX, Section, variable, variable_part
from keepfast.settings.kinds import ClientProperties, InvalidTable, flat

_PROFILES: Final = variable("retry", "profiles", "")
_PROPERTIES: Final = variable("kafka", "librdkafka", "")
_MISSPELT: Final = 0.9
"""A variable without our prefix that is this near to one of our names is more likely ours, misspelt."""
_ALIKE: Final = 0.65
"""Two words that are this near are one word, misspelt."""

Path = tuple[str, ...]


class SettingSource(IntEnum):
    """Highest first. What is handed over is an object that exists already, such as a client: nothing overrides it."""

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
    """Where a value was given: in which source, for what."""

    source: SettingSource
    scope: Scope


class RawSettings:
    """All values and all problems of one load. One owner: the function that loads."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self._values: dict[SourcePosition, dict[str, Sourced]] = {}
        self._refused: set[str] = set()

    def take(self, position: SourcePosition, section: Section, setting: PolicyField, raw: object, origin: str) -> None:
        """Check a value and keep it, or note what is wrong with it. Variables are text, all else has a type."""
        key = f"{section.name}.{setting.name}"
        textual = position.source in {SettingSource.ENVIRONMENT, SettingSource.DOTENV}
        if textual and not str(raw).strip():
            return  # `NAME=` is how compose files pass on what is not set
        if raw is None and not setting.none_is_a_value:
            return  # an option that was left out
        if setting.name in section.code_only and position.source not in {SettingSource.CODE, SettingSource.HANDED_OVER}:
            self._refuse(key, f"{origin}: only code can set {setting.name}; remove it here.")
            return
        try:
            value = setting.kind.parse(str(raw)) if textual else setting.kind.check(raw)
        except InvalidTable as invalid:
            self._refuse(key, *(f"{origin}: {problem}" for problem in invalid.problems))
            return
        except InvalidValue as invalid:
            self._refuse(key, f"{origin}: {invalid}. {_remedy(setting)}")
            return
        self._keep(position, key, value, origin)

    def take_property(self, position: SourcePosition, name: str, raw: object, origin: str) -> None:
        """Check one property of the client and keep it, or note what is wrong with it."""
        if raw is None or (isinstance(raw, str) and not raw.strip()):
            return
        try:
            value = ClientProperties().one(name, raw)
        except InvalidValue as invalid:
            self.problems.append(f"{origin}: the client property {name} {invalid}.")
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

    def given(self) -> Iterator[tuple[SourcePosition, str, Sourced]]:
        """Every value that was accepted, with its position and its key."""
        for position, values in self._values.items():
            for key, value in values.items():
                yield position, key, value

    def under(self, prefix: str) -> dict[str, Sourced]:
        """The app's values whose key starts with this, the nearest of each, with the prefix cut off."""
        found: dict[str, Sourced] = {}
        for source in SettingSource:
            for key, given in self._values.get(SourcePosition(source, APP), {}).items():
                if key.startswith(prefix):
                    found.setdefault(key.removeprefix(prefix), given)
        return found

    def profiles(self) -> set[str]:
        return {position.scope.name for position in self._values if position.scope.kind == "profile"}

    def refused(self, key: str) -> bool:
        """A value was given and is wrong, which is reported already: nothing must be concluded from its absence."""
        return key in self._refused

    def unknown(
        self, origin: str, what: str, wrong: str, known: Iterable[str], *, sure: str = "", else_: str = ""
    ) -> None:
        """Note a name that does not exist, with advice: what is `sure`, the nearest known name, or `else_`."""
        advice = sure or did_you_mean(wrong, known, else_=else_ or "Remove it, or look it up in the reference.")
        self.problems.append(f"{origin}: there is no {what} of this name. {advice}")

    def _keep(self, position: SourcePosition, key: str, value: object, origin: str) -> None:
        self._values.setdefault(position, {})[key] = Sourced(value, origin)

    def _refuse(self, key: str, *problems: str) -> None:
        self._refused.add(key)
        self.problems.extend(problems)


_NAMES_ELSEWHERE: Final = {
    **dict.fromkeys(("dlq", "dlt", "dead_letter_topic", "dead_letters"), "dead_letter"),
    **dict.fromkeys(("bootstrap", "bootstrap_servers", "servers"), "brokers"),
    **dict.fromkeys(("workers", "max_workers", "threads", "parallelism"), "concurrency"),
}
"""What settings are called in other libraries."""


def did_you_mean(wrong: str, known: Iterable[str], *, else_: str = "") -> str:
    """Advice for a name that does not exist: the nearest one that does, or `else_`, or all there are."""
    names = list(known)
    if (usual := _NAMES_ELSEWHERE.get(wrong)) in names:
        return f"Did you mean {usual}?"
    # Variables share their beginnings, so for them only a misspelling is near.
    ours = wrong.startswith(PREFIX)
    near = difflib.get_close_matches(wrong, names, n=len(names) if ours else 1, cutoff=0.85 if ours else 0.6)
    near = [one for one in near if not ours or _differ_little(wrong, one)]
    return f"Did you mean {near[0]}?" if near else else_ or f"There are: {', '.join(names)}."


def _differ_little(wrong: str, known: str) -> bool:
    """Whether two variables are alike where they differ: the words at both ends that are the same do not count, and a
    misspelt word is assumed to keep its first letter.
    """
    one, other = wrong.split("_"), known.split("_")
    for end in (0, -1):
        while one and other and one[end] == other[end]:
            del one[end], other[end]
    if len(one) != len(other):
        return difflib.SequenceMatcher(None, "".join(one), "".join(other)).ratio() >= _MISSPELT
    pairs = zip(one, other, strict=True)
    return all(a[0] == b[0] and difflib.SequenceMatcher(None, a, b).ratio() >= _ALIKE for a, b in pairs if a and b)


def _remedy(setting: PolicyField) -> str:
    default = setting.derived or _written(setting.default)
    return f"Fix or remove it; the default is {default}." if default else "Fix or remove it."


def _written(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


class VariableTarget(NamedTuple):
    """A setting of the app or of one consumer, and the variables that may set it, best first."""

    scope: Scope
    section: Section
    setting: PolicyField
    names: tuple[str, ...]


def targets(consumers: Collection[str]) -> list[VariableTarget]:
    """Everything that variables can set, but for the open sets: profiles and client properties."""
    found = []
    for section in catalogue.SECTIONS:
        for setting in section.settings:
            found.append(
                VariableTarget(APP, section, setting, (variable(section.name, setting.name), *setting.aliases))
            )
            for consumer in consumers if section.per_consumer else ():
                names = [variable("consumers", consumer, section.name, setting.name)]
                if section is catalogue.CONSUMER:
                    names.append(variable("consumers", consumer, setting.name))
                found.append(VariableTarget(Scope("consumer", consumer), section, setting, tuple(names)))
    return found


def read_variables(
    raw: RawSettings,
    source: SettingSource,
    variables: Mapping[str, str],
    *,
    consumers: Collection[str],
    origin: Callable[[str], str],
) -> None:
    """Take every setting from these variables; a variable with our prefix that sets nothing is a problem."""
    given = {name: text for name, text in variables.items() if text.strip()}
    open_names = {name for name in variables if name.startswith((_PROFILES, _PROPERTIES))}
    places = targets(consumers)
    reported: set[str] = set()
    shared = {name for name, count in Counter(name for place in places for name in place.names).items() if count > 1}
    for place in places:
        names = [name for name in place.names if name in given]
        if not names:
            continue
        if names[0] in shared:
            if names[0] not in reported:
                raw.problems.append(_shared_problem(names[0], places, origin))
            reported.add(names[0])
            continue
        others = [name for name in names[1:] if given[name] != given[names[0]]]
        if others:
            raw.warnings.append(f"{origin(names[0])} wins over {', '.join(others)}, which differs; keep one.")
        if not checks.is_utf8(given[names[0]]):
            raw.problems.append(f"{origin(names[0])}: is not UTF-8 text. Fix or remove it.")
            continue
        position = SourcePosition(source, place.scope)
        raw.take(position, place.section, place.setting, given[names[0]], origin(names[0]))
    known = {name for place in places for name in place.names}
    for name in sorted(open_names):
        _read_open(raw, source, name, variables[name], origin(name))
    unused = {name for name in known - set(given) if not name.startswith(PREFIX)}
    for name in sorted(set(variables) - known - open_names):
        if _claims_to_be_ours(name):
            raw.unknown(origin(name), "setting", name, known, else_=_consumer_hint(name, consumers))
        elif near := difflib.get_close_matches(name, unused, n=1, cutoff=_MISSPELT):
            raw.warnings.append(f"{origin(name)} is no setting of keepfast. Did you mean {near[0]}?")


def _shared_problem(name: str, places: Collection[VariableTarget], origin: Callable[[str], str]) -> str:
    meant = [
        f"{place.section.name}.{place.setting.name} of {place.scope.name}" for place in places if name in place.names
    ]
    return f"{origin(name)}: could mean {' or '.join(meant)}. Set it in keepfast.toml, or rename a consumer."


def _read_open(raw: RawSettings, source: SettingSource, name: str, text: str, origin: str) -> None:
    if name.startswith(_PROPERTIES):
        # Client properties are written with dots, and none that may be set has an underscore of its own.
        prop = name.removeprefix(_PROPERTIES).lower().replace("_", ".")
        raw.take_property(SourcePosition(source, APP), prop, text, origin)
        return
    rest = name.removeprefix(_PROFILES)
    own = [setting for setting in catalogue.RETRY.settings if setting.name != "profile"]
    for setting in own:
        profile = rest.removesuffix(f"_{variable_part(setting.name)}")
        if profile not in {rest, ""}:
            raw.take(SourcePosition(source, Scope("profile", profile.lower())), catalogue.RETRY, setting, text, origin)
            return
    known = [f"{_PROFILES}FINANCIAL_{variable_part(setting.name)}" for setting in own]
    raw.unknown(origin, "setting of a retry profile", name, known)


def _claims_to_be_ours(name: str) -> bool:
    ours = name.startswith(PREFIX) and not name.startswith(catalogue.OTHER_PREFIXES)
    return ours and name not in catalogue.OTHER_VARIABLES


def _consumer_hint(name: str, consumers: Collection[str]) -> str:
    prefix = variable("consumers", "")
    if not name.startswith(prefix) or any(name.startswith(f"{prefix}{variable_part(one)}_") for one in consumers):
        return ""
    if not consumers:
        return "This app has no consumers; remove it."
    return f"It names no consumer. The consumers of this app are: {', '.join(sorted(consumers))}."


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)


class DotenvLine(NamedTuple):
    """A variable's value and the line on which it is set, for messages."""

    number: int
    value: str


def parse_dotenv(text: str) -> tuple[dict[str, DotenvLine], list[str]]:
    """The variables of a `.env`, and what is wrong with other lines. A problem never repeats a line: it may be secret.

    The format is python-dotenv's, without interpolation: `${NAME}` stays as it is. A later line wins.
    """
    from dotenv.parser import parse_stream

    variables: dict[str, DotenvLine] = {}
    problems: list[str] = []
    for binding in parse_stream(io.StringIO(text)):
        content = binding.original.string.lstrip()
        number = binding.original.line + binding.original.string.removesuffix(content).count("\n")
        if binding.error or (binding.key and binding.value is None):
            problems.append(f"line {number} is not NAME=value, or its quotes do not close; fix it, or start it with #")
        elif binding.key and not _NAME.fullmatch(binding.key):
            problems.append(f"line {number} sets a name that no variable can have; fix it, or start it with #")
        elif binding.key:
            variables[binding.key] = DotenvLine(number, binding.value or "")
    return variables, problems


class TreeReader:
    """Walks one tree and takes every value."""

    def __init__(self, raw: RawSettings, source: SettingSource, consumers: Collection[str]) -> None:
        self._raw = raw
        self._source = source
        self._consumers = consumers

    def read(self, tree: Mapping[str, object]) -> None:
        for name, value in tree.items():
            if name == "consumers":
                self._consumers_of(value)
            elif name in catalogue.BY_NAME:
                self._section(APP, catalogue.BY_NAME[name], value, (name,))
            else:
                others = ["consumers"] if self._source is SettingSource.FILE else ["consumers", "lifespan"]
                self._unknown((name,), "section", [*catalogue.BY_NAME, *others], sure=self._other_home(name))

    def _consumers_of(self, tree: object) -> None:
        for name, value in self._table(tree, ("consumers",)).items():
            if name not in self._consumers:
                hint = f"The consumers of this app are: {', '.join(sorted(self._consumers)) or 'none'}."
                self._unknown(("consumers", name), "consumer", self._consumers, else_=hint)
            else:
                self._consumer(Scope("consumer", name), value, ("consumers", name))

    def _consumer(self, scope: Scope, tree: object, path: Path) -> None:
        own = catalogue.CONSUMER.by_name
        sections = {section.name: section for section in catalogue.SECTIONS if section.per_consumer}
        for name, value in self._table(tree, path).items():
            here = (*path, name)
            if name in own:
                self._value(scope, catalogue.CONSUMER, own[name], value, here)
            elif name in sections:
                self._section(scope, sections[name], value, here)
            elif name in catalogue.BY_NAME:
                self._problem(here, f"is for the whole app; set it in [{name}]")
            else:
                # `retires=3` is retry misspelt, and not retries, which is a table.
                tables = set() if isinstance(value, Mapping) else catalogue.CONSUMER.merged
                known = [one for one in (*own, *sections) if one not in tables]
                self._unknown(here, "setting or section of a consumer", known, sure=self._other_home(name, path[1]))

    def _section(self, scope: Scope, section: Section, value: object, path: Path) -> None:
        if section.policy is not None and is_dataclass(value) and isinstance(value, section.policy):
            value = {part.name: getattr(value, part.name) for part in fields(value)}
            if section.switch is not None:
                value[section.switch] = True
        elif isinstance(value, str) and section.shorthand is not None:
            value = {section.shorthand: value}
        elif isinstance(value, bool) and section.switch is not None:
            value = {section.switch: value}
        for name, item in self._table(value, path, section).items():
            here, setting = (*path, name), section.by_name.get(name)
            if section is catalogue.RETRY and name == "profiles" and scope is APP:
                self._profiles(item, here)
            elif setting is not None and isinstance(setting.kind, ClientProperties):
                for prop, content in flat(self._table(item, here)):
                    self._raw.take_property(
                        SourcePosition(self._source, scope), prop, content, self._origin((*here, prop))
                    )
            elif setting is not None:
                self._value(scope, section, setting, item, here)
            else:
                self._unknown(here, f"setting in {section.name}", section.by_name, sure=self._other_home(name))

    def _profiles(self, tree: object, path: Path) -> None:
        for name, value in self._table(tree, path).items():
            here = (*path, name)
            if isinstance(value, str) or (isinstance(value, Mapping) and "profile" in value):
                self._problem(here, "a profile is a table of retry settings and cannot name another profile")
            else:
                self._section(Scope("profile", profile_name(name)), catalogue.RETRY, value, here)

    def _value(self, scope: Scope, section: Section, setting: PolicyField, value: object, path: Path) -> None:
        self._raw.take(SourcePosition(self._source, scope), section, setting, value, self._origin(path))

    def _table(self, value: object, path: Path, section: Section | None = None) -> Mapping[str, object]:
        """The value if it is a table; else nothing, and a problem. None is an option that was left out."""
        if value is None:
            return {}
        if isinstance(value, Mapping):
            return {str(name): item for name, item in value.items()}
        expected = "a mapping"
        if self._source is SettingSource.FILE:
            expected = "a table"
        elif section and (policy := section.policy):
            option = next(name for name in section.by_name if hasattr(policy, name))
            example = f"{section.name}={policy.__name__}({option}=…)"
            expected = f"a {policy.__name__} or a mapping, as in {example}"
        self._problem(path, f"must be {expected}; got something of type {type(value).__name__}")
        return {}

    def _unknown(self, path: Path, what: str, known: Collection[str], *, sure: str = "", else_: str = "") -> None:
        self._raw.unknown(self._origin(path), what, path[-1], known, sure=sure, else_=else_)

    def _problem(self, path: Path, what: str) -> None:
        self._raw.problems.append(f"{self._origin(path)}: {what}.")

    def _other_home(self, name: str, consumer: str = "") -> str:
        """Advice for a setting that exists, but elsewhere."""
        homes = [one for one in catalogue.SECTIONS if name in one.by_name and (one.per_consumer or not consumer)]
        if not homes:
            return ""
        if consumer and self._source is not SettingSource.FILE:
            return f'It belongs in {homes[0].name}: {homes[0].name}={{"{name}": …}}.'
        return f"It belongs in [{f'consumers.{consumer}.' if consumer else ''}{homes[0].name}]."

    def _origin(self, path: Path) -> str:
        if self._source is SettingSource.FILE:
            *tables, name = path
            table = f"[{'.'.join(tables)}] " if tables else ""
            return f"keepfast.toml {table}{name}"
        if path[0] == "consumers" and len(path) > 1:
            return f"code, consumer {path[1]}{': ' if path[2:] else ''}{'.'.join(path[2:])}"
        return f"code: {'.'.join(path)}"


def profile_name(name: str) -> str:
    """Profiles are distinguished as variables are, which know no case and no hyphen."""
    return variable_part(name).lower()
