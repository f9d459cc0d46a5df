"""Seeks: an operator moves the position of a partition, backwards or forwards. Owner: the loop thread.

A seek is a new epoch of the partition, which stays assigned: what is in flight finishes (`revoke_timeout_s` at most),
the client starts again at the offset, the completion map is empty, and the new position is committed at once. Results
of the old epoch that come later are stale. The loop never waits for any of it; other partitions continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from msgspec import structs

from keepfast.core.errors import Fault, SourceError
from keepfast.core.events import Sought
from keepfast.core.ports import BEGINNING
from keepfast.core.records import TopicPartition
from keepfast.core.runs import Partition
from keepfast.engine.mailbox import DRAIN
from keepfast.engine.parts import LoopParts
from keepfast.telemetry.state import Problem, SeekResult

SeekTarget = int | Literal["beginning", "end"] | datetime
"""An offset, an edge of the log, or a time: the first record that is not older."""

ASK_S: Final = 2.0
"""For each question about the log. The loop waits for the answer."""
COMMIT_S: Final = 5.0
"""How long the answer waits for the commit of the new position, after the time for what is in flight."""

SeekAnswer = Callable[[SeekResult | Problem], None]


@dataclass(slots=True)
class _Seek:
    """`partition` is the old epoch until `moved`, then the new one."""

    partition: Partition
    to: int
    edges: tuple[int, int]
    answer: SeekAnswer
    drain_until: float
    answer_by: float
    moved: SeekResult | None = None


class Seeks:
    """The seeks under way, at most one for each partition. Each is answered once, on the loop's thread."""

    def __init__(self, parts: LoopParts) -> None:
        self._parts = parts
        self._source = parts.ports.source
        self.under_way: dict[TopicPartition, _Seek] = {}

    def plan(self, place: TopicPartition, to: SeekTarget) -> SeekResult | Problem:
        """What a seek would do now. Blocks for two questions about the log, ASK_S each."""
        found = self._resolve(place, to)
        if isinstance(found, Problem):
            return found
        partition, offset, edges = found
        return self._result(partition, offset, edges)

    def begin(self, place: TopicPartition, to: SeekTarget, answer: SeekAnswer, now: float) -> None:
        """Start a seek. Blocks as `plan` does."""
        found = self._resolve(place, to)
        if isinstance(found, Problem):
            answer(found)
            return
        partition, offset, edges = found
        drain_until = now + self._parts.plan.revoke_timeout_s
        self.under_way[place] = _Seek(partition, offset, edges, answer, drain_until, drain_until + COMMIT_S)
        self._parts.handover.close_down([place])
        self._source.pause([place])  # what it would fetch meanwhile would be dropped

    def step(self, now: float) -> None:
        """Outside callbacks: move what has drained, answer what is committed."""
        for place, seek in list(self.under_way.items()):
            if seek.moved is None and DRAIN in self._parts.holds:
                self._cancel(place, "the consumer stops")
            elif seek.moved is not None:
                self._confirm(place, seek, seek.moved, now)
            elif now >= seek.drain_until or not (
                seek.partition.running or seek.partition.failed_records or seek.partition.reporting
            ):
                self._move(place, seek)

    def leaving(self, places: Sequence[TopicPartition]) -> None:
        """These partitions are being revoked, or are lost. After the last commit of them, before they are forgotten."""
        for place in places:
            seek = self.under_way.get(place)
            if seek is not None and seek.moved is not None and _is_committed(seek.partition):
                self._answer(place, seek.moved)
            elif seek is not None:
                self._cancel(place, "the partition was revoked")

    def end(self) -> None:
        """The loop ends."""
        for place, seek in list(self.under_way.items()):
            if seek.moved is not None and _is_committed(seek.partition):
                self._answer(place, seek.moved)
            else:
                self._cancel(place, "the consumer ends")

    def _resolve(self, place: TopicPartition, to: SeekTarget) -> tuple[Partition, int, tuple[int, int]] | Problem:
        """The partition, the offset and the edges of its log; or why it cannot be sought."""
        parts = self._parts
        if DRAIN in parts.holds or parts.holds.halted is not None:
            return Problem(error="The consumer stops: seek after its restart.")
        if place in self.under_way:
            return Problem(error=f"A seek of {place} is under way: wait for its end.")
        if place in parts.assignment.unpositioned:
            return Problem(error=f"{place} has no position yet: its committed offset could not be read. Try again.")
        partition = parts.ownership.get(place)
        if partition is None or partition.closing:
            return Problem(error=f"{place} is not assigned to this process.", elsewhere=True)
        try:
            first, end = self._source.edges(place, ASK_S)
            offset = self._offset(place, to, first, end)
        except SourceError as error:
            again = "" if error.fault is Fault.FATAL else "; try again"
            return Problem(error=f"{error} Nothing was changed{again}.")
        if not first <= offset <= end:
            return Problem(error=f"Offset {offset} is outside the log of {place}, which has {first} to {end}.")
        return partition, offset, (first, end)

    def _offset(self, place: TopicPartition, to: SeekTarget, first: int, end: int) -> int:
        match to:
            case "beginning":
                return first
            case "end":
                return end
            case datetime():
                found = self._source.at_time(place, int(to.timestamp() * 1000), ASK_S)
                return end if found is None else found
            case int():
                return to

    def _result(self, partition: Partition, to: int, edges: tuple[int, int], *, done: bool = False) -> SeekResult:
        return _seek_result(partition, to, edges, done=done, inbox=self._parts.plan.has_inbox)

    def _move(self, place: TopicPartition, seek: _Seek) -> None:
        parts, old = self._parts, seek.partition
        state = self._result(old, seek.to, seek.edges, done=True)
        try:
            partition = parts.assignment.begin_at(old, seek.to, parts.handover)
        except SourceError as error:
            self._cancel(place, f"the client could not be moved ({error}); it continues at the committed offset")
            return
        if partition is None:
            self._cancel(place, "the topic was deleted and created again meanwhile")
            return
        seek.partition, seek.moved = partition, state
        parts.committer.commit_soon(partition)
        parts.events.emit(Sought(*parts.events.source, **place._asdict(), offset=state.position, to=seek.to))

    def _confirm(self, place: TopicPartition, seek: _Seek, moved: SeekResult, now: float) -> None:
        if _is_committed(seek.partition):
            self._answer(place, moved)
        elif now >= seek.answer_by:
            self._answer(place, structs.replace(moved, committed=False))

    def _cancel(self, place: TopicPartition, why: str) -> None:
        seek = self.under_way[place]
        if seek.moved is not None:
            self._answer(place, Problem(error=f"{place} was moved, and {why} before the broker confirmed the commit."))
        else:
            self._answer(place, Problem(error=f"{place} was not moved: {why}."))

    def _answer(self, place: TopicPartition, answer: SeekResult | Problem) -> None:
        self.under_way.pop(place).answer(answer)


def _is_committed(partition: Partition) -> bool:
    """Whether the broker is known to hold a position of this epoch."""
    return partition.committed[0] != BEGINNING


def _seek_result(partition: Partition, to: int, edges: tuple[int, int], *, done: bool, inbox: bool) -> SeekResult:
    """What a seek to this offset repeats and skips. Finished records above the position are repeated, too, from `to`
    on: the new epoch begins without a completion map.
    """
    finished = partition.ledger.completion()
    position, bits = (finished.base, finished.to_int()) if finished.base >= 0 else (edges[0], 0)
    if to <= position:
        repeats, skips = position - to + bits.bit_count(), 0
    else:
        repeats = (bits >> (to - position)).bit_count()
        skips = to - position - (bits.bit_count() - repeats)
    return SeekResult(
        **partition.place._asdict(),
        position=position,
        to=to,
        repeats=repeats,
        skips=skips,
        first=edges[0],
        end=edges[1],
        done=done,
        committed=done,
        inbox=inbox,
    )
