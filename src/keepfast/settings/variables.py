"""Reads settings out of variables: the environment, and `.env`."""

from __future__ import annotations

import difflib
import io
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from keepfast.settings import catalogue
from keepfast.settings.raw import APP, RawSettings, Scope, SettingSource, SourcePosition
from keepfast.settings.shape import PREFIX, Section, Setting, variable, variable_part

_PROFILES: Final = variable("retry", "profiles", "")
_PROPERTIES: Final = variable("kafka", "librdkafka", "")
_SLIP: Final = 0.9
"""So near to a name of ours, without its prefix, a variable of somebody else's is more likely ours misspelt."""


class VariableTarget(NamedTuple):
    """A setting of the app or of one consumer, and the variables that may set it, best first."""

    scope: Scope
    section: Section
    setting: Setting
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
    gathered: RawSettings,
    source: SettingSource,
    variables: Mapping[str, str],
    *,
    consumers: Collection[str],
    origin: Callable[[str], str],
) -> None:
    """Take every setting from these variables; a variable with our prefix that sets nothing is a problem."""
    told = {name: text for name, text in variables.items() if text.strip()}
    open_names = {name for name in variables if name.startswith((_PROFILES, _PROPERTIES))}
    places = targets(consumers)
    said: set[str] = set()
    shared = {name for name, count in Counter(name for place in places for name in place.names).items() if count > 1}
    for place in places:
        names = [name for name in place.names if name in told]
        if not names:
            continue
        if names[0] in shared:
            if names[0] not in said:
                gathered.problems.append(_shared_problem(names[0], places, origin))
            said.add(names[0])
            continue
        others = [name for name in names[1:] if told[name] != told[names[0]]]
        if others:
            gathered.warnings.append(
                f"{origin(names[0])} wins over {', '.join(others)}, which says otherwise; keep one."
            )
        position = SourcePosition(source, place.scope)
        gathered.take(position, place.section, place.setting, told[names[0]], origin(names[0]))
    known = {name for place in places for name in place.names}
    for name in sorted(open_names):
        _read_open(gathered, source, name, variables[name], origin(name))
    unused = {name for name in known - set(told) if not name.startswith(PREFIX)}
    for name in sorted(set(variables) - known - open_names):
        if _claims_to_be_ours(name):
            gathered.unknown(origin(name), "setting", name, known, else_=_consumer_hint(name, consumers))
        elif near := difflib.get_close_matches(name, unused, n=1, cutoff=_SLIP):
            gathered.warnings.append(f"{origin(name)} is no setting of keepfast. Did you mean {near[0]}?")


def _shared_problem(name: str, places: Collection[VariableTarget], origin: Callable[[str], str]) -> str:
    meant = [
        f"{place.section.name}.{place.setting.name} of {place.scope.name}" for place in places if name in place.names
    ]
    return f"{origin(name)}: could mean {' or '.join(meant)}. Set it in keepfast.toml, or rename a consumer."


def _read_open(gathered: RawSettings, source: SettingSource, name: str, text: str, origin: str) -> None:
    if name.startswith(_PROPERTIES):
        # Client properties are written with dots, and none that may be set has an underscore of its own.
        prop = name.removeprefix(_PROPERTIES).lower().replace("_", ".")
        gathered.take_property(SourcePosition(source, APP), prop, text, origin)
        return
    rest = name.removeprefix(_PROFILES)
    for setting in catalogue.RETRY.settings:
        profile = rest.removesuffix(f"_{variable_part(setting.name)}")
        if profile not in {rest, ""} and setting.name != "profile":
            position = SourcePosition(source, Scope("profile", profile.lower()))
            gathered.take(position, catalogue.RETRY, setting, text, origin)
            return
    known = [f"{_PROFILES}FINANCIAL_{variable_part(setting.name)}" for setting in catalogue.RETRY.settings[1:]]
    gathered.unknown(origin, "setting of a retry profile", name, known)


def _claims_to_be_ours(name: str) -> bool:
    ours = name.startswith(PREFIX) and not name.startswith(catalogue.OTHER_PREFIXES)
    return ours and name not in catalogue.OTHER_VARIABLES


def _consumer_hint(name: str, consumers: Collection[str]) -> str:
    prefix = variable("consumers", "")
    if not name.startswith(prefix) or any(name.startswith(f"{prefix}{variable_part(one)}_") for one in consumers):
        return ""
    if not consumers:
        return "This app has no consumers; remove it."
    return f"The consumers of this app are: {', '.join(sorted(consumers))}."


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
