"""Rate limits in the loop: a partition that has used its rate up is held, and a timer lets it go on.

Owner: the loop thread.
"""

from __future__ import annotations

from keepfast.core.batches import Batch
from keepfast.core.lanes import Lanes
from keepfast.core.pace import Pace, RatePolicy
from keepfast.core.partitions import Partition
from keepfast.core.records import TopicPartition
from keepfast.core.runs import Run
from keepfast.engine.timers import Timers

RATE = "rate"
"""The hold on a partition whose own rate is used up."""


class Pacing:
    """Lanes wait here, no thread does."""

    def __init__(self, policy: RatePolicy, lanes: Lanes) -> None:
        self._pace = Pace(policy)
        self._lanes = lanes
        self._until: float | None = None  # nothing of the consumer may start before
        self._held: Timers[Partition] = Timers()

    def wait_s(self, now: float) -> float:
        """Seconds until a record may start at all; 0: now. Whoever is told to wait is woken up in time."""
        wait_s = self._pace.wait_s(now)
        if wait_s > 0:
            self._until = now + wait_s
        return wait_s

    def started(self, run: Run, now: float) -> None:
        """A run of one record; or a batch, which is all of its records at once, and what comes next waits for them."""
        for part in run.parts if isinstance(run, Batch) else (run,):
            partition = part.partition
            for _ in part.messages:
                self._pace.started(partition.place, now)
            wait_s = self._pace.partition_wait_s(partition.place, now)
            if wait_s > 0:
                partition.holds.add(RATE)
                self._held.add(now + wait_s, partition)

    def step(self, now: float) -> None:
        """Let those go on whose time has come."""
        if self._until is not None and now >= self._until:
            self._until = None
        for partition in self._held.due(now):
            if partition.live:
                partition.holds.discard(RATE)
                self._lanes.ready(partition)

    def next_in(self, now: float) -> float:
        """Seconds until somebody may go on."""
        until_s = float("inf") if self._until is None else max(0.0, self._until - now)
        return min(until_s, self._held.next_in(now))

    def forget(self, place: TopicPartition) -> None:
        self._pace.forget(place)
