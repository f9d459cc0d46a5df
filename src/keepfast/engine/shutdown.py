"""The end of a consumer: nothing starts, what runs may finish, what is finished is committed."""

from __future__ import annotations

from keepfast.core.crash_guard import spans_of
from keepfast.core.events import DrainStarted
from keepfast.core.runs import Partition, Run
from keepfast.engine.guards import BREAKER
from keepfast.engine.mailbox import DRAIN, Ending, Stop
from keepfast.engine.parts import LoopParts
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.loop")

REPORT_S = 5.0


LEAVE_TIMEOUT_S = 1.0
"""For leaving the group when a consumer ends before its deadline."""


class Shutdown:
    """Owner: the loop thread. `deadline`: by when all must be over, monotonic; nothing may wait for longer.

    `leave`: see `Stop`. `failure`: why it cannot continue, from when that is known. `ending`: why it ended, from then
    on.
    """

    def __init__(self, parts: LoopParts) -> None:
        self._parts = parts
        self._reported_at = 0.0
        self._counted = False
        self.deadline = float("inf")
        self.leave = False
        self.failure: Ending | None = None
        self.ending: Ending | None = None

    def fail(self, failure: Ending) -> None:
        """It cannot continue. The first reason counts."""
        self.failure = self.failure or failure

    def end(self, ending: Ending, now: float) -> None:
        """It is over; little time is left to leave the group."""
        self.deadline = min(self.deadline, now + LEAVE_TIMEOUT_S)
        self.ending = ending
        self._parts.probation.leave()

    def abandon(self, now: float) -> None:
        """The loop itself has failed: its end is no better than the death of the process."""
        self.deadline = now
        self._parts.handover.abandon()
        self._parts.probation.leave()

    def begin(self, stop: Stop, now: float) -> None:
        """Cut all waits short and ask running runs to stop after their record; a second request can only shorten the
        time.
        """
        parts = self._parts
        self.deadline = min(self.deadline, stop.deadline)
        self.leave = self.leave or stop.leave
        if DRAIN in parts.holds:
            return
        parts.holds.add(DRAIN)
        self._reported_at = now
        parts.events.emit(DrainStarted(*parts.events.source, in_flight=len(parts.in_flight)))
        for run in parts.in_flight:
            run.stop = True
        parts.intake.close()
        for partition in parts.ownership:
            parts.lanes.drop(partition)
            parts.handover.drop_waiting(partition)
            if partition.watch is not None and partition.watch.drain() and partition.running:
                parts.committer.commit_soon(partition)  # the process may be killed before what runs is finished

    def over(self, now: float) -> Ending | None:
        """None while it continues."""
        parts = self._parts
        settling = len(parts.failures.settling)
        waiting = len(parts.in_flight) + settling + sum(partition.reporting for partition in parts.ownership)
        if waiting and now < self.deadline:
            self._report(now, records=waiting, letters=settling)
            return None
        if waiting:
            self._count_deaths()
        parts.handover.sign_off(parts.ownership)
        parts.committer.drain(now)
        awaited = sum(parts.committer.is_awaited(partition) for partition in parts.ownership)
        if awaited and now < self.deadline:
            self._report(now, commits=awaited)
            return None
        owed = sum(parts.committer.is_owed(partition) for partition in parts.ownership)
        unconfirmed = sum(parts.committer.has_pending(partition) for partition in parts.ownership)
        unconfirmed += parts.handover.leases_left
        return Ending("stopped", unfinished=waiting + owed, unconfirmed=unconfirmed)

    def _count_deaths(self) -> None:
        """The deadline has passed with records in flight. If only a restart could help, these records are the cause: it
        counts as a death of the process. A record that is only slow is not to blame for a deploy, nor is one that hangs
        in an outage that the breaker has found.
        """
        parts = self._parts
        if self._counted or not parts.overdue.not_live or BREAKER in parts.holds:
            return
        self._counted = True
        culprits = parts.overdue.culprits()
        runs = [run for run in culprits if run in parts.in_flight] if culprits else list(parts.in_flight)
        for partition, offsets in _in_hand(runs).items():
            if partition.live and partition.watch is not None:
                partition.watch.count_death(spans_of((offset, offset + 1) for offset in offsets))
                parts.committer.mark_dirty(partition)
                log.error("handlers_never_ended", place=str(partition.place), offsets=offsets[:20], counts_as="a crash")

    def _report(self, now: float, *, records: int = 0, letters: int = 0, commits: int = 0) -> None:
        if now - self._reported_at >= REPORT_S:
            self._reported_at = now
            log.info("drain_waiting", consumer=self._parts.plan.name, records=records, letters=letters, commits=commits)


def _in_hand(runs: list[Run]) -> dict[Partition, list[int]]:
    """The offsets that these runs are at, by partition; all of a batch."""
    found: dict[Partition, list[int]] = {}
    for run in runs:
        for partition, offset in run.in_hand():
            found.setdefault(partition, []).append(offset)
    return found
