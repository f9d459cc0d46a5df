"""The keys of an exception, in the order in which they are looked up. The order is computed once per class."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, TypeGuard

from keepfast.classify.rules.readers import READERS, ErrorReader
from keepfast.classify.rules.rule import name_of
from keepfast.core.errors import DecodeError, HandlerTimeout, Signal

_MRO = type.__dict__["__mro__"].__get__  # bypasses metaclasses
_MAX_PARTS = 12
_EXPLICIT = (Signal, DecodeError, HandlerTimeout)


@dataclass(frozen=True, slots=True)
class Step:
    """What is looked up at one class of an exception: first the keys that readers extract, then the names."""

    readers: tuple[ErrorReader, ...]
    names: tuple[str, ...]


def steps_for(cls: type, indexes: tuple[Collection[str], ...]) -> tuple[Step, ...]:
    """The steps for a class: a reader runs at the first class of its library, or, as a last resort, at its own.

    Signals of the handler and of keepfast match only their own names: a rule for `Exception` is meant for accidents and
    must not dead-letter a record that is to be discarded.
    """
    mro = _MRO(cls)
    explicit = [place for place, base in enumerate(mro) if any(base is one for one in _EXPLICIT)]
    classes = [_names(base) for base in (mro[: explicit[0] + 1] if explicit else mro)]
    packages = [names[0].partition(".")[0] for names in classes]
    readers: dict[int, list[ErrorReader]] = {}
    for place, names in enumerate(classes):
        for reader in next((READERS[name] for name in names if name in READERS), ()):
            at = place if reader.last_resort else packages.index(packages[place])
            readers.setdefault(at, []).append(reader)
    steps = []
    for place, names in enumerate(classes):
        known = tuple(name for name in names if any(name in index for index in indexes))
        if known or place in readers:
            steps.append(Step(tuple(readers.get(place, ())), known))
    return tuple(steps)


def _names(cls: type) -> tuple[str, ...]:
    """The full name, and the shorter ones under which packages may re-export it: a.b.c.E is also a.b.E and a.E."""
    full = name_of(cls)
    module, _, qualname = full.rpartition(".") if "<locals>" not in full else ("", "", full)
    parts = module.split(".")[:_MAX_PARTS] if module else []
    return (full, *(f"{'.'.join(parts[:end])}.{qualname}" for end in range(len(parts) - 1, 0, -1)))


_MAX_PLANS: Final = 2048


class Budget(Protocol):
    """How many more errors may be read: a group or a chain may contain millions."""

    left: int


class KeyFinder:
    """Yields the keys of an exception in order. `indexes` contain the names of interest; other names are skipped.

    Thread-safe: concurrent callers cache the same steps per class.
    """

    def __init__(self, indexes: tuple[Collection[str], ...]) -> None:
        self._indexes = indexes
        self._plans: dict[int, tuple[type, tuple[Step, ...]]] = {}

    def keys(self, error: BaseException, budget: Budget) -> Iterator[tuple[str, BaseException]]:
        """Each key with its error: the error itself, or one that it wraps."""
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
        cached = self._plans.get(id(cls))
        if cached is not None and cached[0] is cls:
            return cached[1]
        plan = steps_for(cls, self._indexes)
        if len(self._plans) >= _MAX_PLANS:  # classes created at run time must not fill the memory
            self._plans.clear()
        self._plans[id(cls)] = (cls, plan)  # by identity: a metaclass may make it unhashable
        return plan


def family_of(key: str) -> str | None:
    """The family of a key, or None: http:503 belongs to http:5xx, sqlstate:40P01 to sqlstate:40."""
    if key.startswith("http:"):
        return f"http:{key[5]}xx"
    return key[:11] if key.startswith("sqlstate:") else None


def is_error(value: object) -> TypeGuard[BaseException]:
    return issubclass(type(value), BaseException)  # not isinstance, which calls the value itself
