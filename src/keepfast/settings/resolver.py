"""Decides between the sources: which of the values that were given holds for the app and for each consumer."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import cast

from keepfast.classify.classification import BUILT_IN, RuleBook, classify_key
from keepfast.classify.rules import Rule
from keepfast.core.errors import ConfigError
from keepfast.core.fields import InvalidValue
from keepfast.core.policies import RetryPolicy
from keepfast.settings import catalogue
from keepfast.settings.catalogue import Section, variable
from keepfast.settings.kinds import RetryEntry
from keepfast.settings.sources import APP, RawSettings, Scope, SettingSource, Sourced, SourcePosition, profile_name

DEFAULT = "the default"

Resolved = Mapping[str, Sourced]
"""Settings of a section by name, each with where its value came from."""


class Resolver:
    """The nearer source wins; within one source, a value for a consumer wins over one for the app."""

    def __init__(self, raw: RawSettings, consumers: Collection[str]) -> None:
        self._raw = raw
        self._consumers = consumers
        self.origins: dict[str, str] = {}

    def section(self, section: Section, consumer: str | None = None) -> dict[str, Sourced]:
        """Every setting of a section, defaults included."""
        found = {}
        for setting in section.settings:
            key = f"{section.name}.{setting.name}"
            own_only = setting.name in section.one_consumer and len(self._consumers) > 1
            positions = _positions(consumer, app=not own_only)
            if setting.name in section.merged:
                found[setting.name] = self._joined(self._raw.find_all(positions, key), consumer, key)
                continue
            hit = self._raw.find(positions, key)
            found[setting.name] = hit[1] if hit else Sourced(setting.default, DEFAULT)
        self._note(section, consumer, found)
        return found

    def properties(self) -> dict[str, object]:
        """The client properties that were set by hand, each from its nearest source."""
        prefix = "kafka.librdkafka."
        found = self._raw.under(prefix)
        self.origins.update({f"{prefix}{name}": given.origin for name, given in found.items()})
        return {name: given.value for name, given in found.items()}

    def retry(self, consumer: str) -> dict[str, Sourced]:
        """What was set for the retries of a consumer; what was not is left out, for the policy to fill in.

        A profile counts where it was named: it wins over all that is farther away, and what is set beside it wins over
        it.
        """
        positions = _positions(consumer)
        hit = self._raw.find(positions, "retry.profile")
        named_at, named = hit or (None, Sourced("default", DEFAULT))
        profile = self._profile(named)
        found: dict[str, Sourced] = {}
        for position in positions:
            for setting in catalogue.RETRY.settings:
                given = self._raw.find([position], f"retry.{setting.name}")
                if given and setting.name != "profile":
                    found.setdefault(setting.name, given[1])
            if position == named_at:
                found = profile | found
        found = profile | found
        self._note(catalogue.RETRY, consumer, {"profile": named, **found})
        return found

    def profile(self, consumer: str) -> str:
        """The name of its retry profile."""
        hit = self._raw.find(_positions(consumer), "retry.profile")
        return profile_name(str(hit[1].value)) if hit else "default"

    def retries(self, consumer: str) -> tuple[tuple[str, RetryPolicy], ...]:
        """The policies that were set for single errors, by key, the nearest source first."""
        given = self._raw.find_all(_positions(consumer), "consumer.retries")
        entries = tuple((entry, one.origin) for one in given for entry in cast("tuple[RetryEntry, ...]", one.value))
        policies, problems = policies_of(entries, self.retry(consumer) if entries else {}, profile=self._profile)
        self._raw.problems.extend(problem for problem in problems if problem not in self._raw.problems)
        return policies

    def refused(self, key: str) -> bool:
        return self._raw.refused(key)

    def misplaced(self) -> list[str]:
        """Values for the whole app that can only mean one consumer, in an app that has several."""
        if len(self._consumers) < 2:
            return []
        names = ", ".join(self._consumers)
        example = next(iter(self._consumers))
        problems = []
        for name in (one.name for one in catalogue.CONSUMER.settings if one.name in catalogue.CONSUMER.one_consumer):
            for source in SettingSource:
                hit = self._raw.find([SourcePosition(source, APP)], f"consumer.{name}")
                if hit:
                    own = variable("consumers", example, "consumer", name)
                    problems.append(
                        f"{hit[1].origin}: sets {name} for every consumer, and this app has several ({names})."
                        f" Set it for one, like {own}, or in [consumers.{example}] of keepfast.toml."
                    )
        return problems

    def _profile(self, named: Sourced) -> dict[str, Sourced]:
        name = profile_name(str(named.value))
        known = {*catalogue.PROFILES, *self._raw.profiles()}
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            advice = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(sorted(known))}."
            problem = f"{named.origin}: there is no retry profile {named.value!r}. {advice}"
            if problem not in self._raw.problems:
                self._raw.problems.append(problem)
            return {}
        origin = f"the profile {name}"
        found = {key: Sourced(value, origin) for key, value in catalogue.PROFILES.get(name, {}).items()}
        for setting in catalogue.RETRY.settings:
            positions = [SourcePosition(source, Scope("profile", name)) for source in SettingSource]
            hit = self._raw.find(positions, f"retry.{setting.name}")
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
    """Where values for this consumer, or for the app, are looked for: the order in which they win."""
    scopes = ([] if consumer is None else [Scope("consumer", consumer)]) + ([APP] if app else [])
    return [SourcePosition(source, scope) for source in SettingSource for scope in scopes]


def policies_of(
    entries: tuple[tuple[RetryEntry, str], ...], usual: Resolved, *, profile: Callable[[Sourced], Resolved]
) -> tuple[tuple[tuple[str, RetryPolicy], ...], list[str]]:
    """The policies of single errors by key, and what is wrong. Each entry comes with where it was set.

    A table of settings says what differs from `usual`, the consumer's own; the name of a profile, and a RetryPolicy of
    the code, stand for themselves.
    """
    made: list[tuple[str, RetryPolicy]] = []
    problems: list[str] = []
    for (key, value), origin in entries:
        where = f"{origin}: the retry policy for {key}"
        try:
            made.append((key, _policy(value, origin, usual, profile)))
        except ConfigError as error:
            problems.extend(f"{where}: {problem}" for problem in error.problems)
    return tuple(made), problems


def without_effect(consumer: Resolved, policies: tuple[tuple[str, RetryPolicy], ...]) -> list[str]:
    """Warnings for policies of errors that are never tried again, because a rule calls them final."""
    rules = consumer["rules"].value
    book = RuleBook(rules) if isinstance(rules, tuple) else BUILT_IN
    found = []
    for key, _ in policies:
        classified = classify_key(
            key,
            book,
            unknown=consumer["unknown_errors"].value,  # type: ignore[arg-type]  # both were checked when taken
            not_found=consumer["not_found"].value,  # type: ignore[arg-type]
        )
        if classified.kind != "retryable" and not book.schemes(key):
            found.append(
                f"the retry policy for {key} has no effect: the rule {classified.rule} calls it {classified.kind}."
                f' Remove it, or add a rule: "{key}" = "retryable".'
            )
    return found


def _policy(
    value: RetryPolicy | str | Mapping[str, object],
    origin: str,
    usual: Resolved,
    profile: Callable[[Sourced], Resolved],
) -> RetryPolicy:
    if isinstance(value, RetryPolicy):
        return value
    if isinstance(value, str):
        return _made(profile(Sourced(value, origin)))
    own: dict[str, object] = {}
    problems = []
    settings = catalogue.RETRY.by_name
    for name, item in value.items():
        if name not in settings:
            problems.append(f"{name!r} is no retry setting. There are: {', '.join(settings)}.")
            continue
        try:
            own[name] = settings[name].kind.check(item)
        except InvalidValue as invalid:
            problems.append(f"{name} {invalid}.")
    if problems:
        raise ConfigError(*problems)
    named = own.pop("profile", None)
    base = usual if named is None else profile(Sourced(named, origin))
    return _made(dict(base) | {name: Sourced(item, origin) for name, item in own.items()})


def _made(values: Resolved) -> RetryPolicy:
    known = {part.name for part in fields(RetryPolicy)}
    return RetryPolicy(**{name: given.value for name, given in values.items() if name in known})  # type: ignore[arg-type]
