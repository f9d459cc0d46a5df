"""A set that is walked in the order in which its members came: walks must not depend on where objects lie in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class OrderedSet(Generic[T]):
    """What the engine needs of a set, and no more."""

    __slots__ = ("_members",)

    def __init__(self) -> None:
        self._members: dict[T, None] = {}

    def add(self, member: T) -> None:
        self._members[member] = None

    def update(self, members: Iterable[T]) -> None:
        self._members.update(dict.fromkeys(members))

    def discard(self, member: T) -> None:
        self._members.pop(member, None)

    def clear(self) -> None:
        self._members.clear()

    def __contains__(self, member: object) -> bool:
        return member in self._members

    def __iter__(self) -> Iterator[T]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)
