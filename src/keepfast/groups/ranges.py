"""Ranges of offsets that are to be processed again: which records, of which partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from keepfast.core.errors import ConfigError
from keepfast.core.records import TopicPartition

Span = tuple[int, int]
"""The first offset, and the one after the last."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one partition, `end` exclusive."""

    place: TopicPartition
    start: int
    end: int

    @property
    def count(self) -> int:
        """Offsets in it; transactions and compaction leave some without a record."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.place.partition}:{self.start}-{self.end - 1}"


def by_time(
    spans: Mapping[TopicPartition, Span],
    since: Mapping[TopicPartition, int],
    until: Mapping[TopicPartition, int] | None,
) -> list[OffsetRange]:
    """From the first record that is not older than a time to the end, or to the first that is not older than another.
    `since` and `until` have these offsets; a partition without one has no such record.
    """
    found = []
    for place, (low, high) in sorted(spans.items()):
        start = max(low, since.get(place, high))
        end = high if until is None else min(high, until.get(place, high))
        if start < end:
            found.append(OffsetRange(place, start, end))
    return found


def by_offsets(
    spans: Mapping[TopicPartition, Span], wanted: Sequence[tuple[TopicPartition, int, int | None]]
) -> list[OffsetRange]:
    """What there is of the ranges that are named; None: to the end. Raises ConfigError."""
    found: list[OffsetRange] = []
    for place, first, last in wanted:
        if place not in spans:
            raise ConfigError(f"There is no partition {place}.")
        if any(one.place == place for one in found):
            raise ConfigError(f"--offsets names partition {place.partition} twice; write one range for each.")
        low, high = spans[place]
        start, end = max(low, first), high if last is None else min(high, last)
        if start < end:
            found.append(OffsetRange(place, start, end))
    return found


def without_gap(
    ranges: Sequence[OffsetRange], last_record: Callable[[TopicPartition, int, int], int | None]
) -> list[OffsetRange]:
    """The same, each to its last record: behind it may be offsets of transaction markers, which no one commits past.
    `last_record` finds the offset of the last record of a partition from one offset to below another.
    """
    found = []
    for one in ranges:
        last = last_record(one.place, one.start, one.end)
        if last is not None:
            found.append(OffsetRange(one.place, one.start, last + 1))
    return found
