"""The end of a consumer: nothing starts, what runs may finish, what is finished is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.observe.logs import get_logger
from holdfast.runtime.endings import DRAIN

if TYPE_CHECKING:
    from holdfast.runtime.loop import Loop

log = get_logger("holdfast.loop")

REPORT_S = 5.0


class Draining:
    """Owner: the loop thread. `deadline`: by when all must be over, monotonic; nothing may wait for longer."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._reported_at = 0.0
        self.deadline = float("inf")

    def begin(self, deadline: float, now: float) -> None:
        """Cut all waits short and tell what runs to stop after its record; a second word can only hasten it."""
        loop = self._loop
        self.deadline = min(self.deadline, deadline)
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

    def over(self, now: float) -> int | None:
        """None while it goes on; then how much was still being handled, buried or committed."""
        loop = self._loop
        settling = len(loop.cases.settling)
        waiting = len(loop.in_flight) + settling
        if waiting and now < self.deadline:
            self._report(now, records=waiting, letters=settling)
            return None
        loop.handover.sign_off(loop.ownership)
        loop.committer.drain(now)
        owing = sum(loop.committer.owes(partition) for partition in loop.ownership)
        if owing and now < self.deadline:
            self._report(now, commits=owing)
            return None
        return waiting + owing

    def _report(self, now: float, *, records: int = 0, letters: int = 0, commits: int = 0) -> None:
        if now - self._reported_at >= REPORT_S:
            self._reported_at = now
            log.info("drain_waits", consumer=self._loop.plan.name, records=records, letters=letters, commits=commits)
