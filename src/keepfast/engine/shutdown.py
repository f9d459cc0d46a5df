"""The end of a consumer: nothing starts, what runs may finish, what is finished is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepfast.core.crash_guard import spans_of
from keepfast.core.runs import Batch, Partition, Run
from keepfast.engine.mailbox import DRAIN, Stop
from keepfast.telemetry.logs import get_logger

if TYPE_CHECKING:
    from keepfast.engine.loop import Loop


log = get_logger("keepfast.loop")

REPORT_S = 5.0


class Draining:
    """Owner: the loop thread. `deadline`: by when all must be over, monotonic; nothing may wait for longer.

    `leave`: see `Stop`.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._reported_at = 0.0
        self._counted = False
        self.deadline = float("inf")
        self.leave = False

    def begin(self, stop: Stop, now: float) -> None:
        """Cut all waits short and tell what runs to stop after its record; a second word can only hasten it."""
        loop = self._loop
        self.deadline = min(self.deadline, stop.deadline)
        self.leave = self.leave or stop.leave
        if DRAIN in loop.holds:
            return
        loop.holds.add(DRAIN)
        self._reported_at = now
        log.info("drain_started", consumer=loop.plan.name, in_flight=len(loop.in_flight))
        for run in loop.in_flight:
            run.stop = True
        loop.intake.close()
        for partition in loop.ownership:
            loop.lanes.drop(partition)
            loop.handover.drop_waiting(partition)
            if partition.watch is not None and partition.watch.drain() and partition.running:
                loop.committer.commit_soon(partition)  # somebody may end the process before what runs is finished

    def over(self, now: float) -> int | None:
        """None while it goes on; then how much was still being handled, buried or committed."""
        loop = self._loop
        settling = len(loop.failures.settling)
        waiting = len(loop.in_flight) + settling
        if waiting and now < self.deadline:
            self._report(now, records=waiting, letters=settling)
            return None
        if waiting:
            self._count_deaths()
        loop.handover.sign_off(loop.ownership)
        loop.committer.drain(now)
        awaited = sum(loop.committer.is_awaited(partition) for partition in loop.ownership)
        if awaited and now < self.deadline:
            self._report(now, commits=awaited)
            return None
        return waiting + sum(loop.committer.has_pending(partition) for partition in loop.ownership)

    def _count_deaths(self) -> None:
        """The deadline has passed with records in hand. If only a restart could help, these records are the cause: it
        counts as a death of the process. A record that is only slow is not to blame for a deploy.
        """
        loop = self._loop
        if self._counted or not loop.overdue.not_live:
            return
        self._counted = True
        culprits = loop.overdue.culprits()
        runs = [run for run in culprits if run in loop.in_flight] if culprits else list(loop.in_flight)
        for partition, offsets in _in_hand(runs).items():
            if partition.live and partition.watch is not None:
                partition.watch.count_death(spans_of((offset, offset + 1) for offset in offsets))
                loop.committer.mark_dirty(partition)
                log.error("handlers_never_ended", place=str(partition.place), offsets=offsets[:20], counts_as="a crash")

    def _report(self, now: float, *, records: int = 0, letters: int = 0, commits: int = 0) -> None:
        if now - self._reported_at >= REPORT_S:
            self._reported_at = now
            log.info("drain_waits", consumer=self._loop.plan.name, records=records, letters=letters, commits=commits)


def _in_hand(runs: list[Run]) -> dict[Partition, list[int]]:
    """The offsets that these runs are at, by partition; all of a batch."""
    found: dict[Partition, list[int]] = {}
    for run in runs:
        at = run.current
        if isinstance(run, Batch) and at >= 0:
            for part, seq in run.members():
                found.setdefault(part.partition, []).append(part.partition.ledger.offset_of(seq))
        elif 0 <= at < len(run.messages):
            found.setdefault(run.partition, []).append(run.messages[at].offset())
    return found
