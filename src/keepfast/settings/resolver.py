"""Decides between the sources: which of the values that were given holds for the app and for each consumer.

The more specific scope wins first: a consumer, then its retry profile, then the app. Within a scope the source decides:
environment, `.env`, keepfast.toml, code. What was handed over wins over everything. So a variable for all consumers is
the default of those that are not configured otherwise; what ends up without effect is warned of.
"""

from __future__ import annotations

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
from keepfast.settings.sources import (
    APP,
    RawSettings,
    Scope,
    SettingSource,
    Sourced,
    SourcePosition,
    did_you_mean,
    profile_name,
)

DEFAULT = "the default"
BUILT_IN_PROFILE = "the profile "
"""Origin of values of profiles that are built in; their name follows."""

Resolved = Mapping[str, Sourced]
"""Settings of a section by name, each with where its value came from."""

Hit = tuple[SourcePosition | None, Sourced]
"""A value, and the position at which it was found; None for defaults and profiles that are built in."""

_VARIABLES = {SettingSource.ENVIRONMENT, SettingSource.DOTENV}


class Resolver:
    """Resolves section by section, and remembers which values have taken effect. One owner: the function that loads."""

    def __init__(self, raw: RawSettings, consumers: Collection[str]) -> None:
        self._raw = raw
        self._consumers = consumers
        self._effective: dict[str, dict[str, Hit]] = {}
        self.origins: dict[str, str] = {}

    def section(self, section: Section, consumer: str | None = None) -> dict[str, Sourced]:
        """Every setting of a section, defaults included."""
        found = {}
        for setting in section.settings:
            key = f"{section.name}.{setting.name}"
            positions = self._positions(section, setting.name, consumer)
            if setting.name in section.merged:
                found[setting.name] = self._joined(self._raw.find_all(positions, key), consumer, key)
                continue
            hit = self._raw.find(positions, key) or (None, Sourced(setting.default, DEFAULT))
            self._take_effect(key, consumer, hit)
            found[setting.name] = hit[1]
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

        What is set for the consumer wins over its profile, unless the profile was named in a nearer source. The profile
        wins over what is set for the app, but not over what is set beside its name. If none is named, the profile
        `default` fills in what nothing else sets.
        """
        own, app = _by_source(Scope("consumer", consumer)), _by_source(APP)
        named_at, named = self._raw.find([*own, *app], "retry.profile") or (None, Sourced("default", DEFAULT))
        self._take_effect("retry.profile", consumer, (named_at, named))
        before, after = [*own, *app], list[SourcePosition]()
        if named_at is not None and named_at in own:
            nearer = own.index(named_at) + 1
            before, after = own[:nearer], [*own[nearer:], *app]
        elif named_at is not None:
            before, after = [*own, named_at], app
        profile = self._profile(named)
        found: dict[str, Sourced] = {}
        for name in (one.name for one in catalogue.RETRY.settings if one.name != "profile"):
            key = f"retry.{name}"
            hit: Hit | None = self._raw.find(before, key) or profile.get(name) or self._raw.find(after, key)
            if hit is not None:
                self._take_effect(key, consumer, hit)
                found[name] = hit[1]
        self._note(catalogue.RETRY, consumer, {"profile": named, **found})
        return found

    def profile(self, consumer: str) -> str:
        """The name of its retry profile."""
        hit = self._raw.find([*_by_source(Scope("consumer", consumer)), *_by_source(APP)], "retry.profile")
        return profile_name(str(hit[1].value)) if hit else "default"

    def retries(self, consumer: str) -> tuple[tuple[str, RetryPolicy], ...]:
        """The policies that were set for single errors, by key, the nearest source first."""
        given = self._raw.find_all(self._positions(catalogue.CONSUMER, "retries", consumer), "consumer.retries")
        entries = tuple((entry, one.origin) for one in given for entry in cast("tuple[RetryEntry, ...]", one.value))
        policies, problems = policies_of(
            entries, self.retry(consumer) if entries else {}, profile=lambda named: self._of_profile(named, consumer)
        )
        self._raw.problems.extend(problem for problem in problems if problem not in self._raw.problems)
        return policies

    def without_effect(self) -> list[str]:
        """Warnings for values that take effect nowhere, though their source is nearer than what is used instead."""
        warnings = []
        for position, key, given in self._raw.given() if self._consumers else ():
            used = self._effective.get(key, {})
            section, _, name = key.partition(".")
            if any(hit[1] is given for hit in used.values()):
                continue
            if position.scope.kind == "profile" and position.source in _VARIABLES:
                warnings.append(
                    f"{given.origin} has no effect: no consumer takes {name} from the retry profile"
                    f" {position.scope.name}. Remove it."
                )
            elif position.scope == APP and any(_surprises(position, given, hit) for hit in used.values()):
                instead = "; ".join(f"{consumer}: {hit[1].origin}" for consumer, hit in used.items())
                own = variable("consumers", next(iter(used)), section, name)
                warnings.append(
                    f"{given.origin} has no effect: {key} is set more specifically ({instead}). Remove it, or set"
                    f" {own} for one consumer."
                )
        return warnings

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

    def _positions(self, section: Section, name: str, consumer: str | None) -> list[SourcePosition]:
        """Where the values of a setting are looked for: the order in which they win."""
        if consumer is None:
            return _by_source(APP)
        own = Scope("consumer", consumer)
        if name not in section.one_consumer:
            return [*_by_source(own), *_by_source(APP)]
        # What can only mean one consumer means the only one, so for these the source alone decides.
        return _by_source(own, APP) if len(self._consumers) == 1 else _by_source(own)

    def _take_effect(self, key: str, consumer: str | None, hit: Hit) -> None:
        if consumer is not None:
            self._effective.setdefault(key, {})[consumer] = hit

    def _of_profile(self, named: Sourced, consumer: str) -> Resolved:
        """A profile's settings, for the policy of a single error."""
        found = self._profile(named)
        for name, hit in found.items():
            self._take_effect(f"retry.{name}", f"{consumer}, {named.origin}", hit)
        return {name: hit[1] for name, hit in found.items()}

    def _profile(self, named: Sourced) -> dict[str, Hit]:
        name = profile_name(str(named.value))
        known = {*catalogue.PROFILES, *self._raw.profiles()}
        if name not in known:
            problem = f"{named.origin}: there is no retry profile {named.value!r}. {did_you_mean(name, sorted(known))}"
            if problem not in self._raw.problems:
                self._raw.problems.append(problem)
            return {}
        origin = f"{BUILT_IN_PROFILE}{name}"
        built_in = catalogue.PROFILES.get(name, {})
        found: dict[str, Hit] = {key: (None, Sourced(value, origin)) for key, value in built_in.items()}
        for setting in catalogue.RETRY.settings:
            hit = self._raw.find(_by_source(Scope("profile", name)), f"retry.{setting.name}")
            if hit:
                found[setting.name] = hit
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


