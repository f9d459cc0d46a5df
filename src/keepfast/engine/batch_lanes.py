"""Lanes that hand out batches: what may start is gathered until it is enough, or until it has waited long enough."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from keepfast.core.batches import Batch, as_batch
from keepfast.core.lanes import Holder, Lanes, lanes_for
from keepfast.core.policies import BatchPolicy
from keepfast.core.ports import Clock
from keepfast.core.runs import FailedRecord, OrderedSet, Partition, Run
from keepfast.engine.plan import Plan
from keepfast.engine.timers import Timers


def lanes_of(plan: Plan, clock: Clock) -> Lanes:
    """The lanes of a consumer's order; for a handler that takes lists, they give batches."""
    lanes = lanes_for(plan.order)
    return lanes if plan.batch is None else BatchLanes(lanes, plan.batch, clock)


class BatchLanes:
    """Implements `core.lanes.Lanes` on top of the lanes of an order, which keep it: a batch is made of runs that they
    gave, and each of these holds its lanes from when it is gathered until it is finished. Owner: the loop thread.

    A batch that failed waits here, with its lanes, until it is to run again.
    """

    def __init__(self, lanes: Lanes, policy: BatchPolicy, clock: Clock) -> None:
        self._lanes = lanes
        self._policy = policy
        self._clock = clock
        self._parts: list[Run] = []  # gathered so far
        self._surplus: Run | None = None  # did not fit: the first part of the next batch
        self._due: float | None = None  # when what is gathered goes out, enough or not
        self._waited: set[Partition] = set()  # of which records were gathered before: they need not wait again
        self._kept: OrderedSet[Batch] = OrderedSet()  # waiting, or about to run again
        self._timers: Timers[Batch] = Timers(self._kept.__contains__)
        self._again: deque[Batch] = deque()
        self._at_once = False  # what there is, without waiting for more: suspects are tried
        self._singly = False  # batches of one record: one of them may be a killer
        self._owing: dict[Batch, Callable[[float], None]] = {}  # what happens when all that is done is committed

    def hand_out_at_once(self, *, on: bool, singly: bool = False) -> None:
        """Hand out batches of what there is, or of one record, because there may be a killer; or as the policy says."""
        self._at_once, self._singly = on, singly

    # -- what is handed out

    def take(self, limit: int, size: int) -> list[Run]:  # noqa: ARG002 - the policy says how many
        """Up to `limit` batches: first those that run again."""
        now = self._clock.monotonic()
        self._again.extend(self._timers.due(now))
        batches: list[Run] = list(self._take_again(limit, now))
        while len(batches) < limit:
            batch = self._gather(now)
            if batch is None:
                break
            batches.append(batch)
        return batches

    def _take_again(self, limit: int, now: float) -> list[Batch]:
        batches: list[Batch] = []
        for _ in range(len(self._again)):
            if len(batches) >= limit:
                break
            batch = self._again.popleft()
            if batch not in self._kept:
                continue
            if all(part.partition.startable for part in batch.parts):
                self._kept.discard(batch)
                batch.muster(now)
                batches.append(batch)
            else:
                self._again.append(batch)
        return batches

    def _gather(self, now: float) -> Batch | None:
        room = self._fill()
        if not self._parts:
            return None
        if self._due is None or self._at_once:
            self._due = now + (0.0 if self._at_once else self._policy.wait_s)
        if self._waited:
            waited = {part.partition for part in self._parts} & self._waited
            self._waited -= waited
            self._due = now if waited else self._due
        if room > 0 and self._surplus is None and now < self._due:
            return None
        parts, self._parts = self._parts, [] if self._surplus is None else [self._surplus]
        self._surplus = self._due = None
        held = [part for part in parts if not part.partition.startable]
        for part in held:
            self._lanes.give_back(part)
        if len(held) == len(parts):
            return None
        batch = Batch([part for part in parts if part.partition.startable])
        batch.muster(now)
        return batch

    def _fill(self) -> int:
        """Gather what may start; returns how many more records there would be room for."""
        room = (1 if self._singly else self._policy.size) - sum(len(part.messages) for part in self._parts)
        for part in self._parts:
            before = len(part.messages)
            self._lanes.lengthen(part, before + room)
            room -= len(part.messages) - before
        while room > 0 and self._surplus is None:
            runs = self._lanes.take(1, room)
            if not runs:
                break
            if self._parts and len(runs[0].messages) > room:
                self._surplus = runs[0]
            else:
                self._parts.append(runs[0])
                room -= len(runs[0].messages)
        return room

    def due_in(self, now: float) -> float:
        """Seconds until something is due. What is overdue waits for room or for a hold to go, not for time."""
        gathered = float("inf") if self._due is None or self._due <= now else self._due - now
        return min(gathered, self._timers.next_in(now))

    # -- batches that failed

    @property
    def kept(self) -> list[Batch]:
        """Batches that failed and wait, or are about to run again."""
        return list(self._kept)

    def wait(self, batch: Batch, until: float) -> None:
        """It runs again then, with the same records, and keeps its lanes until then."""
        self._kept.add(batch)
        self._timers.add(until, batch)

    def again(self, batch: Batch) -> None:
        """It continues as soon as there is room."""
        self._kept.add(batch)
        self._again.append(batch)

    def take_back(self, run: Run) -> None:
        """It continues as soon as it may, without what is not ours any more."""
        batch = as_batch(run)
        if batch is None:
            self._lanes.take_back(run)
            return
        for part in batch.parts:
            if part.partition.closing or not part.partition.live:
                self._lanes.give_back(part)
        batch.parts = [part for part in batch.parts if part.partition.live and not part.partition.closing]
        if batch.parts:
            self.again(batch)

    def when_committed(self, batch: Batch, then: Callable[[float], None], now: float) -> None:
        """Its records are about to go different ways. Under commit="each" a lane must not continue before what was done
        of it is committed; so they keep their lanes until then.
        """
        if batch.heads:
            self._owing[batch] = then
        else:
            then(now)

    def settle(self, now: float) -> None:
        """What waited for a commit that is confirmed now."""
        if self._owing:
            for owing in [owing for owing in self._owing if not owing.heads]:
                self._owing.pop(owing)(now)

    def put_back(self, parts: Sequence[Run]) -> None:
        """These records are to be collected again. They have waited already."""
        for part in parts:
            self._lanes.give_back(part)
            self._waited.add(part.partition)

    def drop(self, partition: Partition) -> None:
        self._lanes.drop(partition)
        self._waited.discard(partition)
        self._parts = self._without(self._parts, partition)
        if self._surplus is not None and not self._without([self._surplus], partition):
            self._surplus = None
        emptied = 0
        for batch in [*self._kept, *self._owing]:
            batch.parts = self._without(batch.parts, partition)
            if not batch.parts:
                emptied += 1
                self._kept.discard(batch)
                self._owing.pop(batch, None)
        self._timers.dropped(emptied)

    def _without(self, parts: list[Run], partition: Partition) -> list[Run]:
        for part in parts:
            if part.partition is partition:
                self._lanes.give_back(part)
        return [part for part in parts if part.partition is not partition]

    # -- the lanes below

    def ready(self, partition: Partition) -> None:
        self._lanes.ready(partition)

    def grow(self, size: int) -> None:
        """A batch that is out stays as it is."""

    def lengthen(self, run: Run, size: int) -> None:
        self._lanes.lengthen(run, size)

    def relieve(self, run: Run) -> None:
        """Nothing of a batch can be taken from it: it is one call."""

    def replace(self, run: Run, other: Run) -> None:
        for part, stand_in in zip(run.parts, other.parts, strict=True):
            self._lanes.replace(part, stand_in)

    def release(self, holder: Holder) -> None:
        self._lanes.release(holder)
        batch = as_batch(holder.batch) if isinstance(holder, Run) else None
        if batch is not None and holder in batch.heads:
            batch.heads.remove(holder)

    def waiting_behind(self, holder: Holder, *, full: bool) -> list[Partition]:
        waiting = self._lanes.waiting_behind(holder, full=full)
        return [*waiting, *(part.partition for part in self._parts)] if full else waiting

    def queued_behind(self, holder: Holder, key: bytes | None) -> int:
        return self._lanes.queued_behind(holder, key)

    def split(self, run: Run, now: float) -> FailedRecord:
        return self._lanes.split(run, now)

    def extract(self, run: Run, at: Sequence[int], now: float) -> list[FailedRecord]:
        self._waited.add(run.partition)
        return self._lanes.extract(run, at, now)

    def cut(self, run: Run, at: Sequence[int]) -> Run:
        return self._lanes.cut(run, at)

    def give_back(self, run: Run) -> None:
        self._lanes.give_back(run)
