"""Plans a reset of a group's offsets, from committed offsets and a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from keepfast.core.records import TopicPartition

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ToEdge:
    """The first offset of each partition, or the end."""

    latest: bool = False


@dataclass(frozen=True, slots=True)
class ToOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """This many offsets forward, or backward if negative; from the first record where nothing is committed."""

    count: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record that is not older."""

    at_ms: int


Target = ToEdge | ToOffset | ShiftBy | ToTime


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOffset:
    """One partition of a plan. `start` and `end` are its first offset and the one after its last; `wanted` is what the
    target names, which may lie outside of them, and `offset` the nearest one that does not.
    """

    place: TopicPartition
    committed: int | None
    start: int
    end: int
    wanted: int

    @property
    def offset(self) -> int:
        return min(max(self.wanted, self.start), self.end)

    @property
    def again(self) -> int:
        """Offsets that the group has passed and will read again."""
        return max(0, self._position - self.offset)

    @property
    def skipped(self) -> int:
        """Offsets that the group has not read and never will."""
        return max(0, self.offset - self._position)

    @property
    def changed(self) -> bool:
        return self.offset != self.committed

    @property
    def _position(self) -> int:
        return min(max(self.start if self.committed is None else self.committed, self.start), self.end)


def plan_reset(
    target: Target,
    spans: Mapping[TopicPartition, Span],
    committed: Mapping[TopicPartition, int | None],
    by_time: Mapping[TopicPartition, int],
) -> list[PlannedOffset]:
    """One row per partition. Offsets outside of a partition become its first or its end. `by_time`: for `ToTime`."""
    return [
        PlannedOffset(
            place=place,
            committed=committed.get(place),
            start=start,
            end=end,
            wanted=_wanted(target, place, committed.get(place), (start, end), by_time),
        )
        for place, (start, end) in sorted(spans.items())
    ]


def _wanted(
    target: Target, place: TopicPartition, committed: int | None, span: Span, by_time: Mapping[TopicPartition, int]
) -> int:
    start, end = span
    match target:
        case ToEdge(latest):
            return end if latest else start
        case ToOffset(offset):
            return offset
        case ShiftBy(count):
            return (start if committed is None else committed) + count
        case ToTime():
            return by_time.get(place, end)


def totals(plan: Sequence[PlannedOffset]) -> tuple[int, int]:
    """Offsets that are read again, and those that are skipped."""
    return sum(one.again for one in plan), sum(one.skipped for one in plan)
