"""Breaker, storm guard and rate limits: what may start now, and what must wait. Owner: the loop thread.

The machines are pure (`core/guards.py`); here is what the loop does about them.
Breaker and storm guard each have a named hold of the consumer. While one is there nothing starts but one probe at a
time, and no other result than the probe's decides anything. Waiting is never burning: a record that waits for a guard
is neither counted as another failure nor dead-lettered, and the clock of its retries is stopped. The same holds while
the schema of a record is fetched from the registry, without probes: what fetches it knows when it is there.

What the guards of a consumer look at, and how they say that they stand.

Rate limits in the loop: a partition that has used its rate up is held, and a timer lets it continue.

Owner: the loop thread.

Named reasons not to start anything. Owner: the loop thread; others may read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Literal, Protocol

from keepfast.classify.classification import Classification
from keepfast.core import verdicts
from keepfast.core.errors import SchemaPending
from keepfast.core.events import BreakerClosed, BreakerOpened, Held, Released, StormGuardReleased, StormGuardTripped
from keepfast.core.guards import Breaker, BreakerState, Pace, RatePolicy, StormGuard
from keepfast.core.lanes import Lanes
from keepfast.core.ports import Clock
from keepfast.core.records import Message, TopicPartition
from keepfast.core.runs import FailedRecord, InFlight, Partition, Run
from keepfast.core.verdicts import Verdict
from keepfast.engine.events import Events
from keepfast.engine.plan import Plan
from keepfast.engine.timers import Timers
from keepfast.telemetry.logs import get_logger


class Ready(Protocol):
    """Where failed records wait for their next attempt."""

    @property
    def ready(self) -> Sized: ...
    def take_ready(self, limit: int) -> list[FailedRecord]: ...


class Tried(Protocol):
    """What is tried again and again: a failed record, or a batch, of which the first record stands for all."""

    message: Message
    begun_at: float
    still_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How the guards stand, for health and metrics. `breaker` and `storm` are None where there is no such guard."""

    breaker: BreakerState | None
    breaker_opened: int
    storm: Literal["watching", "tripped"] | None
    storm_tripped: int
    waits: int
    """How often a failed attempt was neither counted nor dead-lettered."""
    holds: Mapping[str, float]
    """What holds the whole consumer, and since when (monotonic)."""


RATE = "rate"
"""The hold on a partition whose own rate is used up."""


class Pacing:
    """Lanes wait here, no thread does."""

    def __init__(self, plan: Plan, lanes: Lanes) -> None:
        self._pace = Pace(plan.rate or RatePolicy(), plan.spacing)
        self._lanes = lanes
        self._until: float | None = None  # nothing of the consumer may start before
        self._held: Timers[Partition] = Timers()

    def wait_s(self, now: float) -> float:
        """Seconds until a record may start at all; 0: now. A waiting consumer is woken up in time."""
        wait_s = self._pace.wait_s(now)
        if wait_s > 0:
            self._until = now + wait_s
        return wait_s

    def started(self, run: Run, now: float) -> None:
        """A run of one record; or a batch, which is all of its records at once, and what comes next waits for them."""
        for part in run.parts:
            partition = part.partition
            for _ in part.messages:
                self._pace.started(partition.place, now)
            wait_s = self._pace.partition_wait_s(partition.place, now)
            if wait_s > 0:
                partition.holds.add(RATE)
                self._held.add(now + wait_s, partition)

    def step(self, now: float) -> None:
        """Let those continue whose time has come."""
        if self._until is not None and now >= self._until:
            self._until = None
        for partition in self._held.due(now):
            if partition.live:
                partition.holds.discard(RATE)
                self._lanes.ready(partition)

    def next_in(self, now: float) -> float:
        """Seconds until a record may start."""
        until_s = float("inf") if self._until is None else max(0.0, self._until - now)
        return min(until_s, self._held.next_in(now))

    def ended(self, now: float) -> None:
        """A run came back."""
        self._pace.ended(now)

    def forget(self, place: TopicPartition) -> None:
        self._pace.forget(place)


log = get_logger("keepfast.guards")


class Holds(set[str]):
    """Each hold is removed by the part that added it; something starts only when there is none. `since`: since when
    (monotonic). `halted`: why the app has to stop, by a verdict or by order of its process; that hold stays.
    """

    def __init__(self, clock: Clock, events: Events) -> None:
        super().__init__()
        self._clock = clock
        self._events = events
        self.since: dict[str, float] = {}
        self.halted: str | None = None

    def halt(self, reason: str) -> None:
        """Nothing new starts; the app stops this consumer like all others. The first reason counts."""
        self.add(HALT)
        self.halted = self.halted or reason

    def add(self, name: str) -> None:
        if name not in self:
            super().add(name)
            self.since[name] = self._clock.monotonic()

    def discard(self, name: object) -> None:
        super().discard(name)
        self.since.pop(str(name), None)

    def put(self, name: str, *, held: bool) -> None:
        """Add or remove it; an event if that changes something."""
        if held and name not in self:
            self.add(name)
            self._events.emit(Held(*self._events.source, hold=name))
        elif not held and name in self:
            self.discard(name)
            self._events.emit(Released(*self._events.source, hold=name))


