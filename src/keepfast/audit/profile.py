"""Profiles: sets of rules that an app is audited against, keepfast's own and those of installed packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Final

from keepfast.audit.rule import AuditRule, Finding, not_applicable
from keepfast.audit.subject import Subject
from keepfast.core.errors import ConfigError

GROUP: Final = "keepfast.profiles"
"""Entry points of this group name a Profile each."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A document or a set of checks. Ids of its rules begin with its name.

    `replaced`: hook of a runner → a reason, and the rules that do not apply to a runner with that hook, because it
    replaces the code that guarantees them.
    """

    name: str
    title: str
    rules: tuple[AuditRule, ...]
    replaced: Mapping[str, tuple[str, frozenset[str]]] = field(default_factory=dict)

    def replaced_by_hook(self, rule: AuditRule, subject: Subject) -> Finding | None:
        """Return the finding about a rule whose code a hook replaces, otherwise None."""
        for hook, (reason, ids) in self.replaced.items():
            if rule.id in ids and any(hook in consumer.hooks for consumer in subject.consumers):
                return not_applicable(reason)
        return None


def installed_profiles() -> dict[str, Profile]:
    """Load the profiles of installed packages, by name. Raises ConfigError for one that cannot be loaded."""
    profiles: dict[str, Profile] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            profile = point.load()
        except Exception as error:  # code of another package
            raise ConfigError(f"The profile {point.name!r} ({point.value}) cannot be loaded: {error!r}.") from error
        if not isinstance(profile, Profile) or profile.name != point.name:
            raise ConfigError(f"The entry point {point.name!r} ({point.value}) is no Profile of that name.")
        profiles[profile.name] = profile
    return profiles


def choose_profiles(names: Iterable[str], own: Profile) -> list[Profile]:
    """Return the named profiles; `own` if there are no names. Raises ConfigError for one that is not installed."""
    installed = {own.name: own, **installed_profiles()}
    missing = sorted(set(names) - set(installed))
    if missing:
        raise ConfigError(
            f"There is no profile {', '.join(map(repr, missing))}. Installed: {', '.join(installed)}."
            f" Packages provide profiles by an entry point of {GROUP!r}; neotool-common has standard, loop, pattern,"
            " fraud and spring."
        )
    return [installed[name] for name in dict.fromkeys(names)] or [own]
