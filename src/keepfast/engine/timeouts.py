"""Runs that take long: asked to stop after a moment, and timed out by `timeout_s`. Owner: the loop thread.

A record is timed out only if its run was asked to stop and is still at the same record afterwards. Then the run is
given up: its worker keeps it, and whatever it does with it is of no consequence; the loop continues with a stand-in
that failed at this record. What the run did before counts, and what is behind continues at once. If the record has sent
something that is not answered yet, the stand-in comes back when it is, like any run: through the mailbox.

A run is stale when its partition was taken away while it was out. If the partition is assigned to this process again,
its records wait for the stale run in the same lane, for `stuck_after_s` at most; then that run is given up, too.

Handlers that do not end and event loops that do not turn: reported with their stack. Owner: the loop thread.

Nothing is done about them here. A report is a line in the log, once and then at doubling intervals, and what health and
the control API show. `Overdue` looks at the runs that are out and says here how long each is at its record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keepfast.core.errors import HandlerTimeout, KeepfastError, OperatorDeadLetter, SinkError
from keepfast.core.events import HandlerAbandoned, HandlerTimedOut, Held, Released
from keepfast.core.lanes import Holder, Lanes
from keepfast.core.ports import Executor, Mailbox
from keepfast.core.records import Message, TopicPartition
from keepfast.core.retry_topics import Returned, original
from keepfast.core.runs import InFlight, OrderedSet, Partition, Run
from keepfast.core.sizing import Sizer
from keepfast.core.timeouts import OverdueWatch, TimeoutPolicy
from keepfast.engine.calls import WALKS, attempt_of
from keepfast.engine.commits import Committer
from keepfast.engine.events import Events, run_finished
from keepfast.engine.plan import Plan
from keepfast.engine.stacks import locations
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.state import StuckHandler

log = get_logger("keepfast.timeouts")

MAX_REPORTS = 5
"""Stacks taken in one look; what is left over is reported at the next ones."""

MAX_SHOWN = 20


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
        self._loop_due_s = self._policy.blocked_report_s or 0.0
        self._loop_blocked_s = 0.0
        self.handlers: tuple[StuckHandler, ...] = ()
        self.event_loop: tuple[str, ...] = ()

    # -- handlers

    def look(self, watches: Mapping[Run, OverdueWatch]) -> None:
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
            if report.spent_s >= report.due_s and written < MAX_REPORTS:
                written += 1
                self._write(run, report)
        for run, report in before.items():
            if report.stack and not run.abandoned:
                self._ended(run, report)
        self.handlers = tuple(_shown(run, report) for run, report in list(self._reports.items())[:MAX_SHOWN])

    def has(self, run: Run) -> bool:
        """Whether the handler of this run is stuck now."""
        return run in self._reports

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
            records=run.call_size,
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
        limit_s = self._policy.blocked_report_s
        if limit_s is None:
            return
        if blocked_s < limit_s:
            if self.event_loop:
                log.info("event_loop_unblocked", consumer_group=self._group, for_s=round(self._loop_blocked_s, 1))
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
            hint="an async handler calls something that blocks, so nothing of its event loop continues; await"
            " asyncio.to_thread(…) around that call, or make the handler a plain def, which runs on a thread",
        )


def _at(run: Run, at: int) -> Message:
    """The record that the handler is at; of a batch, the first that it was given."""
    return run.messages[run.given[at] if run.given else at]


def _place_of(run: Run, at: int) -> dict[str, str | int]:
    message = _at(run, at)
    return {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}


def _shown(run: Run, report: _Report) -> StuckHandler:
    message = _at(run, report.at)
    return StuckHandler(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        records=run.call_size,
        attempt=run.attempt,
        revoked=not run.partition.live,
        for_s=report.spent_s,
        stack=report.stack,
    )


RECALL_S = 0.1
"""A run that is out this long comes back after its current record: to be committed, and to free its lanes."""

STALE_RUN = "stale_run"
"""As a hold of a partition: records of it wait for a run of an earlier epoch."""

BLOCKED_LOOK_S = 1.0
"""Of the time since the last look, this (or two looks) counts as a blocked event loop at most: a process that stood
still has not blocked it.
"""


@dataclass(slots=True)
class OverdueCounts:
    """Totals since the start."""

    timed_out: int = 0
    came_back: int = 0


class Overdue:
    """Watches the runs that are out.

    `returned` takes a run back as the loop does when a worker hands it over. `sizer` says how many may be out. `held`
    are runs whose record is overdue and that are not given up: because the policy says so, or because too many are
    given up already. `waiting` are the partitions that wait for a stale run, and for how long; replaced as a whole.
    """

    def __init__(
        self,
        plan: Plan,
        executor: Executor,
        lanes: Lanes,
        committer: Committer,
        *,
        in_flight: InFlight,
        mailbox: Mailbox,
        sizer: Sizer,
        events: Events,
        returned: Callable[[Run, float], None],
    ) -> None:
        self._mailbox = mailbox
        self._group = plan.group
        self._events = events
        self._policy: TimeoutPolicy = plan.timeout
        self._executor = executor
        self._lanes = lanes
        self._committer = committer
        self._in_flight = in_flight
        self._returned = returned
        self._sizer = sizer
        self._recalled_at = 0.0
        self._check_interval_s = self._policy.check_interval_s
        self._looked_at = 0.0
        self._blocked_s = 0.0
        self._watches: dict[Run, OverdueWatch] = {}
        self._stale: dict[Run, float] = {}  # that others wait for, and for how long they have been watched to wait
        self.waiting: Mapping[TopicPartition, float] = {}
        self.reports = Stuck(plan, executor)
        self.held: OrderedSet[Run] = OrderedSet()
        self.counts = OverdueCounts()

    def step(self, now: float) -> bool:
        """Look, and act. Whether nothing new may start (`max_abandoned_reached`)."""
        if now - self._recalled_at >= RECALL_S / 2:
            self._recall(now)
        if now - self._looked_at >= self._check_interval_s:
            self._look(now)
        return self.max_abandoned_reached

    # -- what the rest of the app may ask

    @property
    def max_abandoned_reached(self) -> bool:
        """Nothing new may start: a record is overdue, and no more workers may be given up."""
        return bool(self.held) and self._policy.on_timeout != "hold"

    @property
    def stuck(self) -> bool:
        """Something is wrong that does not mend itself: records are overdue and nothing ends them."""
        return bool(self.held) or self.blocked

    @property
    def not_live(self) -> bool:
        """Whether only a restart helps, because of handlers: what fails liveness in health (`event_loop_blocked`,
        `handlers_stuck`).
        """
        return self.blocked or self.max_abandoned_reached

    def culprits(self) -> list[Run]:
        """While `not_live`: the runs whose handlers are the cause, as far as known.

        Of a blocked event loop, those that stand on the stack of its thread now. The event loop is shared, so they may
        be runs of another consumer: then none of this one's is to blame. Otherwise those that are overdue. Empty: it
        is unknown, and each run in flight may be the one. The record is `run.messages[run.current]`, or all of
        `run.messages` if the run is a `Batch`.
        """
        return self._executor.blocker()[1] if self.blocked else list(self.held)

    def abandoned(self, now: float) -> int:
        """Workers that are lost: given up, and not back when they could have been."""
        grace_s, given_up = self._executor.grace_s, self._in_flight.given_up
        return sum(now - since >= grace_s for since in given_up.values()) if given_up else 0

    # -- looking

    def _recall(self, now: float) -> None:
        """Runs that take too long come back after their current record; what is behind that continues at once. One that
        waits for its turn would come back with nothing done, only to wait again.
        """
        self._recalled_at = now
        for run in self._in_flight:
            if run.may_grow and not run.waits and now - run.begun_at >= RECALL_S:
                self._tell_to_stop(run)

    def _tell_to_stop(self, run: Run) -> None:
        if not run.stop:
            run.stop = True
            if run.failed_record is None:
                first = run.taken
                if run.partition.take_stock(run):
                    self._committer.mark_dirty(run.partition)
                    if self._events.wants_runs:
                        self._events.emit(run_finished(self._events, run, first, run.taken))
                self._lanes.relieve(run)

    def _look(self, now: float) -> None:
        timeout_s = float("inf") if self._policy.timeout_s is None else self._policy.timeout_s
        passed_s = self._watched_s(now)
        before, self._watches = self._watches, {}
        for run in list(self._in_flight):
            at = run.current
            if at < 0 or run.waits or run.sending:
                continue  # not begun, or only waiting for what it sent
            watch = before.get(run) or OverdueWatch()
            self._watches[run] = watch
            if watch.look(run.begun_at, at, passed_s) >= timeout_s:
                self._overdue(run, at, now)
        for run in [run for run in self.held if self._watch_of(run) < timeout_s]:
            self.held.discard(run)
            log.info("overdue_handler_ended", consumer_group=self._group, place=str(run.partition.place))
        self._look_at_stale(passed_s, now)
        self.reports.look(self._watches)

    def _watch_of(self, run: Run) -> float:
        watch = self._watches.get(run)
        return 0.0 if watch is None else watch.spent_s

    def _watched_s(self, now: float) -> float:
        """How much of the time since the last look the workers can be held responsible for.

        None, if nothing could work; and not more than a few looks: unobserved time does not count. So a
        process that was stopped does not time out what was stopped with it.
        """
        since_s, self._looked_at = now - self._looked_at, now
        if self._in_flight and not self._executor.lively():
            self._blocked_s += min(since_s, max(BLOCKED_LOOK_S, 2 * self._check_interval_s))
            self.reports.event_loop_blocked(self._blocked_s)
            return 0.0
        if self._blocked_s:
            self._blocked_s = 0.0
            self.reports.event_loop_blocked(0.0)
        return min(since_s, 2 * self._check_interval_s)

    @property
    def blocked(self) -> bool:
        """The event loop of an async handler has not turned for as long as a record may take, or for `stuck_after_s`
        where a record may take as long as it likes.
        """
        limit_s = self._policy.blocked_s
        return limit_s is not None and self._blocked_s >= limit_s

    # -- acting

    def _overdue(self, run: Run, at: int, now: float) -> None:
        self._tell_to_stop(run)
        if not _stands(run, at):
            return  # it has just come to its end: that counts
        if self._policy.on_timeout != "hold" and self.abandoned(now) < self._policy.max_abandoned:
            self.held.discard(run)
            timeout = HandlerTimeout(self._policy.timeout_s or 0.0, retry=self._policy.on_timeout == "retry")
            self.counts.timed_out += 1
            self._give_up(run, at, timeout, now)
        elif run not in self.held:
            self.held.add(run)
            self._timed_out(run, at, now, given_up=False)

    @property
    def _consequence(self) -> str:
        if self._policy.on_timeout == "hold":
            return "its lane waits until the handler ends"
        return "no more threads may be abandoned, so nothing starts until one comes back; restart to get rid of them"

    def dead_letter(self, run: Run, by: str, why: str, now: float) -> str:
        """An operator dead-letters the record that a handler is at: the handler is abandoned. Why not, or empty."""
        at = run.current
        if self.abandoned(now) >= self._policy.max_abandoned:
            return "no more handlers may be abandoned; restart the process"
        self._tell_to_stop(run)
        if not _stands(run, at):
            return "its handler has just ended, or waits for its turn or for what it sent"
        self.held.discard(run)
        self._give_up(run, at, OperatorDeadLetter(by, why=why), now)
        return ""

    def stack_of(self, run: Run) -> tuple[str, ...]:
        """Where its handler is now: `file:line function`, innermost last."""
        return tuple(locations(self._executor.where(run), below=WALKS))

    def _give_up(self, run: Run, at: int, failure: KeepfastError, now: float) -> None:
        run.abandoned = True  # from here on its context refuses
        failure = failure.with_traceback(self._executor.where(run))
        other = run.stand_in(at, failure, now)
        if run.failed_record is None:
            self._lanes.replace(run, other)
        self._abandon(run, now)
        if isinstance(failure, HandlerTimeout):
            self._timed_out(run, at, now, given_up=True)
        if run.sends is None:
            self._returned(other, now)
            return
        other.sending = True
        self._in_flight.stand_in(other)
        run.sends.close(lambda refused: self._answered(other, failure, refused))

    def _answered(self, other: Run, failure: KeepfastError, refused: SinkError | None) -> None:
        """Any thread: what the record sent is acknowledged, or has failed; that replaces its outcome."""
        if refused is not None:
            refused.raised, other.failure = failure, refused
        self._mailbox.post(other)

    def _abandon(self, run: Run, now: float) -> None:
        """Its worker has it to itself from here on, and does not count."""
        run.abandoned = True
        self._in_flight.give_up(run, now)
        self._watches.pop(run, None)
        self._executor.give_up(run)

    # -- stale runs

    def _look_at_stale(self, passed_s: float, now: float) -> None:
        """See who waits for a run of an earlier epoch, and give those up that were waited for long enough."""
        before, self._stale = self._stale, {}
        waiting: dict[TopicPartition, float] = {}
        full = len(self._in_flight) >= self._sizer.workers
        for run in list(self._in_flight):
            holders = run.stale_holders()
            waits = full and _all_of(run, holders)  # otherwise nothing could start in its place
            behind = [one for holder in holders for one in self._lanes.waiting_behind(holder, full=waits)]
            if holders and not run.waits and _all_of(run, holders):
                behind += self._waiting_for_a_turn()
            if not behind:
                continue
            spent_s = before[run] + passed_s if run in before else 0.0
            if self._may_go_on_without(run, spent_s, now):
                self._go_on_without(run, holders, spent_s, now)
                continue
            self._stale[run] = spent_s
            for partition in behind:
                if partition.place not in self.waiting and partition.place not in waiting:
                    self._events.emit(Held(*self._events.source, hold=STALE_RUN, **partition.place._asdict()))
                waiting[partition.place] = max(spent_s, waiting.get(partition.place, 0.0))
        for place in self.waiting:
            if place not in waiting:
                self._events.emit(Released(*self._events.source, hold=STALE_RUN, **place._asdict()))
        self.waiting = waiting

    def _waiting_for_a_turn(self) -> list[Partition]:
        """The partitions whose records wait for their turn, or for a transaction: a stale run may have it."""
        return [part.partition for run in self._in_flight if run.waits for part in run.parts if part.partition.live]

    def _may_go_on_without(self, run: Run, waited_s: float, now: float) -> bool:
        """Otherwise the lane waits on: nothing else is held for its sake, whatever may be abandoned."""
        limit_s = self._policy.stale_s
        if limit_s is None or waited_s < limit_s or not _stands(run, run.current):
            return False
        return self.abandoned(now) < self._policy.max_abandoned

    def _go_on_without(self, run: Run, holders: Sequence[Holder], waited_s: float, now: float) -> None:
        if _all_of(run, holders):
            self._abandon(run, now)
        for holder in holders:
            self._lanes.release(holder)
        self._events.emit(
            HandlerAbandoned(
                *self._events.source,
                **_record_of(run, run.current),
                waited_s=waited_s,
                abandoned=self.abandoned(now),
            )
        )

    def came_back(self, run: Run, now: float) -> None:
        """The worker of a run that was given up is free again. What it says is too late."""
        since = self._in_flight.regain(run)
        self._executor.regain(run)
        self.counts.came_back += 1
        outcome = "ok" if run.failure is None else type(run.failure).__name__
        log.warning(
            "abandoned_handler_ended",
            consumer_group=self._group,
            place=str(run.partition.place),
            late_s=round(now - since, 3),
            outcome=outcome,
            consequence="dropped",
        )

    def _timed_out(self, run: Run, at: int, now: float, *, given_up: bool) -> None:
        self._events.emit(
            HandlerTimedOut(
                *self._events.source,
                **_record_of(run, at),
                timeout_s=self._policy.timeout_s or 0.0,
                given_up=given_up,
                abandoned=self.abandoned(now),
                consequence="" if given_up else self._consequence,
            )
        )


def _record_of(run: Run, at: int) -> dict[str, Any]:
    """How events name the record that a run is at: where it came from, also after it was in a retry topic."""
    message = _at(run, at)
    record = original(message)
    return {
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
        "attempt": attempt_of(message, run) if isinstance(message, Returned) else run.attempt,
        "retry_topic": "" if record is message else message.topic(),
    }


def _stands(run: Run, at: int) -> bool:
    """Whether the handler is at this very record now: not waiting for its turn, nor for what it sent."""
    return at >= 0 and run.current == at == run.done and run.failure is None and not (run.waits or run.sending)


def _all_of(run: Run, stale: Sequence[Holder]) -> bool:
    """Whether nothing of the run is wanted any more: parts of a batch may be of partitions that are still ours."""
    return len(stale) == len(run.parts)