HALT, BREAKER, STORM, REGISTRY = "halt", "breaker", "storm", "registry"
"""Holds of the whole consumer."""

ASK_AGAIN_S = 0.01
"""How often a consumer that waits for schemas asks whether they are there."""
REPORT_AFTER_S = 1.0
"""A consumer that waits for the registry for longer says so."""


class Guards:
    """`on` is False when this consumer has no guards: then calls can be skipped.

    A hold that begins stops what is in flight.
    """

    def __init__(self, plan: Plan, lanes: Lanes, holds: Holds, in_flight: InFlight, events: Events) -> None:
        self._consumer = plan.name
        self._events = events
        self._lanes = lanes
        self._holds = holds
        self._in_flight = in_flight
        self.breaker = Breaker(plan.breaker) if plan.breaker else None
        self.storm = StormGuard(plan.storm_guard) if plan.storm_guard else None
        self._alone_s = plan.breaker.open_s if plan.breaker else 0.0
        self._pacing = Pacing(plan, lanes) if plan.paced else None
        self.on = any((self.breaker, self.storm, self._pacing))
        self._probe: Message | None = None
        self._probe_place: Partition | None = None
        self._back = False  # the probe has come back, and its outcome is not reported yet
        self._fresh_first = False
        self._cases_turn = False
        self._still_since: float | None = None
        self._still_s = 0.0
        self._schemas: list[SchemaPending] = []
        self._registry_reported = False
        self.waits = 0

    def status(self) -> Status:
        """Any thread may ask."""
        breaker, storm = self.breaker, self.storm
        return Status(
            breaker=breaker.state if breaker else None,
            breaker_opened=breaker.opened if breaker else 0,
            storm=("tripped" if storm.tripped else "watching") if storm else None,
            storm_tripped=storm.trips if storm else 0,
            waits=self.waits,
            holds=dict(self._holds.since),
        )

    # -- starting

    def probe_due(self, now: float) -> bool:
        """Whether the only holds there are want to try a record now."""
        if not self.on or self._probe is not None or not self.hold_alone:
            return False
        return self._probes_in(now) == 0

    @property
    def hold_alone(self) -> bool:
        """Whether only these guards hold the consumer."""
        return self._holds <= {BREAKER, STORM}

    def may_take(self, now: float) -> bool:
        """Whether `take` may be asked: nothing is held, or a probe is due."""
        return not self._holds or self.probe_due(now)

    def lets(self, run: Run) -> bool:
        """Whether a run that was taken may start now: nothing is held, or it is the probe."""
        return not self._holds or (self._probe is not None and run.messages[0] is self._probe)

    def starts_late(self, run: Run, now: float) -> None:
        """One that was taken before starts only now: the next one keeps its distance from this moment."""
        if self._pacing is not None:
            self._pacing.started(run, now)

    def take(self, failed_records: Ready, room: int, size: int, now: float) -> list[Run]:
        """What may start: at most `room` runs of at most `size` records, one record if it is a probe."""
        if self._holds:
            return self._take_probe(failed_records, now)
        if self._pacing is not None:
            return self._take_paced(failed_records, self._pacing, room, now)
        if not failed_records.ready:
            return self._lanes.take(room, size)
        # By turns, half of the room each: keys that fail forever must not keep the others from starting.
        self._cases_turn = not self._cases_turn
        if self._cases_turn:
            runs = _cases(failed_records, (room + 1) // 2)
            runs += self._lanes.take(room - len(runs), size)
        else:
            runs = self._lanes.take((room + 1) // 2, size)
        return runs + _cases(failed_records, room - len(runs))

    def _take_probe(self, failed_records: Ready, now: float) -> list[Run]:
        runs = [] if self._fresh_first else _cases(failed_records, 1)
        runs = runs or self._lanes.take(1, 1) or _cases(failed_records, 1)
        if not runs:
            return runs
        run = runs[0]
        if len(run.messages) > 1:  # what is left of a bundle: all but the first record goes back
            run.current = 0
            self._lanes.relieve(run)
            run.current = -1
        self._probe, self._probe_place = run.messages[0], run.partition
        self._fresh_first = run.failed_record is not None  # next time: one bad record must not be every probe
        if self._pacing is not None:
            self._pacing.started(run, now)
        if self.breaker is not None:
            self.breaker.may_probe(now)
        if self.storm is not None:
            self.storm.may_probe(now)
        log.info("probe_started", consumer=self._consumer, holds=sorted(self._holds), place=str(run.partition.place))
        return [run]

    def _take_paced(self, failed_records: Ready, pacing: Pacing, room: int, now: float) -> list[Run]:
        runs: list[Run] = []
        while len(runs) < room and pacing.wait_s(now) == 0:
            self._cases_turn = not self._cases_turn
            taken = self._lanes.take(1, 1) if self._cases_turn else _cases(failed_records, 1)
            taken = taken or _cases(failed_records, 1) or self._lanes.take(1, 1)
            if not taken:
                break
            pacing.started(taken[0], now)
            runs += taken
        return runs

    # -- time

    def step(self, now: float) -> None:
        """What time lets continue; and a probe that came back and was given up."""
        if self._back:
            self._probe_vanished(now)
        if self._pacing is not None:
            self._pacing.step(now)
        if self._schemas:
            self._look_for_schemas(now)

    def next_in(self, now: float) -> float:
        """Seconds until something may start that may not now. What is overdue waits for a record, not for time."""
        if self._schemas:
            return ASK_AGAIN_S
        if self._holds:
            return self._probes_in(now) or float("inf")
        return float("inf") if self._pacing is None else self._pacing.next_in(now)

    def elapsed_s(self, failed_record: Tried, now: float) -> float:
        """How long the failed record has been tried; the time in which a guard held everything does not count."""
        if failed_record.still_s is None:
            failed_record.still_s = self._stood_still_s(now)
        return now - failed_record.begun_at - (self._stood_still_s(now) - failed_record.still_s)

    def _stood_still_s(self, now: float) -> float:
        return self._still_s + (0.0 if self._still_since is None else now - self._still_since)

    def _probes_in(self, now: float) -> float:
        """Until every guard that holds wants a probe."""
        waits = [self.breaker.probes_in(now)] if self.breaker is not None and BREAKER in self._holds else []
        if self.storm is not None and STORM in self._holds:
            waits.append(self.storm.probes_in(now))
        if self._pacing is not None:
            waits.append(self._pacing.wait_s(now))
        return max(waits, default=float("inf"))

    # -- results

    def returned(self, run: Run, now: float) -> None:
        """A worker handed back a run: count what it did, once for all of it. What the filter did not let pass says
        nothing about the handler.
        """
        handled = run.handled
        if self._pacing is not None:
            self._pacing.ended(now)
        probe = self._probe is not None and bool(run.messages) and run.messages[0] is self._probe
        if probe and handled:
            self._probe = self._probe_place = None
            self._went_through(now)
        elif probe:
            self._back = True
        elif handled:
            if self.breaker is not None and self.breaker.state is BreakerState.CLOSED:
                self.breaker.succeeded(now, handled)
            if self.storm is not None:
                self.storm.finished(handled)

    def holds_back(
        self, failed_record: Tried, found: Classification, verdict: Verdict, now: float, *, several: bool = False
    ) -> float | None:
        """An attempt failed, and this is what the judge says: None lets it be carried out.

        Otherwise the record waits: so many seconds on its own, 0 for as long as a guard holds everything. The attempt
        must not be counted then. `several` records failed together: if that is final, none of them is dead-lettered
        yet.
        """
        probe = self._probe is not None and failed_record.message is self._probe
        if probe:
            self._probe, self._probe_place, self._back = None, None, False
        wait_s = self._ask_breaker(self.breaker, found, verdict, now, probe=probe) if self.breaker else None
        if self.storm is not None:
            judged = verdicts.RetryAfter(0.0) if several and isinstance(verdict, verdicts.DeadLetter) else verdict
            wait_s = self._ask_storm(self.storm, judged, wait_s, now, probe=probe)
        if wait_s is not None:
            self.waits += 1
            failed_record.begun_at += wait_s
        return wait_s

    def wait_for_schema(self, tried: Tried, pending: SchemaPending, now: float) -> None:
        """A record cannot be decoded yet: nothing starts until its schema is there, or is known not to exist. The
        attempt must not be counted. Records that fail are judged as before.
        """
        if self._probe is not None and tried.message is self._probe:
            self._probe_vanished(now)
        self.waits += 1
        self.on = True
        if not self._schemas:
            self._hold(REGISTRY, now)
        self._schemas.append(pending)

    def _look_for_schemas(self, now: float) -> None:
        """A new schema is there at once; only what takes longer is reported."""
        self._schemas = [pending for pending in self._schemas if not pending.answered()]
        if not self._schemas:
            self._let_go(REGISTRY, now, by="registry")
        elif not self._registry_reported and now - self._holds.since[REGISTRY] >= REPORT_AFTER_S:
            self._registry_reported = True
            self._events.emit(Held(*self._events.source, hold=REGISTRY))

    def _ask_breaker(
        self, breaker: Breaker, found: Classification, verdict: Verdict, now: float, *, probe: bool
    ) -> float | None:
        closed, final = breaker.state is BreakerState.CLOSED, found.kind != "retryable"
        if not found.outage:
            if closed:
                breaker.succeeded(now)
            elif probe:  # it failed by itself, perhaps long before it came to the downstream
                breaker.probe_vanished(now)
            return None
        if closed or probe:
            breaker.failed(now)
        if probe and not closed:
            log.warning("breaker_probe_failed", consumer=self._consumer, next_probe_s=round(breaker.probes_in(now), 3))
        if breaker.state is BreakerState.CLOSED and isinstance(verdict, verdicts.DeadLetter) and not final:
            if breaker.serves_others(now):
                return self._alone_s
            breaker.force_open(now)
        if closed and breaker.state is BreakerState.OPEN:
            self._hold(BREAKER, now)
            self._events.emit(
                BreakerOpened(
                    *self._events.source,
                    outages=breaker.outages,
                    attempts=breaker.attempts,
                    rule=found.rule,
                    next_probe_s=breaker.probes_in(now),
                )
            )
        return None if final or breaker.state is BreakerState.CLOSED else 0.0

    def _ask_storm(
        self, storm: StormGuard, verdict: Verdict, wait_s: float | None, now: float, *, probe: bool
    ) -> float | None:
        if storm.tripped:
            if probe and isinstance(verdict, verdicts.DiscardRecord | verdicts.HaltConsumer):
                storm.probe_vanished(now)
            elif probe:
                storm.probe_failed(now)
                log.error(
                    "storm_guard_probe_failed", consumer=self._consumer, next_probe_s=round(storm.probes_in(now), 3)
                )
            return 0.0 if wait_s is None and isinstance(verdict, verdicts.DeadLetter) else wait_s
        if isinstance(verdict, verdicts.DiscardRecord):
            storm.finished()
        elif isinstance(verdict, verdicts.DeadLetter) and wait_s is None:
            storm.may_dead_letter(now)
            if storm.tripped:
                self._hold(STORM, now)
                self._events.emit(
                    StormGuardTripped(
                        *self._events.source,
                        dead_lettered=storm.dead_lettered,
                        records=storm.seen,
                        next_probe_s=storm.probes_in(now),
                    )
                )
        return wait_s

    # -- holds

    def release(self, hold: str, now: float) -> None:
        """By hand: continue at once, whatever the guard thinks. A hold that is not there is released already."""
        if hold in self._holds:
            self._probe_vanished(now)  # one that is out decides nothing any more
        if hold == BREAKER and self.breaker is not None and BREAKER in self._holds:
            self.breaker.close()
            self._let_go(BREAKER, now, by="operator")
        elif hold == STORM and self.storm is not None and STORM in self._holds:
            self.storm.release()
            self._let_go(STORM, now, by="operator")

    def forget(self, partition: Partition) -> None:
        """It goes: another probe is needed if the one that is out is of it."""
        if self._pacing is not None:
            self._pacing.forget(partition.place)
        if self._probe_place is partition:
            self._back = True

    def _hold(self, hold: str, now: float) -> None:
        """Nothing starts any more, not even what runs that are out have still before them."""
        self._holds.add(hold)
        if self._still_since is None:
            self._still_since = now
        for run in self._in_flight:
            run.stop = True
            if run.failed_record is None and run.current >= 0:
                self._lanes.relieve(run)

    def _let_go(self, hold: str, now: float, *, by: str) -> None:
        held_s = now - self._holds.since.get(hold, now)
        self._holds.discard(hold)
        if self._still_since is not None and not self._holds & {BREAKER, STORM, REGISTRY}:
            self._still_s += now - self._still_since
            self._still_since = None
        if hold == REGISTRY:
            if self._registry_reported:
                self._registry_reported = False
                self._events.emit(Released(*self._events.source, hold=hold))
            return
        ended = BreakerClosed if hold == BREAKER else StormGuardReleased
        self._events.emit(ended(*self._events.source, by=by, held_s=held_s))

    def _went_through(self, now: float) -> None:
        if self.breaker is not None and BREAKER in self._holds:
            self.breaker.succeeded(now)
            if self.breaker.state is BreakerState.CLOSED:  # it may have opened while the other's probe was out
                self._let_go(BREAKER, now, by="probe")
        if self.storm is not None and self.storm.probing:
            self.storm.release()
            self._let_go(STORM, now, by="probe")

    def _probe_vanished(self, now: float) -> None:
        self._probe, self._probe_place, self._back = None, None, False
        if self.breaker is not None:
            self.breaker.probe_vanished(now)
        if self.storm is not None and self.storm.probing:
            self.storm.probe_vanished(now)


def _cases(failed_records: Ready, limit: int) -> list[Run]:
    return [Run.again(failed_record) for failed_record in failed_records.take_ready(limit)]
