"""Handlers that do not end and event loops that do not turn: reported with their stack. Owner: the loop thread.

Nothing is done about them here. A report is a line in the log, once and then at doubling intervals, and what health and
the control API show. `Overdue` looks at the runs that are out and says here how long each is at its record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from keepfast.core.batches import Batch
from keepfast.core.ports import Executor
from keepfast.core.runs import Run
from keepfast.core.timeouts import TimeoutPolicy, Watch
from keepfast.engine.executors import WALKS
from keepfast.engine.plan import Plan
from keepfast.engine.whereabouts import locations
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.shapes import StuckHandler

log = get_logger("keepfast.stuck")

MOST_REPORTS = 5
"""Stacks taken in one look; what is left over is reported at the next ones."""

MOST_SHOWN = 20


@dataclass(slots=True)
class _Report:
    """About one record in one run. `due_s`: the next line is written when it has spent so long there."""

    begun_at: float
    at: int
    due_s: float
    spent_s: float = 0.0
    stack: tuple[str, ...] = ()


class Stuck:
    """`handlers`: those that are stuck now, the oldest first. `event_loop`: where the blocked event loop was when it
    was reported last; empty while it turns. Both are replaced as a whole: any thread may read them.
    """

    def __init__(self, plan: Plan, executor: Executor) -> None:
        self._group = plan.group
        self._policy: TimeoutPolicy = plan.timeout
        self._executor = executor
        self._reports: dict[Run, _Report] = {}
        self._loop_due_s = self._policy.blocked_s or 0.0
        self._loop_blocked_s = 0.0
        self.handlers: tuple[StuckHandler, ...] = ()
        self.event_loop: tuple[str, ...] = ()

    # -- handlers

    def look(self, watches: Mapping[Run, Watch]) -> None:
        """`watches`: every run that is at a record, and how long."""
        limit_s = self._policy.stuck_s
        if limit_s is None:
            return
        found = [(run, watch) for run, watch in watches.items() if watch.spent_s >= limit_s]
        if not found and not self._reports:
            return
        before, self._reports = self._reports, {}
        found.sort(key=lambda pair: -pair[1].spent_s)
        written = 0
        for run, watch in found:
            report = before.get(run)
            if report is None or (report.begun_at, report.at) != (watch.begun_at, watch.at):
                report = _Report(watch.begun_at, watch.at, limit_s)
            else:
                del before[run]
            report.spent_s = watch.spent_s
            self._reports[run] = report
            if report.spent_s >= report.due_s and written < MOST_REPORTS:
                written += 1
                self._write(run, report)
        for run, report in before.items():
            if report.stack and not run.abandoned:
                self._ended(run, report)
        self.handlers = tuple(_shown(run, report) for run, report in list(self._reports.items())[:MOST_SHOWN])

    @property
    def count(self) -> int:
        """Handlers that are stuck now."""
        return len(self._reports)

    def _write(self, run: Run, report: _Report) -> None:
        report.due_s *= 2
        report.stack = tuple(locations(self._executor.where(run), below=WALKS)) or ("unknown",)
        log.warning(
            "handler_stuck",
            **_place_of(run, report.at),
            consumer_group=self._group,
            records=len(run.messages) if isinstance(run, Batch) else 1,
            attempt=run.attempt,
            revoked=not run.partition.live,
            for_s=round(report.spent_s, 1),
            stuck_after_s=self._policy.stuck_s,
            stack=report.stack,
        )

    def _ended(self, run: Run, report: _Report) -> None:
        log.info(
            "stuck_handler_ended",
            consumer_group=self._group,
            place=str(run.partition.place),
            for_s=round(report.spent_s, 1),
        )

    # -- the event loop

    def event_loop_blocked(self, blocked_s: float) -> None:
        """It has not turned for so long while runs are out; 0: it turns."""
        limit_s = self._policy.blocked_s
        if limit_s is None:
            return
        if blocked_s < limit_s:
            if self.event_loop:
                log.info("event_loop_turns_again", consumer_group=self._group, for_s=round(self._loop_blocked_s, 1))
            self._loop_due_s, self._loop_blocked_s, self.event_loop = limit_s, 0.0, ()
            return
        self._loop_blocked_s = blocked_s
        if blocked_s < self._loop_due_s:
            return
        self._loop_due_s *= 2
        trace, runs = self._executor.blocker()
        self.event_loop = tuple(locations(trace, below=WALKS)) or ("unknown",)
        log.error(
            "event_loop_blocked",
            consumer_group=self._group,
            for_s=round(blocked_s, 1),
            timeout_s=self._policy.timeout_s,
            stuck_after_s=self._policy.stuck_after_s,
            records=[_place_of(run, max(0, run.current)) for run in runs],
            stack=self.event_loop,
            hint="an async handler calls something that blocks, so nothing of its event loop goes on",
        )


def _place_of(run: Run, at: int) -> dict[str, str | int]:
    message = run.messages[at]
    return {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}


def _shown(run: Run, report: _Report) -> StuckHandler:
    message = run.messages[report.at]
    return StuckHandler(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        records=len(run.messages) if isinstance(run, Batch) else 1,
        attempt=run.attempt,
        revoked=not run.partition.live,
        for_s=report.spent_s,
        stack=report.stack,
    )
