"""Lanes: which records may start now without breaking the order that was asked for.

A lane is the unit of order: a partition, a (topic, key), or a single record. It is held by one *holder* at a time, a
run or a case, from the start of a record until that record is finished (and, under commit="each", committed). A lane
that nobody holds and nobody waits for costs nothing. Owner: the loop thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from keepfast.core.partitions import Partition
from keepfast.core.runs import Case, Run

Holder = Run | Case


class Lanes(Protocol):
    """The order of one consumer."""

    def ready(self, partition: Partition) -> None:
        """Something changed: records of this partition may be able to start."""

    def take(self, limit: int, size: int) -> list[Run]:
        """Up to `limit` new runs of up to `size` records, each holding its lanes from now on."""

    def due_in(self, now: float) -> float:
        """Seconds until `take` gives something that it would not give now, although nothing happens until then."""

    def grow(self, size: int) -> None:
        """Lengthen runs that are out, up to `size` records, by what has come since; their workers will find it.

        A worker that was just done does not: then the run comes back with records it did not do, as if stopped early.
        """

    def lengthen(self, run: Run, size: int) -> None:
        """The same for one run that is not out yet."""

    def relieve(self, run: Run) -> None:
        """The run was told to stop and hangs in a record: what it cannot start any more goes back at once, and so do
        the lanes of what was taken off it as finished (`Partition.take_stock`).
        """

    def replace(self, run: Run, other: Run) -> None:
        """`other` holds from now on what the run held. The two have the same keys."""

    def release(self, holder: Holder) -> None:
        """The holder lets go of its lanes; who waits behind it may start."""

    def waiting_behind(self, holder: Holder, *, full: bool) -> list[Partition]:
        """The holder is of an epoch that is over: partitions with records that wait for it to let go of a lane. `full`:
        nothing more may start, so whatever could start waits for it, too.
        """

    def split(self, run: Run, now: float) -> Case:
        """The run failed at record `run.done`: make a case of that record (it holds the lane) and put the rest back."""

    def extract(self, run: Run, at: Sequence[int], now: float) -> list[Case]:
        """Make cases of the records at these positions, each holding its lane, and put the rest back.

        Below `run.done`, and before each of them in its lane, everything must be finished. Those behind another one in
        its lane are no cases: they wait.
        """

    def cut(self, run: Run, at: Sequence[int]) -> Run:
        """Take the records at these positions out of the run, as a run that is done: it holds the lanes that the rest
        does not need. In each lane they must be the first ones.
        """

    def give_back(self, run: Run) -> None:
        """The run stopped early, without a failure: put back what it did not do."""

    def drop(self, partition: Partition) -> None:
        """Forget everything of this partition that is not in flight."""


class Queue:
    """Partitions that have something to start, each once, in turn."""

    __slots__ = ("partitions",)

    def __init__(self) -> None:
        self.partitions: deque[Partition] = deque()

    def add(self, partition: Partition) -> None:
        if not partition.queued and partition.buffer:
            partition.queued = True
            self.partitions.append(partition)

    def all(self) -> list[Partition]:
        """Those that may start, as they stand."""
        return [partition for partition in self.partitions if partition.buffer and partition.startable]

    def next(self) -> Partition | None:
        """The next one that may start; those that may not are left out until somebody adds them again."""
        while self.partitions:
            partition = self.partitions.popleft()
            partition.queued = False
            if partition.buffer and partition.live and not partition.closing and not partition.holds:
                return partition
        return None
