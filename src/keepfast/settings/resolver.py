"""Decides between the sources: which of the values that were given holds for the app and for each consumer."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import cast

from keepfast.classify.rules import Rule
from keepfast.core.policies import RetryPolicy
from keepfast.settings import catalogue
from keepfast.settings.by_error import policies_of
from keepfast.settings.raw import APP, RawSettings, Scope, SettingSource, Sourced, SourcePosition
from keepfast.settings.shape import Section, variable
from keepfast.settings.tables import RetryEntry
from keepfast.settings.trees import profile_name

DEFAULT = "the default"


class Resolver:
    """The nearer source wins; within one source, what is said of a consumer wins over what is said of the app."""

    def __init__(self, gathered: RawSettings, consumers: Collection[str]) -> None:
        self._gathered = gathered
        self._consumers = consumers
        self.origins: dict[str, str] = {}

    def section(self, section: Section, consumer: str | None = None) -> dict[str, Sourced]:
        """Every setting of a section, defaults included."""
        found = {}
        for setting in section.settings:
            key = f"{section.name}.{setting.name}"
            own_only = setting.one_consumer and len(self._consumers) > 1
            positions = _positions(consumer, app=not own_only)
            if setting.merged:
                found[setting.name] = self._joined(self._gathered.find_all(positions, key), consumer, key)
                continue
            hit = self._gathered.find(positions, key)
            found[setting.name] = hit[1] if hit else Sourced(setting.default, DEFAULT)
        self._note(section, consumer, found)
        return found

    def properties(self) -> dict[str, object]:
        """The client properties that were set by hand, each from its nearest source."""
        prefix = "kafka.librdkafka."
        found = self._gathered.under(prefix)
        self.origins.update({f"{prefix}{name}": given.origin for name, given in found.items()})
        return {name: given.value for name, given in found.items()}

    def retry(self, consumer: str) -> dict[str, Sourced]:
        """What was told of the retries of a consumer; what was not is left out, for the policy to fill in.

        A profile counts where it was named: it wins over all that is farther away, and what stands beside it wins over
        it.
        """
        positions = _positions(consumer)
        hit = self._gathered.find(positions, "retry.profile")
        named_at, named = hit or (None, Sourced("default", DEFAULT))
        profile = self._profile(named)
        told: dict[str, Sourced] = {}
        for position in positions:
            for setting in catalogue.RETRY.settings:
                given = self._gathered.find([position], f"retry.{setting.name}")
                if given and setting.name != "profile":
                    told.setdefault(setting.name, given[1])
            if position == named_at:
                told = profile | told
        told = profile | told
        self._note(catalogue.RETRY, consumer, {"profile": named, **told})
        return told

    def profile(self, consumer: str) -> str:
        """The name of its retry profile."""
        hit = self._gathered.find(_positions(consumer), "retry.profile")
        return profile_name(str(hit[1].value)) if hit else "default"

    def retries(self, consumer: str) -> tuple[tuple[str, RetryPolicy], ...]:
        """The policies that were told for single errors, by key, the nearest source first."""
        given = self._gathered.find_all(_positions(consumer), "consumer.retries")
        entries = tuple((entry, one.origin) for one in given for entry in cast("tuple[RetryEntry, ...]", one.value))
        policies, problems = policies_of(entries, self.retry(consumer) if entries else {}, profile=self._profile)
        self._gathered.problems.extend(problem for problem in problems if problem not in self._gathered.problems)
        return policies

    def refused(self, key: str) -> bool:
        return self._gathered.refused(key)

    def misplaced(self) -> list[str]:
        """Values for the whole app that can only mean one consumer, in an app that has several."""
        if len(self._consumers) < 2:
            return []
        names = ", ".join(self._consumers)
        example = next(iter(self._consumers))
        problems = []
        for setting in (setting for setting in catalogue.CONSUMER.settings if setting.one_consumer):
            for source in SettingSource:
                hit = self._gathered.find([SourcePosition(source, APP)], f"consumer.{setting.name}")
                if hit:
                    own = variable("consumers", example, "consumer", setting.name)
                    problems.append(
                        f"{hit[1].origin}: sets {setting.name} for every consumer, and this app has several ({names})."
                        f" Set it for one, like {own}, or in [consumers.{example}] of keepfast.toml."
                    )
        return problems

    def _profile(self, named: Sourced) -> dict[str, Sourced]:
        name = profile_name(str(named.value))
        known = {*catalogue.PROFILES, *self._gathered.profiles()}
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            advice = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(sorted(known))}."
            problem = f"{named.origin}: there is no retry profile {named.value!r}. {advice}"
            if problem not in self._gathered.problems:
                self._gathered.problems.append(problem)
            return {}
        origin = f"the profile {name}"
        found = {key: Sourced(value, origin) for key, value in catalogue.PROFILES.get(name, {}).items()}
        for setting in catalogue.RETRY.settings:
            positions = [SourcePosition(source, Scope("profile", name)) for source in SettingSource]
            hit = self._gathered.find(positions, f"retry.{setting.name}")
            if hit:
                found[setting.name] = hit[1]
        return found

    def _joined(self, given: list[Sourced], consumer: str | None, key: str) -> Sourced:
        """One tuple of all. Its origin names each source, and each of its keys gets an origin of its own."""
        values: list[object] = []
        for one in given:
            for item in cast("tuple[Rule | RetryEntry, ...]", one.value):
                values.append(item)
                for name in item.keys if isinstance(item, Rule) else item[:1]:
                    self.origins.setdefault(f"consumers.{consumer}.{key}.{name}", one.origin)
        return Sourced(tuple(values), "; ".join(one.origin for one in given) or DEFAULT)

    def _note(self, section: Section, consumer: str | None, found: dict[str, Sourced]) -> None:
        prefix = f"consumers.{consumer}.{section.name}" if consumer is not None else section.name
        self.origins.update(
            {f"{prefix}.{name}": given.origin for name, given in found.items() if given.origin != DEFAULT}
        )


def _positions(consumer: str | None, *, app: bool = True) -> list[SourcePosition]:
    scopes = ([] if consumer is None else [Scope("consumer", consumer)]) + ([APP] if app else [])
    return [SourcePosition(source, scope) for source in SettingSource for scope in scopes]
