"""Runs that take long: called back after a moment, and timed out when the user said so. Owner: the loop thread.

A record is timed out only if its run was told to stop and is still at the very same record afterwards. Then the run is
given up: its worker keeps it, and whatever it does with it is of no consequence; the loop goes on with a stand-in that
failed at this record. What the run did before counts, and what is behind goes on at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core.errors import HandlerTimeout
from holdfast.core.lanes import Lanes
from holdfast.core.ordered import OrderedSet
from holdfast.core.ports import Executor
from holdfast.core.runs import Run
from holdfast.core.timeouts import TimeoutPolicy, Watch
from holdfast.observe.logs import get_logger
from holdfast.runtime.committer import Committer
from holdfast.runtime.guards import Guards
from holdfast.runtime.plan import Plan

log = get_logger("holdfast.overdue")

RECALL_S = 0.1
"""A run that is out this long comes back after its current record: to be committed, and to free its lanes."""


@dataclass(slots=True)
class OverdueCounts:
    """Totals since the start."""

    timed_out: int = 0
    came_back: int = 0


class Overdue:
    """Watches the runs that are out.

    `returned` takes a run back as the loop does when a worker hands it over. `held` are runs whose record is overdue
    and that are not given up: because the policy says so, or because too many are given up already.
    """

    def __init__(
        self,
        plan: Plan,
        executor: Executor,
        lanes: Lanes,
        committer: Committer,
        *,
        guards: Guards,
        returned: Callable[[Run, float], None],
    ) -> None:
        self._group = plan.group
        self._policy: TimeoutPolicy = plan.timeout
        self._executor = executor
        self._lanes = lanes
        self._committer = committer
        self._in_flight = guards.in_flight
        self._returned = returned
        self._recalled_at = 0.0
        self._looked_at = 0.0
        self._blocked_s = 0.0
        self._watches: dict[Run, Watch] = {}
        self._given_up = guards.given_up
        self.held: OrderedSet[Run] = OrderedSet()
        self.counts = OverdueCounts()

    def step(self, now: float) -> bool:
        """Look, and act. Whether nothing new may start (`choked`)."""
        if now - self._recalled_at >= RECALL_S / 2:
            self._recall(now)
        timeout_s = self._policy.timeout_s
        if timeout_s is not None and now - self._looked_at >= self._policy.look_every_s:
            self._look(now, timeout_s)
        return self.choked

    # -- what the rest of the app may ask

    @property
    def choked(self) -> bool:
        """Nothing new may start: a record is overdue, and no more workers may be given up."""
        return bool(self.held) and self._policy.on_timeout == "bury"

    @property
    def stuck(self) -> bool:
        """Something is wrong that does not mend itself: records are overdue and nothing ends them."""
        return bool(self.held) or self.blocked

    def abandoned(self, now: float) -> int:
        """Workers that are lost: given up, and not back when they could have been."""
        grace_s = self._executor.grace_s
        return sum(now - since >= grace_s for since in self._given_up.values()) if self._given_up else 0

    # -- looking

    def _recall(self, now: float) -> None:
        """Runs that take too long come back after their current record; what is behind that goes on at once."""
        self._recalled_at = now
        for run in self._in_flight:
            if run.may_grow and now - run.begun_at >= RECALL_S:
                self._tell_to_stop(run)

    def _tell_to_stop(self, run: Run) -> None:
        if not run.stop:
            run.stop = True
            if run.case is None:
                if run.partition.take_stock(run):
                    self._committer.touch(run.partition)
                self._lanes.relieve(run)

    def _look(self, now: float, timeout_s: float) -> None:
        passed_s = self._watched_s(now)
        before, self._watches = self._watches, {}
        for run in list(self._in_flight):
            at = run.current
            if at < 0 or run.waits or run.sending:
                continue  # not begun, or only waiting for what it sent
            watch = before.get(run) or Watch()
            self._watches[run] = watch
            if watch.look(run.begun_at, at, passed_s) >= timeout_s:
                self._overdue(run, at, now)
        for run in [run for run in self.held if self._watch_of(run) < timeout_s]:
            self.held.discard(run)
            log.info("overdue_handler_ended", consumer_group=self._group, place=str(run.partition.place))

    def _watch_of(self, run: Run) -> float:
        watch = self._watches.get(run)
        return 0.0 if watch is None else watch.spent_s

    def _watched_s(self, now: float) -> float:
        """How much of the time since the last look the workers can be held responsible for.

        None, if nothing could work; and not more than a few looks: whoever did not look knows nothing about it. So a
        process that stood still does not time out what stood still with it.
        """
        since_s, self._looked_at = now - self._looked_at, now
        if self._in_flight and not self._executor.lively():
            was_blocked = self.blocked
            self._blocked_s += since_s
            if self.blocked and not was_blocked:
                log.error(
                    "event_loop_blocked",
                    consumer_group=self._group,
                    timeout_s=self._policy.timeout_s,
                    hint="an async handler calls something that blocks, so nothing of its event loop goes on",
                )
            return 0.0
        self._blocked_s = 0.0
        return min(since_s, 2 * self._policy.look_every_s)

    @property
    def blocked(self) -> bool:
        """The event loop of an async handler has not turned for as long as a record may take."""
        return self._policy.timeout_s is not None and self._blocked_s >= self._policy.timeout_s

    # -- acting

    def _overdue(self, run: Run, at: int, now: float) -> None:
        self._tell_to_stop(run)
        if run.current != at or run.done != at or run.failure is not None or run.waits or run.sending:
            return  # it has just come to its end: that counts
        if self._policy.on_timeout == "bury" and self.abandoned(now) < self._policy.max_abandoned:
            self.held.discard(run)
            self._give_up(run, at, now)
        elif run not in self.held:
            self.held.add(run)
            self._say(run, at, "handler_overdue", abandoned=self.abandoned(now), consequence=self._consequence)

    @property
    def _consequence(self) -> str:
        if self._policy.on_timeout == "hold":
            return "its lane waits until the handler ends"
        return "no more threads may be abandoned, so nothing starts until one comes back; restart to get rid of them"

    def _give_up(self, run: Run, at: int, now: float) -> None:
        run.abandoned = True  # from here on its context refuses
        timeout = HandlerTimeout(self._policy.timeout_s or 0.0).with_traceback(self._executor.where(run))
        other = run.stand_in(at, timeout, now)
        if run.case is None:
            self._lanes.replace(run, other)
        self._in_flight.discard(run)
        run.leave()
        del self._watches[run]
        self._given_up[run] = now
        self.counts.timed_out += 1
        self._executor.give_up(run)
        self._say(run, at, "handler_timed_out", abandoned=self.abandoned(now))
        self._returned(other, now)

    def came_back(self, run: Run, now: float) -> None:
        """The worker of a run that was given up is free again. What it says is too late."""
        since = self._given_up.pop(run)
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

    def _say(self, run: Run, at: int, event: str, **fields: object) -> None:
        place = run.partition.place
        log.error(
            event,
            consumer_group=self._group,
            topic=place.topic,
            partition=place.partition,
            offset=run.messages[at].offset(),
            attempt=run.attempt,
            timeout_s=self._policy.timeout_s,
            **fields,
        )
