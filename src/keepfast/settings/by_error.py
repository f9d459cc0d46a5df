"""From what was told about retries of single errors to policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Final

from keepfast.classify.classification import BUILT_IN, RuleBook, classify_key
from keepfast.core.errors import ConfigError
from keepfast.core.policies import RetryPolicy
from keepfast.settings import catalogue
from keepfast.settings.kinds import InvalidValue
from keepfast.settings.raw import Sourced
from keepfast.settings.tables import RetryEntry

Told = Mapping[str, Sourced]
_KINDS: Final = {setting.name: setting.kind for setting in catalogue.RETRY.settings}


def policies_of(
    entries: tuple[tuple[RetryEntry, str], ...], usual: Told, *, profile: Callable[[Sourced], Told]
) -> tuple[tuple[tuple[str, RetryPolicy], ...], list[str]]:
    """The policies by key, and what is wrong. Each entry comes with where it was told.

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


def without_effect(told: Mapping[str, Sourced], policies: tuple[tuple[str, RetryPolicy], ...]) -> list[str]:
    """Warnings for policies of errors that are never tried again, because a rule calls them final."""
    rules = told["rules"].value
    book = RuleBook(rules) if isinstance(rules, tuple) else BUILT_IN
    found = []
    for key, _ in policies:
        said = classify_key(
            key,
            book,
            unknown=told["unknown_errors"].value,  # type: ignore[arg-type]  # both were checked when they were taken
            not_found=told["not_found"].value,  # type: ignore[arg-type]
        )
        if said.kind != "retryable" and not book.asked(key):
            found.append(
                f"the retry policy for {key} has no effect: the rule {said.rule} calls it {said.kind}. Remove it, or"
                f' add a rule: "{key}" = "retryable".'
            )
    return found


def _policy(
    value: RetryPolicy | str | Mapping[str, object], origin: str, usual: Told, profile: Callable[[Sourced], Told]
) -> RetryPolicy:
    if isinstance(value, RetryPolicy):
        return value
    if isinstance(value, str):
        return _made(profile(Sourced(value, origin)))
    told: dict[str, object] = {}
    problems = []
    for name, item in value.items():
        if name not in _KINDS:
            problems.append(f"{name!r} is no retry setting. There are: {', '.join(_KINDS)}.")
            continue
        try:
            told[name] = _KINDS[name].check(item)
        except InvalidValue as unfit:
            problems.append(f"{name} {unfit}.")
    if problems:
        raise ConfigError(*problems)
    named = told.pop("profile", None)
    base = usual if named is None else profile(Sourced(named, origin))
    return _made(dict(base) | {name: Sourced(item, origin) for name, item in told.items()})


def _made(told: Told) -> RetryPolicy:
    known = {part.name for part in fields(RetryPolicy)}
    return RetryPolicy(**{name: given.value for name, given in told.items() if name in known})  # type: ignore[arg-type]
