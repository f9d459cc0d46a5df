"""Which retry policy holds for an error: one for all, and others by what the error is.

A policy says how often and when, never whether: an error that the rules call final is buried at once, whatever policy
is named for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from keepfast.classify.rules.book import MAX_ERRORS
from keepfast.classify.rules.reading import attribute
from keepfast.classify.rules.seeking import Seeker, is_error, wider
from keepfast.core.policies import RetryPolicy


@dataclass(slots=True)
class _Left:
    left: int = MAX_ERRORS


class RetryPolicies:
    """Any thread may ask. `by_error` are pairs of a key, as rules have them, and a policy; of one key the first holds.

    As with rules, the most derived class decides, and what an error says about itself (`http:429`) goes before the
    general class. If nothing is named for it: the members of a group are asked one after another, and then the errors
    from which it was raised.
    """

    def __init__(self, usual: RetryPolicy, by_error: Iterable[tuple[str, RetryPolicy]] = ()) -> None:
        self.usual: Final = usual
        named: dict[str, RetryPolicy] = {}
        for key, policy in by_error:
            named.setdefault(key, policy)
        self.by_error: Final[Mapping[str, RetryPolicy]] = named
        self._seeker: Final = Seeker((named,))

    def of(self, error: BaseException) -> RetryPolicy:
        """Never raises, whatever the error is or does."""
        return self.found(error)[1]

    def found(self, error: BaseException) -> tuple[str, RetryPolicy]:
        """The policy, and the key by which it was found; "" for the usual one. Never raises."""
        if self.by_error:
            try:
                key = self._key(error, _Left())
            except BaseException:  # noqa: BLE001 - an error that cannot be looked at is like any other
                key = None
            if key is not None:
                return key, self.by_error[key]
        return "", self.usual

    def of_key(self, key: str) -> tuple[str, RetryPolicy]:
        """For an error of which only this key is known."""
        known = self._named(key)
        return ("", self.usual) if known is None else (known, self.by_error[known])

    def of_class(self, cls: type[BaseException]) -> tuple[str, RetryPolicy]:
        """For an error of this class that says nothing more about itself."""
        names = (name for step in self._seeker.plan(cls) for name in step.names)
        known = next(names, None)
        return ("", self.usual) if known is None else (known, self.by_error[known])

    def _named(self, key: str) -> str | None:
        return next((each for each in (key, wider(key)) if each is not None and each in self.by_error), None)

    def _key(self, error: BaseException, budget: _Left) -> str | None:
        budget.left -= 1
        if budget.left < 0:
            return None
        for key, _ in self._seeker.keys(error, budget):
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
