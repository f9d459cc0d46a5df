"""Planted bugs: each breaks the engine in one place, the way others broke theirs. The oracle has to notice.

A plant is named after its number in the list of pitfalls (how Kafka consumers lose, repeat, reorder or stall). Those
without a number break a promise that the list does not think of, or are bugs that this engine had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PLANTS: dict[str, Callable[[Patch], None]] = {}


class Patch:
    """Replaces attributes and puts them back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def set(self, target: Any, name: str, value: Any) -> Any:
        """Replace; returns what was there."""
        before = target.__dict__[name]
        self._before.append((target, name, before))
        setattr(target, name, value)
        return before

    def undo(self) -> None:
        for target, name, before in reversed(self._before):
            setattr(target, name, before)


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The engine with this bug in it. Raises KeyError if there is none of that name."""
    plant, patch = PLANTS[name], Patch()
    try:
        plant(patch)
        yield
    finally:
        patch.undo()


def plant(function: Callable[[Patch], None]) -> Callable[[Patch], None]:
    PLANTS[function.__name__] = function
    return function


# Importing the modules fills the table.
from simulation.plants import (  # noqa: E402
    batches,
    commits,
    crashes,
    guards,
    letters,
    order,
    ownership,
    retry_topics,
    spools,
    timeouts,
    workers,
)

__all__ = [
    "PLANTS",
    "batches",
    "commits",
    "crashes",
    "guards",
    "letters",
    "order",
    "ownership",
    "planted",
    "retry_topics",
    "spools",
    "timeouts",
    "workers",
]
