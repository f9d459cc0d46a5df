"""Chooses the retry policy of an error: a default, and others by key.

A policy says how often and when, never whether: an error that the rules call final is dead-lettered at once, even if a
policy names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from keepfast.classify.rules.error_keys import KeyFinder, family_of, is_error
from keepfast.classify.rules.readers import attribute
from keepfast.classify.rules.rule_book import MAX_ERRORS
from keepfast.core.policies import RetryPolicy


@dataclass(slots=True)
class _Budget:
    left: int = MAX_ERRORS


class RetryPolicies:
    """Thread-safe. `by_error` are pairs of a key, as in rules, and a policy; the first policy of a key counts.

    As with rules, the most derived class decides, and keys that are read from the error (`http:429`) take precedence
    over the general class. If nothing matches, the members of a group are checked in order, then the causes.
    """

    def __init__(self, default: RetryPolicy, by_error: Iterable[tuple[str, RetryPolicy]] = ()) -> None:
        self.default: Final = default
        named: dict[str, RetryPolicy] = {}
        for key, policy in by_error:
            named.setdefault(key, policy)
        self.by_error: Final[Mapping[str, RetryPolicy]] = named
        self._key_finder: Final = KeyFinder((named,))

    def of(self, error: BaseException) -> RetryPolicy:
        """The policy for this error. Never raises, whatever the error is or does."""
        return self.find(error)[1]

    def find(self, error: BaseException) -> tuple[str, RetryPolicy]:
        """The matching key and its policy; "" and the default if none matches. Never raises."""
        if self.by_error:
            try:
                key = self._key(error, _Budget())
            except BaseException:  # noqa: BLE001 - an unreadable error gets the default
                key = None
            if key is not None:
                return key, self.by_error[key]
        return "", self.default

    def of_key(self, key: str) -> tuple[str, RetryPolicy]:
        """The matching key and policy for an error of which only this key is known."""
        known = self._named(key)
        return ("", self.default) if known is None else (known, self.by_error[known])

    def of_class(self, cls: type[BaseException]) -> tuple[str, RetryPolicy]:
        """The matching key and policy for an error of this class, without reading an instance."""
        names = (name for step in self._key_finder.plan(cls) for name in step.names)
        known = next(names, None)
        return ("", self.default) if known is None else (known, self.by_error[known])

    def _named(self, key: str) -> str | None:
        return next((each for each in (key, family_of(key)) if each is not None and each in self.by_error), None)

    def _key(self, error: BaseException, budget: _Budget) -> str | None:
        budget.left -= 1
        if budget.left < 0:
            return None
        for key, _ in self._key_finder.keys(error, budget):
            found = self._named(key)
            if found is not None:
                return found
        members = attribute(error, "exceptions") if issubclass(type(error), BaseExceptionGroup) else None
        if type(members) is tuple:
            for member in members[: max(0, budget.left)]:
                found = self._key(member, budget) if is_error(member) else None
                if found is not None:
                    return found
        cause = attribute(error, "__cause__")
        return self._key(cause, budget) if is_error(cause) else None
