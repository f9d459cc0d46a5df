"""Probation: after the second death in about the same place, the records that may have caused it are searched.

Many suspects are tried by halves, beside everything else: the lease of their partition ends behind the half, and moves
on when all of it came back (see `core.crash_guard`). A few run one by one, alone: nothing else of the process runs
beside such a suspect, so a crash is caused by it or from outside. An abandoned handler
still runs and can still crash the process. Other records continue whenever no suspect is ready: one that waits for
its next attempt blocks none. Owner: the loop thread.

Which consumers may run records in this process: all, or one of them alone. Shared by the loops of a process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from threading import Lock

from keepfast.core import crash_guard
from keepfast.core.crash_guard import FIRST_LEASE_BETWEEN_INTERVALS, MIN_LEASE, UNKNOWN, CrashWatch, Fate, Guard
from keepfast.core.errors import SourceError
from keepfast.core.events import PreviousOwnerCrashed, ProbationEnded, ProbationStarted
from keepfast.core.lanes import Lanes
from keepfast.core.records import TopicPartition
from keepfast.core.runs import InFlight, Partition, Run
from keepfast.engine.commits import COMMIT_REFUSED, Committer
from keepfast.engine.events import Events
from keepfast.engine.failures import Failures
from keepfast.engine.flight_recorder import FlightRecorder
from keepfast.engine.guards import RATE, Guards
from keepfast.engine.plan import Plan
from keepfast.telemetry.logs import get_logger


class ExclusiveGate:
    """One loop of the process may ask to run alone; it may when all others have acknowledged that nothing of theirs is
    running. A loop that sees that another one has asked must start nothing until that releases the gate.

    Any thread; never blocks.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._members: list[object] = []
        self._quiet: list[object] = []
        self._holder: object | None = None

    def join(self, member: object) -> None:
        with self._lock:
            self._members.append(member)

    def leave(self, member: object) -> None:
        """It has ended: nothing waits for it any more."""
        self.release(member)
        with self._lock:
            if member in self._members:
                self._members.remove(member)

    def acquire(self, member: object) -> bool:
        """Ask, or ask again. Whether this one may run alone now."""
        with self._lock:
            if self._holder is None:
                self._holder = member
                self._quiet = []
            return self._holder == member and all(one == member or one in self._quiet for one in self._members)

    def is_held_by_another(self, member: object) -> bool:
        """Whether another one has asked. So cheap that every turn of a loop can look."""
        holder = self._holder
        return holder is not None and holder != member

    def acknowledge(self, member: object) -> None:
        """Nothing of this one runs, and nothing will start while the gate is another's."""
        with self._lock:
            if self._holder is not None and member not in self._quiet:
                self._quiet.append(member)

    def release(self, member: object) -> None:
        with self._lock:
            if self._holder == member:
                self._holder = None


log = get_logger("keepfast.guard")

MAX_NAMED = 5
"""So many partitions are named in a line about all of an assignment."""

ALONE_S = 300.0
"""A record that takes longer than this is waited for no more: neither before a suspect starts, nor as a suspect. It may
hang forever, and the others must continue; what kills only after so long is not found.
"""


