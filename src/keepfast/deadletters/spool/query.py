"""Which letters of a spool are meant: by error, group, original place and time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from keepfast.core.errors import SpoolError
from keepfast.deadletters.spool.letters import SpooledLetter
from keepfast.deadletters.spool.store import Head, Reader

OffsetRange = tuple[int, int, int | None]
"""Partition, first offset, and the offset after the last; None: all from the first on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolQuery:
    """A letter is meant if it matches every given condition; of several values of one condition, any. Topic and
    offsets are the original record's. Its time is that of the last failure, or else of the spooling.
    """

    error_types: frozenset[str] = frozenset()
    """Short or with their module."""
    codes: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    offsets: tuple[OffsetRange, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def is_everything(self) -> bool:
        return self == SpoolQuery()

    def takes(self, spooled: SpooledLetter) -> bool:
        letter = spooled.letter
        at_ms = spooled.at_ms if letter.failed_at_ms is None else letter.failed_at_ms
        return (
            (not self.error_types or not self.error_types.isdisjoint({letter.error_type, letter.error_class}))
            and (not self.codes or letter.error_code in self.codes)
            and (not self.groups or letter.group in self.groups)
            and (not self.topics or letter.topic in self.topics)
            and (not self.offsets or any(_holds(one, letter.partition, letter.offset) for one in self.offsets))
            and (self.since_ms is None or at_ms >= self.since_ms)
            and (self.until_ms is None or at_ms < self.until_ms)
        )


def _holds(offsets: OffsetRange, partition: int | None, offset: int | None) -> bool:
    wanted, start, end = offsets
    return partition == wanted and offset is not None and start <= offset and (end is None or offset < end)


@runtime_checkable
class Queryable(Protocol):
    """A store that finds letters without reading them all."""

    def find(self, query: SpoolQuery, limit: int) -> list[Head]:
        """The oldest letters that are meant."""
        ...


def find(store: Reader, query: SpoolQuery, limit: int) -> list[Head]:
    """The oldest letters that are meant. Damaged ones match only if there is no condition. Raises SpoolError."""
    if query.is_everything:
        return store.heads(limit, lambda _: True)
    if isinstance(store, Queryable):
        return store.find(query, limit)
    return store.heads(limit, _reading(store, query))


def _reading(store: Reader, query: SpoolQuery) -> Callable[[Head], bool]:
    def wanted(head: Head) -> bool:
        try:
            return query.takes(store.read(head))
        except SpoolError:
            return False

    return wanted
