"""Under which keys an exception is known, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, Protocol, TypeGuard

from keepfast.classify.rules.plan import Step, planned

_MOST_PLANS: Final = 2048


class Budget(Protocol):
    """How many more errors may be looked at: a group or a chain may hold millions."""

    left: int


class Seeker:
    """Walks an exception along its classes. `shelves` are the keys that somebody asks for, the others are left out.

    Any thread may ask; what is remembered about classes is the same whoever writes it.
    """

    def __init__(self, shelves: tuple[Collection[str], ...]) -> None:
        self._shelves = shelves
        self._plans: dict[int, tuple[type, tuple[Step, ...]]] = {}

    def keys(self, error: BaseException, budget: Budget) -> Iterator[tuple[str, BaseException]]:
        """Each key with the error that it is about: the error itself, or one that it wraps."""
        for step in self.plan(type(error)):
            for reader in step.readers:
                for key in reader.keys(error) if reader.keys is not None else ():
                    yield key, error
                inner = reader.inner(error) if reader.inner is not None else None
                if is_error(inner) and budget.left > 0:
                    budget.left -= 1
                    yield from self.keys(inner, budget)
            for name in step.names:
                yield name, error

    def plan(self, cls: type) -> tuple[Step, ...]:
        kept = self._plans.get(id(cls))
        if kept is not None and kept[0] is cls:
            return kept[1]
        plan = planned(cls, self._shelves)
        if len(self._plans) >= _MOST_PLANS:  # classes made at run time must not fill the memory
            self._plans.clear()
        self._plans[id(cls)] = (cls, plan)  # by identity: a metaclass may refuse to be hashed
        return plan


def wider(key: str) -> str | None:
    """The family that a key belongs to: http:503 is also http:5xx, sqlstate:40P01 also sqlstate:40."""
    if key.startswith("http:"):
        return f"http:{key[5]}xx"
    return key[:11] if key.startswith("sqlstate:") else None


def is_error(value: object) -> TypeGuard[BaseException]:
    return issubclass(type(value), BaseException)  # not isinstance: that asks the value itself