class Probation:
    """Keeps the watch over new partitions, and says what may start while some of them have suspects.

    `suspected` are those that have, whether these are searched by halves or run alone. `seen_ends` says where the logs
    end, as the client knows it. With `max_deliveries` None there is no crash guard.
    """

    def __init__(
        self,
        plan: Plan,
        lanes: Lanes,
        *,
        failures: Failures,
        committer: Committer,
        guards: Guards,
        in_flight: InFlight,
        gate: ExclusiveGate,
        events: Events,
        recorder: FlightRecorder | None = None,
        seen_ends: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]],
    ) -> None:
        self._name = plan.name
        self._group = plan.group
        self._events = events
        self._recorder = recorder
        self._seen_ends = seen_ends
        self._max_deliveries = plan.max_deliveries
        self._first_lease = MIN_LEASE if plan.commit.mode == "each" else FIRST_LEASE_BETWEEN_INTERVALS
        self._lanes = lanes
        self._failures = failures
        self._committer = committer
        self._guards = guards
        self._in_flight = in_flight
        self._gate = gate
        self.suspected: dict[TopicPartition, Partition] = {}
        self._unharmed: list[TopicPartition] = []  # whose owner crashed with none of their records in flight
        self._next: Run | None = None  # taken from the lanes, and waits until it may start
        self._alone: Run | None = None  # the suspect that is running,
        self._accused: Partition | None = None  # and where its start is counted
        self._quiet: set[TopicPartition] = set()  # nothing of what was tried was running a turn ago

    def join(self) -> None:
        """The consumer starts: the others of its process have to reckon with it, until it leaves."""
        self._gate.join(self)

    def begin(self, partition: Partition, metadata: str, offset: int) -> None:
        """A new epoch, with what the metadata of the commit at `offset` has about crashes."""
        if self._max_deliveries is None:
            return
        found = crash_guard.read(metadata, offset)
        fate = self._fate(partition, found)
        guard = crash_guard.inherited(found, offset, fate)
        watch = self._watch(partition, guard)
        if found.charged is not None and guard.starts.get(found.charged, 0) < found.starts.get(found.charged, 0):
            watch.take_back()
        if found.lease is not None:
            self._report(partition, offset, found, guard, fate)
        if guard.until is not None or guard.suspects:
            self._suspect(partition)
            place, suspects = partition.place._asdict(), _suspects(partition, guard)
            self._events.emit(ProbationStarted(*self._events.source, **place, offset=offset, suspects=suspects))

    def report_unharmed(self) -> None:
        """One line for all partitions that have begun since: a process that crashes may have had hundreds."""
        if self._unharmed:
            unharmed, self._unharmed = self._unharmed, []
            log.info(
                "previous_owner_crashed",
                consumer=self._name,
                consumer_group=self._group,
                in_flight=0,
                count=len(unharmed),
                partitions=[str(place) for place in unharmed[:MAX_NAMED]],
            )

    def carry_over(self, before: Partition, partition: Partition) -> None:
        """A new epoch of a partition that stays with this process: what is known about crashes continues."""
        if before.watch is None:
            return
        guard = before.watch.carried(before.ledger.watermark(), partition.ledger.watermark())
        watch = self._watch(partition, guard)
        if before.watch.exposed:
            watch.take_back()
        if guard.suspects or before.watch.exposed:
            self._hand_out_suspects(partition)  # nothing to report: the probation continues

    def _watch(self, partition: Partition, guard: Guard) -> CrashWatch:
        """Attached to the partition, with a place in the flight recorder."""
        flight = self._flight(partition)
        token = self._recorder.token if self._recorder is not None and flight >= 0 else ""
        commit_soon = partial(self._committer.commit_soon, partition)
        base = partition.ledger.watermark()
        watch = CrashWatch(guard, commit_soon, first_lease=self._first_lease, token=token, base=base)
        partition.attach(watch, flight)
        return watch

    def _report(self, partition: Partition, offset: int, found: Guard, guard: Guard, fate: Fate) -> None:
        """The last owner left its lease behind: what that means."""
        if found.draining or not fate.dead:
            why = "was draining" if found.draining else "is still running, or was stopped and could not commit that"
            consequence = f"none: the process that had this partition before did not crash; it {why}"
            log.info("lease_not_released", place=str(partition.place), offset=offset, consequence=consequence)
            return
        known = fate.in_hand is not None
        in_hand = crash_guard.common(fate.in_hand, ((offset, found.lease or 0),)) if fate.in_hand is not None else ()
        if known and not in_hand and not guard.suspects:
            self._unharmed.append(partition.place)
        self._events.emit(
            PreviousOwnerCrashed(
                *self._events.source,
                **partition.place._asdict(),
                offset=offset,
                in_flight=sum(end - first for first, end in in_hand) if known else None,
                in_flight_below=None if known else found.lease,
                suspected=bool(guard.suspects) or (not known and guard.until is not None),
            )
        )

    def _fate(self, partition: Partition, found: Guard) -> Fate:
        if self._recorder is None or not found.token:
            return UNKNOWN
        return self._recorder.fate(found.token, self._group, partition.place, partition.topic_id)

    def _flight(self, partition: Partition) -> int:
        """Its number in the flight recorder, which notes its records in flight from now on; -1 if none does."""
        if self._recorder is None:
            return -1
        return self._recorder.place(self._group, partition.place, partition.topic_id, partition.epoch)

    def _suspect(self, partition: Partition) -> None:
        if partition.place in self.suspected:  # it was lost and is back before anything looked at it
            self._ended(partition.place, handed_over=True)
        self._hand_out_suspects(partition)

    def _hand_out_suspects(self, partition: Partition) -> None:
        self.suspected[partition.place] = partition
        self._quiet.discard(partition.place)
        self._lanes.hand_out_at_once(on=True, singly=self._runs_some_alone())

    def suspects_of(self, partition: Partition) -> int:
        """How many records of the partition are suspects, at most."""
        watch = partition.watch
        return _suspects(partition, watch) if watch is not None and partition.place in self.suspected else 0

    @property
    def waits(self) -> bool:
        """Whether a record is held here that other guards let start."""
        return self._next is not None and self._guards.hold_alone

    def yields(self, now: float) -> bool:
        """Whether another consumer of this process has a suspect: then nothing of this one starts."""
        if not self._gate.is_held_by_another(self):
            return False
        if self._is_still(now):
            self._gate.acknowledge(self)
        return True

    def search(self, now: float) -> bool:
        """Have more suspects tried where those that were tried came back, and end the searches that are over. Whether
        suspects run alone now: then `take` says what starts.
        """
        for place, partition in list(self.suspected.items()):
            watch = partition.watch
            if watch is not None and partition.live and not partition.closing:
                self._search_in(place, partition, watch, now)
            if watch is None or not partition.live or _is_over(partition, watch):
                self._end(place, partition)
        alone = self._next is not None or self._alone is not None or self._runs_some_alone()
        if not alone:
            self._gate.release(self)
        self._lanes.hand_out_at_once(on=bool(self.suspected), singly=alone)
        return alone

    def _runs_some_alone(self) -> bool:
        return any(one.live and one.watch is not None and one.watch.has_alone for one in self.suspected.values())

    def _search_in(self, place: TopicPartition, partition: Partition, watch: CrashWatch, now: float) -> None:
        """What was handed out may be gathered for a batch still, so a turn must have passed in which nothing ran."""
        if watch.begins_search and partition.buffer:
            with suppress(SourceError):
                watch.limit_suspects(self._seen_ends([place]).get(place, watch.suspects_end))
        trial = watch.trial
        if trial is None or (trial.alone and trial.end is None) or not watch.is_tried(partition.handed):
            return
        pending = self._alone is not None or (self._next is not None and _first(self._next).partition is partition)
        if pending or self._is_out(partition, now):
            self._quiet.discard(place)
        elif place not in self._quiet:
            self._quiet.add(place)
        else:
            self._quiet.discard(place)
            watch.pass_trial(partition.handed)

    def _is_out(self, partition: Partition, now: float) -> bool:
        """Whether records of the partition are running, and not for so long that they are waited for no more."""
        out = chain(self._in_flight, self._in_flight.given_up)
        return any(part.partition is partition for run in out if now - run.begun_at < ALONE_S for part in run.parts)

    def _end(self, place: TopicPartition, partition: Partition) -> None:
        if partition.watch is not None and partition.live:
            partition.watch.clear_suspects()
        del self.suspected[place]
        self._quiet.discard(place)
        self._ended(place, handed_over=not partition.live)

    def take(self, room: int, now: float) -> list[Run]:
        """What to start now instead of what the lanes would give: up to `room` single records that are not suspects, or
        one suspect.
        """
        if not self._is_back(now):
            return []
        runs: list[Run] = []
        while len(runs) < room:
            waited, self._next = self._next, None
            run = waited or self._draw(now)
            if run is None:
                break
            if not (_is_startable(run) and self._guards.lets(run)):
                self._put_back(run, now)
            elif not _runs_alone(run):
                if self._is_exposed():
                    self._next = run
                    break
                self._note_delay(run, now, late=run is waited)
                runs.append(run)
            elif self._is_guilty(run):
                self._dead_letter(run, now)
            elif runs or not self._may_start(run, now):
                self._next = run
                break
            else:
                self._note_delay(run, now, late=run is waited)
                self._alone, self._accused = run, _first(run).partition
                return [run]
        if self._next is None or not _runs_alone(self._next):
            self._gate.release(self)
        return runs

    def rest(self, now: float) -> None:
        """Something else holds the consumer: no suspect of it starts for now, so others need not wait for that."""
        if not self._is_back(now):
            return
        if self._next is not None and _is_charged(self._next):
            _acquit(_first(self._next).partition, finished=False)
        if not self._is_exposed():
            self._gate.release(self)

    def leave(self) -> None:
        """The consumer ends: others need not wait for it."""
        self._gate.leave(self)

    def _is_back(self, now: float) -> bool:
        """Whether no suspect is running, or the one that is has taken too long to be waited for."""
        run = self._alone
        if run is None:
            return True
        out = run in self._in_flight or run in self._in_flight.given_up
        if out and now - run.begun_at < ALONE_S:
            return False
        if out:
            log.warning("suspect_takes_too_long", place=str(self._accused and self._accused.place))
        _acquit(self._accused, finished=not out and run.done > 0)
        self._alone = self._accused = None
        return True

    def _note_delay(self, run: Run, now: float, *, late: bool) -> None:
        if late:
            self._guards.starts_late(run, now)

    def _draw(self, now: float) -> Run | None:
        if not self._guards.may_take(now):
            return None
        runs = self._guards.take(self._failures, 1, 1, now)
        return runs[0] if runs else None

    def _put_back(self, run: Run, now: float) -> None:
        """Its partition is held, or goes; or another guard holds everything now."""
        _acquit(_first(run).partition, finished=False)
        self._guards.returned(run, now)  # as if it had been out and done nothing: it may have been a probe
        if run.failed_record is None:
            self._lanes.take_back(run)
        elif not run.failed_record.dropped:
            self._failures.run_again(run.failed_record, first=True)

    def _is_guilty(self, run: Run) -> bool:
        return self._max_deliveries is not None and _starts(run) >= self._max_deliveries

    def _dead_letter(self, run: Run, now: float) -> None:
        self._guards.returned(run, now)  # it never starts: if it is the probe, another one is needed
        failed_record = run.failed_record or self._lanes.split(_first(run), now)
        failed_record.partition.add_failed(failed_record)
        self._failures.crashed(failed_record, _starts(run), now)

    def _may_start(self, run: Run, now: float) -> bool:
        """Whether the suspect may start: nothing runs beside it, and the broker has counted the start."""
        partition = _first(run).partition
        watch = partition.watch
        if watch is None or not self._is_still(now) or not self._gate.acquire(self):
            return False
        counted = watch.charge(run.messages[0].offset())
        return counted and not self._is_exposed(but=partition)

    def _is_still(self, now: float) -> bool:
        with_workers = chain(self._in_flight, self._in_flight.given_up)
        return all(now - run.begun_at >= ALONE_S for run in with_workers)

    def _is_exposed(self, *, but: Partition | None = None) -> bool:
        """Whether the broker may hold a count for a record that is not running, and a commit can take it back.

        While it refuses the commits of a partition, no commit can, perhaps for hours; the other partitions continue.
        """
        return any(
            one is not but
            and one.live
            and COMMIT_REFUSED not in one.holds
            and one.watch is not None
            and one.watch.exposed
            for one in self.suspected.values()
        )

    def _ended(self, place: TopicPartition, *, handed_over: bool) -> None:
        self._events.emit(ProbationEnded(*self._events.source, **place._asdict(), handed_over=handed_over))


