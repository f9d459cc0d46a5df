"""A set that is walked in the order in which its members came: walks must not depend on where objects lie in memory."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class OrderedSet(dict[T, None]):
    """What the engine needs of a set, and no more: the members are the keys."""

    __slots__ = ()

    add = dict.setdefault  # whose default is None

    def discard(self, member: T) -> None:
        self.pop(member, None)
