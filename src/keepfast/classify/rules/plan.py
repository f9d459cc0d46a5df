"""In which order an exception is read and looked up, worked out once a class."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from keepfast.classify.rules.reading import READERS, Reader
from keepfast.classify.rules.rule import name_of
from keepfast.core.errors import DecodeError, HandlerTimeout, Signal

_MRO = type.__dict__["__mro__"].__get__  # past whatever a metaclass does
_MOST_PARTS = 12
_SAID = (Signal, DecodeError, HandlerTimeout)


@dataclass(frozen=True, slots=True)
class Step:
    """What is asked about an exception at one of its classes: how to read it, then under which names it is known."""

    readers: tuple[Reader, ...]
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
    readers: dict[int, list[Reader]] = {}
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
    parts = module.split(".")[:_MOST_PARTS] if module else []
    return (full, *(f"{'.'.join(parts[:end])}.{qualname}" for end in range(len(parts) - 1, 0, -1)))
