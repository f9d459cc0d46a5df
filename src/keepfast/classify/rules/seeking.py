"""Under which keys an exception is known, in the order in which they are asked.

In which order an exception is read and looked up, worked out once a class.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, TypeGuard

from keepfast.classify.rules.reading import READERS, ErrorReader
from keepfast.classify.rules.rule import name_of
from keepfast.core.errors import DecodeError, HandlerTimeout, Signal

_MRO = type.__dict__["__mro__"].__get__  # past whatever a metaclass does
_MAX_PARTS = 12
_SAID = (Signal, DecodeError, HandlerTimeout)


@dataclass(frozen=True, slots=True)
class Step:
    """What is asked about an exception at one of its classes: how to read it, then under which names it is known."""

    readers: tuple[ErrorReader, ...]
    names: tuple[str, ...]


def planned(cls: type, shelves: tuple[Collection[str], ...]) -> tuple[Step, ...]:
    """The steps for a class: a reader stands at the first class of its library, or, as a last resort, at its own.

    What the handler, or keepfast, says on purpose is known by its own names alone: a rule for all of `Exception` means
    accidents, and must not bury what was to be discarded.
    """
    mro = _MRO(cls)
    said = [place for place, base in enumerate(mro) if any(base is one for one in _SAID)]
    classes = [_names(base) for base in (mro[: said[0] + 1] if said else mro)]
    packages = [names[0].partition(".")[0] for names in classes]
    readers: dict[int, list[ErrorReader]] = {}
    for place, names in enumerate(classes):
        for reader in next((READERS[name] for name in names if name in READERS), ()):
            at = place if reader.last_resort else packages.index(packages[place])
            readers.setdefault(at, []).append(reader)
    steps = []
    for place, names in enumerate(classes):
        known = tuple(name for name in names if any(name in shelf for shelf in shelves))
        if known or place in readers:
            steps.append(Step(tuple(readers.get(place, ())), known))
    return tuple(steps)


def _names(cls: type) -> tuple[str, ...]:
    """Its full name, and the shorter ones under which its packages may show it: a.b.c.E is also a.b.E and a.E."""
    full = name_of(cls)
    module, _, qualname = full.rpartition(".") if "<locals>" not in full else ("", "", full)
    parts = module.split(".")[:_MAX_PARTS] if module else []
    return (full, *(f"{'.'.join(parts[:end])}.{qualname}" for end in range(len(parts) - 1, 0, -1)))


_MAX_PLANS: Final = 2048


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
        if len(self._plans) >= _MAX_PLANS:  # classes made at run time must not fill the memory
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
