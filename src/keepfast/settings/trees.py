"""Reads settings out of trees: keepfast.toml, and what the code gave. Both have the same shape.

    kafka:     {brokers: …}              a section of the app
    retry:     {max_retries: …,          for all consumers
                profiles: {slow: {…}}}   named sets of retry settings
    consumers: {charge: {order: …,       a consumer's own settings, the section `consumer` may be left out
                         retry: {…}}}    a section for this consumer alone

A section may also be a text, its main setting (`retry = "financial"`), and in code its policy (`RetryPolicy(…)`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass

from keepfast.settings import catalogue
from keepfast.settings.app_wide import LIBRDKAFKA
from keepfast.settings.kinds import flat
from keepfast.settings.raw import APP, RawSettings, Scope, SettingSource, SourcePosition
from keepfast.settings.shape import Section, Setting, variable_part

Path = tuple[str, ...]


class TreeReader:
    """Walks one tree and hands every value on."""

    def __init__(self, gathered: RawSettings, source: SettingSource, consumers: Collection[str]) -> None:
        self._gathered = gathered
        self._source = source
        self._consumers = consumers

    def read(self, tree: Mapping[str, object]) -> None:
        for name, value in tree.items():
            if name == "consumers":
                self._consumers_of(value)
            elif name in catalogue.BY_NAME:
                self._section(APP, catalogue.BY_NAME[name], value, (name,))
            else:
                self._unknown((name,), "section", [*catalogue.BY_NAME, "consumers"])

    def _consumers_of(self, tree: object) -> None:
        for name, value in self._table(tree, ("consumers",)).items():
            if name not in self._consumers:
                hint = f"The consumers of this app are: {', '.join(sorted(self._consumers)) or 'none'}."
                self._unknown(("consumers", name), "consumer", self._consumers, else_=hint)
            else:
                self._consumer(Scope("consumer", name), value, ("consumers", name))

    def _consumer(self, scope: Scope, tree: object, path: Path) -> None:
        own = {setting.name: setting for setting in catalogue.CONSUMER.settings}
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
                self._unknown(here, "setting or section of a consumer", [*own, *sections])

    def _section(self, scope: Scope, section: Section, value: object, path: Path) -> None:
        if section.policy is not None and is_dataclass(value) and isinstance(value, section.policy):
            value = {part.name: getattr(value, part.name) for part in fields(value)}
            if section.switch is not None:
                value[section.switch] = True
        elif isinstance(value, str) and section.shorthand is not None:
            value = {section.shorthand: value}
        elif isinstance(value, bool) and section.switch is not None:
            value = {section.switch: value}
        names = [setting.name for setting in section.settings]
        for name, item in self._table(value, path, section).items():
            here, setting = (*path, name), section.find(name)
            if section is catalogue.RETRY and name == "profiles" and scope is APP:
                self._profiles(item, here)
            elif setting is not None and setting.kind is LIBRDKAFKA:
                for prop, content in flat(self._table(item, here)):
                    self._gathered.take_property(
                        SourcePosition(self._source, scope), prop, content, self._origin((*here, prop))
                    )
            elif setting is not None:
                self._value(scope, section, setting, item, here)
            else:
                self._unknown(here, f"setting in {section.name}", names, sure=_other_home(name))

    def _profiles(self, tree: object, path: Path) -> None:
        for name, value in self._table(tree, path).items():
            here = (*path, name)
            if isinstance(value, str) or (isinstance(value, Mapping) and "profile" in value):
                self._problem(here, "a profile is a table of retry settings and cannot name another profile")
            else:
                self._section(Scope("profile", profile_name(name)), catalogue.RETRY, value, here)

    def _value(self, scope: Scope, section: Section, setting: Setting, value: object, path: Path) -> None:
        self._gathered.take(SourcePosition(self._source, scope), section, setting, value, self._origin(path))

    def _table(self, value: object, path: Path, section: Section | None = None) -> Mapping[str, object]:
        """The value if it is a table; else none of it, and a problem. None is an option that was left out."""
        if value is None:
            return {}
        if isinstance(value, Mapping):
            return {str(name): item for name, item in value.items()}
        policy = section and section.policy
        expected = (
            "a table"
            if self._source is SettingSource.FILE
            else f"a {policy.__name__} or a mapping"
            if policy
            else "a mapping"
        )
        self._problem(path, f"must be {expected}; got something of type {type(value).__name__}")
        return {}

    def _unknown(self, path: Path, what: str, known: Collection[str], *, sure: str = "", else_: str = "") -> None:
        self._gathered.unknown(self._origin(path), what, path[-1], known, sure=sure, else_=else_)

    def _problem(self, path: Path, what: str) -> None:
        self._gathered.problems.append(f"{self._origin(path)}: {what}.")

    def _origin(self, path: Path) -> str:
        if self._source is SettingSource.FILE:
            table = f"[{'.'.join(path[:-1])}] " if len(path) > 1 else ""
            return f"keepfast.toml {table}{path[-1]}"
        if path[0] == "consumers" and len(path) > 1:
            return f"code, consumer {path[1]}{': ' if path[2:] else ''}{'.'.join(path[2:])}"
        return f"code: {'.'.join(path)}"


def profile_name(name: str) -> str:
    """Profiles are told apart as variables tell them apart, which know no case and no hyphen."""
    return variable_part(name).lower()


def _other_home(name: str) -> str:
    homes = [section.name for section in catalogue.SECTIONS if section.find(name)]
    return f"It belongs in [{homes[0]}]." if homes else ""
