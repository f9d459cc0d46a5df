"""The loop of one consumer: the only owner of its client, its ledgers and its lanes.

`step` is one turn: take in results, carry out what is due, commit, start what may start, poll. It never blocks for
longer than its timeout, whatever handlers, letters, commits or the broker do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import WARNING

from keepfast.core.batches import as_batch
from keepfast.core.errors import Fault, SourceError
from keepfast.core.events import Assigned, DrainFinished, Halted, Lost, Revoked
from keepfast.core.ports import THROTTLED, CommitOutcome
from keepfast.core.records import TopicPartition
from keepfast.core.runs import FailedRecord, Run
from keepfast.deadletters.publisher import Publisher
from keepfast.engine.control import ControlOrder, Operator
from keepfast.engine.events import run_finished
from keepfast.engine.forwarding import Settled
from keepfast.engine.mailbox import DRAIN, Ending, HaltApp, Release, Stop
from keepfast.engine.outcomes import OutcomeSettled
from keepfast.engine.parts import LoopParts, Ports, Workers, parts_of
from keepfast.engine.plan import Plan
from keepfast.engine.rebalance import NoPosition
from keepfast.engine.seeks import Seeks
from keepfast.engine.shutdown import Shutdown
from keepfast.engine.status import ASSIGNED, LOST, REVOKED, LoopStatus
from keepfast.engine.subscription import TopicsFound, UnownedFound
from keepfast.engine.topic_ids import TopicIdsAnswer
from keepfast.telemetry.logs import get_logger

BUSY_S = 0.005
"""Longest wait for results, or for the answer to a commit, while work is out: then the client is swept again."""

TRIAL_WAIT_S = 0.1
"""Longest wait for the runs that are out when one is to be tried on the loop's own thread."""


class Starter:
    """Starts what may start, on workers or on the thread that drives the loop. Owner: the loop thread."""

    def __init__(self, parts: LoopParts) -> None:
        self._lanes = parts.lanes
        self._failures = parts.failures
        self._guards = parts.guards
        self._probation = parts.probation
        self._executor = parts.workers.executor
        self._inline = parts.workers.inline
        self._clock = parts.ports.clock
        self._kept: list[Run] = []  # for this very thread, last one first
        self._here = False  # what comes back was walked on this very thread
        self._trial_since: float | None = None
        self.sizer = parts.sizer
        self.in_flight = parts.in_flight

    def start(self, now: float, *, keep: bool) -> None:
        """Start what may start. With `keep`, runs of a fast handler are kept for `walk_kept`."""
        sizer, in_flight, probation = self.sizer, self.in_flight, self._probation
        alone = bool(probation.suspected) and probation.search(now)
        size = sizer.size
        if size > 1 and not alone:
            self._lanes.grow(size)
        if sizer.trial:
            self._await_trial(now)
        room = sizer.workers - len(in_flight)
        if room <= 0:
            return
        runs = probation.take(room, now) if alone else self._guards.take(self._failures, room, size, now)
        if not runs:
            return
        in_flight.start(runs, now)
        if keep and sizer.inline:
            self._kept = runs[::-1]
        else:
            self._executor.submit(runs, len(in_flight))

    def walk_kept(self, returned: Callable[[Run, float], None]) -> float | None:
        """Walk what was kept and hand it back. Returns when the last of it came back; None: there was nothing. Raises
        Superseded.
        """
        now = None
        if self._inline is not None:
            while self._kept:
                run = self._kept.pop()
                self._inline.walk(run)
                now = self._clock.monotonic()
                self._here = True
                returned(run, now)
                self._here = False
        return now

    def _await_trial(self, now: float) -> None:
        """Nothing is started until all runs are back: not for long, because one of them may hang."""
        if self._trial_since is None:
            self._trial_since = now
        elif now - self._trial_since > TRIAL_WAIT_S:
            self.sizer.end_trial()
        if not self.sizer.trial or not self.in_flight:
            self._trial_since = None

    def taken_over(self) -> None:
        """Another thread drives from now on: what the last one kept and did not begin goes to workers."""
        self.sizer.taken_over()
        if self._kept:
            kept, self._kept = self._kept, []
            self._executor.submit(kept, len(self.in_flight))

    def back(self, run: Run) -> None:
        """It is not in flight any more."""
        self.in_flight.back(run)
        self.sizer.observe(run.elapsed_s, run.done, beside=len(self.in_flight), here=self._here)


