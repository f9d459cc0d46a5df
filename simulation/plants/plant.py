"""How a bug is planted, and the table of all of them."""

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


def plant_for_good(name: str | None) -> None:
    """In a process of its own. It lives in a module that other processes can import, as `__main__` of a package cannot
    be.
    """
    if name is not None:
        PLANTS[name](Patch())


def plant(function: Callable[[Patch], None]) -> Callable[[Patch], None]:
    PLANTS[function.__name__] = function
    return function