def _by_source(*scopes: Scope) -> list[SourcePosition]:
    return [SourcePosition(source, scope) for source in SettingSource for scope in scopes]


def _surprises(position: SourcePosition, given: Sourced, hit: Hit) -> bool:
    """Whether another value is used although this one's source is as near: more than a default that was overridden."""
    used_at, used = hit
    if used.value == given.value:
        return False
    return used_at is None or used_at.source == SettingSource.HANDED_OVER or used_at.source > position.source


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
        return policy_made(profile(Sourced(value, origin)))
    own: dict[str, object] = {}
    problems = []
    settings = catalogue.RETRY.by_name
    for name, item in value.items():
        if name not in settings:
            problems.append(f"{name!r} is no retry setting. {did_you_mean(name, settings)}")
            continue
        try:
            own[name] = settings[name].kind.check(item)
        except InvalidValue as invalid:
            problems.append(f"{name} {invalid}.")
    if problems:
        raise ConfigError(*problems)
    named = own.pop("profile", None)
    base = usual if named is None else profile(Sourced(named, origin))
    return policy_made(dict(base) | {name: Sourced(item, origin) for name, item in own.items()})


def policy_made(values: Resolved) -> RetryPolicy:
    """From settings of retries, whatever else is among them. Raises ConfigError."""
    known = {part.name for part in fields(RetryPolicy)}
    return RetryPolicy(**{name: given.value for name, given in values.items() if name in known})  # type: ignore[arg-type]
