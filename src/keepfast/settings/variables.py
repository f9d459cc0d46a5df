r"""Reads settings out of variables: the environment, and `.env`.

Reads `.env`: one NAME=value a line, nothing is filled in, nothing is executed.

    # a comment
    export KAFKA_BROKERS=kafka:9092       # a comment after a space
    SINGLE='as it stands'
    DOUBLE="with \n \t \" \\ as escapes"

A value is everything after the first `=`, without spaces around it. A later line wins over an earlier one.
"""

from __future__ import annotations

import difflib
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


_LINE = re.compile(r"\s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(?P<rest>.*)", re.ASCII | re.DOTALL)
_SINGLE = re.compile(r"'(?P<value>[^']*)'\s*(?:#.*)?", re.DOTALL)
_DOUBLE = re.compile(r'"(?P<value>(?:[^"\\]|\\.)*)"\s*(?:#.*)?', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_COMMENT = re.compile(r"(?:^|\s)#.*", re.DOTALL)
_MEANT = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$"}


class DotenvLine(NamedTuple):
    """Where a variable was set, for messages, and its value."""

    number: int
    value: str


def parse(text: str) -> tuple[dict[str, DotenvLine], list[str]]:
    """The variables, and what is wrong with other lines. A problem never repeats a line: it may hold a secret."""
    variables: dict[str, DotenvLine] = {}
    problems: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.rstrip("\r").strip()
        if not content or content.startswith("#"):
            continue
        found = _LINE.fullmatch(content)
        if not found:
            problems.append(f"line {number} is not NAME=value; write it so, or begin it with #")
            continue
        value = _value(found["rest"])
        if value is None:
            problems.append(f"line {number} ({found['name']}): the quotes do not close at the end; put them right")
        else:
            variables[found["name"]] = DotenvLine(number, value)
    return variables, problems


def _value(rest: str) -> str | None:
    if rest.startswith("'"):
        found = _SINGLE.fullmatch(rest)
        return found["value"] if found else None
    if rest.startswith('"'):
        found = _DOUBLE.fullmatch(rest)
        return _ESCAPE.sub(lambda m: _MEANT.get(m[1], m[0]), found["value"]) if found else None
    return _COMMENT.sub("", rest).strip()