log = get_logger("keepfast.loop")


def log_client_error(consumer: str, error: SourceError, now: float) -> None:
    """Logs a sample: a broker that is down is reported twenty times a second."""
    log.sampled(
        WARNING,
        "client_error",
        now=now,
        key=(consumer, error.code),
        consumer=consumer,
        fault=error.fault,
        code=error.code,
        error=str(error),
    )


REPLY_POLL_S, LATE_S, LATE_REPLY_POLL_S = 100e-6, 5e-3, 1e-3
"""How often the client is polled for the answer to a commit, and from when on how often if it is late, where the loop
cannot wait in the client: because results may come, or because the client has records for which there is no room.
"""

COMMIT, ABANDONED = "commit", "abandoned"


class Loop:
    """See the module. Implements `core.ports.Listener`; all of it runs on one thread."""

    def __init__(self, plan: Plan, workers: Workers, ports: Ports, publisher: Publisher) -> None:
        self.plan = plan
        self._source = ports.source
        self._mailbox = workers.mailbox
        self._clock = ports.clock
        self._idle_limit_s = ports.idle_s
        self._walked = False  # in this turn, on this thread: so there may be more to start
        self._resubscribes = False
        parts = parts_of(plan, workers, ports, publisher, self._returned)
        self.events = parts.events
        self.lanes = parts.lanes
        self.ownership = parts.ownership
        self.identities = parts.identities
        self.subscription = parts.subscription
        self.rejoin_check = parts.rejoin_check
        self.committer = parts.committer
        self.outcomes = parts.outcomes
        self.intake = parts.intake
        self.fetch_watch = parts.fetch_watch
        self.holds = parts.holds
        self.in_flight = parts.in_flight
        self.guards = parts.guards
        self.counts = parts.counts
        self.failures = parts.failures
        self.probation = parts.probation
        self.assignment = parts.assignment
        self.handover = parts.handover
        self.locks = parts.locks
        self.sizer = parts.sizer
        self.overdue = parts.overdue
        self.batches = parts.batches
        self.starter = Starter(parts)
        self.shutdown = Shutdown(parts)
        self.status = LoopStatus(parts, self.shutdown)
        self.seeks = Seeks(parts)
        self.operator = Operator(parts, self.seeks, self.status.look)
        self._reports_runs = parts.events.wants_runs

    @property
    def processed(self) -> int:
        """Records that succeeded. Any thread may ask."""
        return self.counts.processed

    @property
    def halted(self) -> str | None:
        """Why the app has to stop, from when a verdict says so. Any thread may ask."""
        return self.holds.halted

    @property
    def ending(self) -> Ending | None:
        """Why the loop ended; None until then. Any thread may ask."""
        return self.shutdown.ending

    # -- one turn

    def start(self) -> None:
        self.probation.join()
        self._source.subscribe(self.subscription.every, self)

    def step(self, now: float) -> None:
        """One turn of the loop. After it, `ending` may be set: then the client is closed and nothing is left to do.

        Raises Superseded if another thread has taken the loop over meanwhile.
        """
        now = self._turn(now, self._patience(now), keep=True)
        if self.shutdown.failure is not None:
            self._end(self.shutdown.failure)
            return
        if DRAIN in self.holds and (ending := self.shutdown.over(now)) is not None:
            self._end(ending)
            return
        self._poll(now)

    def _turn(self, now: float, wait_s: float, *, keep: bool = False) -> float:
        """A turn without polling; returns the time. Without `keep` safe in a callback (no takeover)."""
        items = self._mailbox.collect(wait_s)
        if items or wait_s > 0:
            now = self._clock.monotonic()
        for item in items:
            self._accept(item, now)
            if type(item) is ControlOrder:  # it may have asked the broker, and waited for the answer
                now = self._clock.monotonic()
        self.status.turn(now)
        self.failures.step(now)
        self.outcomes.step(now)
        self.intake.step(now)
        if self.locks is not None:
            self.locks.step(now)
        self.holds.put(ABANDONED, held=self.overdue.step(now))
        self.holds.put(COMMIT, held=self.committer.tripped(now))
        self._dispatch(now, keep=keep)  # before the commit: lanes that start now may be back in time to share it
        walked_at = self.starter.walk_kept(self._returned)
        self._walked = walked_at is not None
        if walked_at is not None:
            now = walked_at
        self.committer.step(now, others_soon=bool(self.in_flight) and self.sizer.quick)
        if self.committer.fatal is not None:
            self._client_is_gone(self.committer.fatal)
        return now

    def _dispatch(self, now: float, *, keep: bool) -> None:
        if self.batches is not None:
            self.batches.step(now)
        if self.probation.yields(now):
            return
        if not self.holds or self.guards.may_take(now) or self.probation.waits:
            self.starter.start(now, keep=keep)
        elif self.probation.suspected:
            self.probation.rest(now)

    def _patience(self, now: float) -> float:
        """How long to wait for results."""
        committer, busy = self.committer, bool(self.in_flight or self.failures.settling or self.outcomes.busy)
        if committer.under_way and committer.each == busy and (busy or not self.intake.has_room):
            return REPLY_POLL_S if committer.waited(now) < LATE_S else LATE_REPLY_POLL_S
        if self.intake.has_backlog or not busy:
            return 0.0
        return min(BUSY_S, self.failures.next_in(now), committer.due_in(now))

    def _poll(self, now: float) -> None:
        self.subscription.step(now, self.outcomes.replay_topics or ())
        if self.rejoin_check is not None and self.rejoin_check.step(now, self.subscription.every):
            self._source.subscribe((), self)  # leaves the group when the partitions are revoked
            self._resubscribes = True
        if self._resubscribes:  # here, because a turn may be inside a callback
            self._resubscribes = False
            self._source.subscribe(self.subscription.every, self)
        try:
            self.assignment.step(now, self.handover)
        except NoPosition as error:
            self.shutdown.fail(Ending("halted", str(error)))
        if self.seeks.under_way:
            self.seeks.step(now)
        self.fetch_watch.step(now)
        busy = self.in_flight or self.failures.settling or self.outcomes.busy
        if self.committer.under_way and not busy and (self.committer.each or not self._walked):
            self._follow(now)
        elif self.committer.under_way and (self.committer.each or not self.intake.has_room):
            self.intake.serve(now, 0.0)
        elif self._walked or busy:
            self.intake.poll(now, 0.0, inline=self._walked and not busy)
        else:
            self.committer.commit_burst(now)
            self.intake.poll(now, self._idle_s(now))

    def _idle_s(self, now: float) -> float:
        """How long nothing is due."""
        due_s = min(self.failures.next_in(now), self.committer.due_in(now), self.intake.due_in(now))
        if self.guards.may_take(now) and not self.probation.yields(now):  # otherwise nothing starts, due or not
            due_s = min(due_s, self.lanes.due_in(now))
        return max(0.0, min(self._idle_limit_s, due_s))

    def _follow(self, now: float) -> None:
        """Wait for the answer to the commit under way, and continue at once with the records that wait for it: what
        else a turn does can wait as long as it may when nothing is going on.
        """
        committer, until = self.committer, now + self._idle_s(now)
        arrived = self.intake.poll(now, BUSY_S) if self.intake.has_room else self.intake.serve(now, BUSY_S)
        while True:  # at least one poll, whatever is due: nothing else serves the answer
            now = self._clock.monotonic()
            if arrived and committer.each:  # a commit for each record: what is full stays so for long
                self.intake.fill(now)
            if arrived or committer.under_way or self.shutdown.failure is not None or now >= until:
                return
            self._dispatch(now, keep=True)
            walked_at = self.starter.walk_kept(self._returned)
            if walked_at is None:
                return
            committer.step(walked_at, others_soon=bool(self.in_flight) and self.sizer.quick)
            if not (committer.under_way and committer.each) or self.in_flight or self.failures.settling:
                return
            arrived = self.intake.serve_on(BUSY_S)

    def taken_over(self) -> None:
        """Another thread drives the loop from now on, because the last one hangs in a handler."""
        self.starter.taken_over()

    # -- results

    def _accept(self, item: object, now: float) -> None:
        match item:
            case Run():
                self._returned(item, now)
            case Settled():
                self.failures.settled(item, now)
            case OutcomeSettled():
                self.outcomes.settled(item)
            case TopicIdsAnswer():
                self.assignment.ids_answered(item, now)
            case TopicsFound():
                self._topics_found(item, now)
            case UnownedFound():
                self._unowned_found(item, now)
            case Stop():
                self.shutdown.begin(item, now)
            case HaltApp(reason=reason):
                self.events.emit(Halted(*self.events.source, kind="halted", reason=reason))
                self.holds.halt(reason)
            case Release(hold=hold):
                self.guards.release(hold, now)
            case ControlOrder():
                self.operator.apply(item, now)
            case _:
                raise TypeError(f"unexpected item in the mailbox: {item!r}")

    def _topics_found(self, found: TopicsFound, now: float) -> None:
        if DRAIN in self.holds or not self.subscription.answered(found, now):
            return
        self.counts.join(self.plan.tiers)
        self.intake.join(self.plan.tiers)
        ids = {**found.replay_ids, **(found.ready.topic_ids if found.ready is not None else {})}
        self.identities.follow(self.subscription.every, ids)
        self._resubscribes = True

    def _unowned_found(self, found: UnownedFound, now: float) -> None:
        if self.rejoin_check is not None and DRAIN not in self.holds:
            self.rejoin_check.answered(found, now)

    def _returned(self, run: Run, now: float) -> None:
        """A worker handed back a run."""
        if run.abandoned:
            self.overdue.came_back(run, now)
            return
        self.starter.back(run)
        partition = run.partition
        if self.guards.on:
            self.guards.returned(run, now)
        if self.batches is not None and (batch := as_batch(run)) is not None:
            self.batches.returned(batch, now)
            return
        if not self.ownership.is_current(partition):
            self.lanes.release(run.failed_record or run)  # stale: nothing of it counts, but its lanes are free again
            return
        filtered, skipped = len(run.filtered), run.skipped_count if run.skipped else 0
        self.counts[partition.place.topic].finished(run.done - filtered - skipped, filtered, skipped)
        if now >= self.status.sample_at:
            self.status.sample(run, now)
        if run.failed_record is not None:
            self._failed_returned(run, run.failed_record, now)
            return
        if run.done:
            if self._reports_runs and run.done > run.taken:  # what was taken before is reported
                self.events.emit(run_finished(self.events, run, run.taken, run.done))
            partition.finish(run)
        if run.done == len(run.messages):
            self.committer.finished(partition, run, run.done)
            return
        if run.done:
            self.committer.mark_dirty(partition)
        failure, run.failure = run.failure, None  # before `split`, which makes the run one over the rest
        if failure is not None and not partition.closing and DRAIN not in self.holds:
            took_s = run.failed_s
            failed_record = self.lanes.split(run, run.begun_at)
            partition.add_failed(failed_record)
            self.failures.failed(failed_record, failure, now, took_s)
        else:
            self.lanes.give_back(run)

    def _failed_returned(self, run: Run, failed_record: FailedRecord, now: float) -> None:
        if run.done:
            if self._reports_runs:
                self.events.emit(run_finished(self.events, run, 0, 1))
            self.failures.recovered(failed_record)
            self.committer.finished_failed(failed_record)
            if run.outputs:
                failed_record.partition.take_outputs(run, run.messages)
        elif run.failure is not None and not failed_record.partition.closing and DRAIN not in self.holds:
            self.failures.failed(failed_record, run.failure, now, run.failed_s)
        elif failed_record.partition.closing or DRAIN in self.holds:
            self.handover.drop(failed_record)
        else:  # a guard stopped it before it began
            self.failures.run_again(failed_record)
        run.failure = None

    # -- callbacks of the client (core.ports.Listener)

    def on_assigned(self, places: Sequence[TopicPartition]) -> None:
        now = self._clock.monotonic()
        try:
            self.assignment.assigned(places, now)
        except NoPosition as error:
            self.shutdown.fail(Ending("halted", str(error)))
        self.committer.membership_settled(self.ownership)
        if self.rejoin_check is not None:
            self.rejoin_check.assigned(now)
        self.status.rebalanced(ASSIGNED)
        if self.intake.closed and places:
            self._source.pause(places)
        self.events.emit(Assigned(*self.events.source, partitions=tuple(places)))

    def on_revoked(self, places: Sequence[TopicPartition]) -> None:
        """Drain inside: running records finish and are committed; the other partitions continue meanwhile."""
        now = self._clock.monotonic()
        deadline = min(now + self.plan.revoke_timeout_s, self.shutdown.deadline)
        self.assignment.lost(places)
        leaving = self.handover.close_down(places)
        log.info("partitions_revoking", consumer=self.plan.name, partitions=[str(place) for place in places])
        while now < deadline and any(
            partition.running or partition.failed_records or partition.reporting for partition in leaving
        ):
            self._turn(now, min(BUSY_S, deadline - now))
            if self.committer.under_way:
                self._source.serve(min(BUSY_S, max(0.0, deadline - self._clock.monotonic())))
            now = self._clock.monotonic()
            deadline = min(deadline, self.shutdown.deadline)  # a signal may have come meanwhile
        unconfirmed = self.handover.commit_now(leaving, self._clock, deadline)
        self.seeks.leaving(places)
        self.handover.forget(leaving)
        self.committer.membership_settled(self.ownership)
        self.status.rebalanced(REVOKED)
        self.events.emit(Revoked(*self.events.source, partitions=tuple(places), unconfirmed=unconfirmed))

    def on_lost(self, places: Sequence[TopicPartition]) -> None:
        self.assignment.lost(places)
        self.seeks.leaving(places)
        self.handover.forget(self.handover.close_down(places))
        self.committer.membership_settled(self.ownership)
        self.status.rebalanced(LOST)
        self.events.emit(Lost(*self.events.source, partitions=tuple(places)))

    def on_committed(self, outcome: CommitOutcome) -> None:
        self.committer.on_committed(outcome, self._clock.monotonic())

    def on_commit_repeated(self) -> None:
        self.committer.doubt(self._clock.monotonic())

    def on_end(self, place: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        self.intake.reached(place, offset, leader_epoch)

    def on_replaced(self) -> None:
        self.status.clients_replaced += 1
        log.warning("client_replaced", consumer=self.plan.name)

    def on_error(self, error: SourceError, place: TopicPartition | None) -> None:
        now = self._clock.monotonic()
        if error.fault in (Fault.FENCED, Fault.FATAL):
            self._client_is_gone(error)
        elif not self.assignment.handles_error(error, place, now):
            if error.fault is Fault.MISSING:
                self.subscription.suspect(now)
            if error.fault is Fault.RETRY:
                self.fetch_watch.disturb(now, throttled=error.code == THROTTLED)
            if error.code != THROTTLED:
                self.status.client_error(error, now)
            log_client_error(self.plan.name, error, now)

    # -- the end

    def _client_is_gone(self, error: SourceError) -> None:
        if error.fault is Fault.FENCED:
            self.shutdown.fail(Ending("fenced", f"{error} {self.plan.name_taken()}".strip()))
        else:
            self.shutdown.fail(Ending("failed", str(error)))

    def _end(self, ending: Ending) -> None:
        if ending.kind != "stopped":
            self.events.emit(Halted(*self.events.source, kind=ending.kind, reason=ending.reason))
        self.shutdown.end(ending, self._clock.monotonic())
        self._source.close(leave=self.shutdown.leave or ending.kind == "halted")
        self.seeks.end()
        if ending.kind == "stopped":
            self.events.emit(DrainFinished(*self.events.source, unfinished=ending.unfinished))

    def abandon(self, error: BaseException) -> None:
        """The loop itself has failed: leave the group, so that others need not wait for the session to end. (A static
        member does not: it rejoins when the process is restarted.)
        """
        reason = f"{type(error).__name__}: {error}"
        self.events.emit(Halted(*self.events.source, kind="failed", reason=reason, error=error))
        self.shutdown.abandon(self._clock.monotonic())
        self._source.close(leave=False)
        self.seeks.end()