def _is_over(partition: Partition, watch: CrashWatch) -> bool:
    """Whether all suspects are finished, or came back when they were tried, and the broker holds no count."""
    if watch.exposed:
        return False
    ledger = partition.ledger
    finished = ledger.watermark() >= watch.until and all(ledger.are_finished(*span) for span in watch.suspects)
    return finished or watch.trial is None


def _suspects(partition: Partition, guard: Guard | CrashWatch) -> int:
    """How many there are, at most."""
    base = partition.ledger.watermark()
    reach = max(0, (guard.until or 0) - base)
    return reach + sum(end - max(first, base + reach) for first, end in guard.suspects if end > base + reach)


def _acquit(partition: Partition | None, *, finished: bool) -> None:
    """Its suspect is not running any more, and the process is alive."""
    if partition is not None and partition.live and partition.watch is not None:
        partition.watch.came_back(finished=finished)


def _first(run: Run) -> Run:
    """What holds the lane of a suspect, which is alone in its batch."""
    return run.parts[0]


def _starts(run: Run) -> int:
    """How often the suspect was started and did not come back."""
    watch = _first(run).partition.watch
    return watch.starts(_first(run).messages[0].offset()) if watch is not None else 0


def _is_charged(run: Run) -> bool:
    """Whether its start is counted, or about to be."""
    watch = _first(run).partition.watch
    return watch is not None and watch.charged is not None


def _is_startable(run: Run) -> bool:
    """Whether nothing holds its partitions but the rate, which it has used up itself when it was taken."""
    partitions = [part.partition for part in run.parts]
    return all(one.live and not one.closing and one.holds <= {RATE} for one in partitions)


def _runs_alone(run: Run) -> bool:
    return any(
        part.partition.watch is not None and part.partition.watch.runs_alone(part.messages[0].offset())
        for part in run.parts
    )
