"""A queue (a share group): records of any partition, each locked for a time, and acknowledged one by one.

It differs from a consumer of partitions in how records come in (`Deliveries`), how the broker learns what is finished
(`Acknowledger`), and in its locks (`Locks`). All else is the same: each partition of a delivery is an epoch of its own,
which ends when everything of it is acknowledged, or when the locks run out. Owner: the loop thread.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from keepfast.core.crash_guard import covers
from keepfast.core.errors import Fault, SourceError
from keepfast.core.events import CommitFailed, LockExpired
from keepfast.core.lanes import Holder, Lanes
from keepfast.core.ports import Clock, CommitOutcome, Position, QueueSource
from keepfast.core.records import Message, TopicPartition, deliveries_of
from keepfast.core.runs import FailedRecord, InFlight, Partition
from keepfast.engine.commits import Committer, SentPart
from keepfast.engine.events import Events
from keepfast.engine.failures import Failures
from keepfast.engine.flight_recorder import FlightRecorder
from keepfast.engine.guards import Holds
from keepfast.engine.intake import Intake
from keepfast.engine.outcomes import OutcomeReporter
from keepfast.engine.ownership import Ownership
from keepfast.engine.plan import Plan
from keepfast.engine.rebalance import Handover

ALL: Final = 1 << 30
"""Records: all that were acquired together."""

PROBATION: Final = 0.5
"""The share of the lock in which records that were delivered before run one by one."""

DEATHS: Final = 2
"""One that was in flight so often when its process died is taken for the cause."""

LETTERS: Final = "letters"
"""The hold while a dead letter is not published although the lock of its record has run out: what is delivered now
might come to the same end.
"""


class Deliveries(Intake):
    """Takes what was acquired together, when everything before it is acknowledged. `acquired_at`: when that was.

    Nothing is acquired while the consumer is held or has no free worker: a record that only waits here would be locked
    for nothing, and each delivery counts.

    Records that were delivered before are on probation: one of them may have killed its process. They run first, one by
    one, the next when the broker has the acknowledgement of the last, always in the same order, and those last that
    were in flight when a process of this host died. So if a process dies with one of them, those before it are
    finished, and it is the first of what is left: it alone is dead-lettered at its last delivery, and the others are
    spared once. Where flight recorders tell of deaths, those are dead-lettered that were in flight at two of them, and
    no other. After half of the lock what is left runs together.
    """

    def __init__(
        self,
        source: QueueSource,
        ownership: Ownership,
        lanes: Lanes,
        plan: Plan,
        clock: Clock,
        *,
        outcomes: OutcomeReporter,
        at_end: Callable[[Partition, float], None],
        holds: Holds,
        in_flight: InFlight,
        committer: Committer,
        recorder: FlightRecorder | None,
        topic_ids: Mapping[str, str],
    ) -> None:
        super().__init__(source, ownership, lanes, plan, clock, outcomes=outcomes, at_end=at_end)
        self._committer = committer
        self._probation_s = (plan.lock_s or 0.0) * PROBATION
        self._behind: deque[list[Message]] = deque()  # acquired, and to begin one after another
        self._recorder = recorder
        self._group = plan.group
        self._condemned: set[tuple[str, int, int]] = set()  # the others are spared
        self._topic_ids = topic_ids
        self._capacity = plan.capacity
        self._holds = holds
        self._out = in_flight
        self.acquired_at = float("-inf")
        self.polled = False
        self.redelivered = 0

    @property
    def has_backlog(self) -> bool:
        return False

    @property
    def has_room(self) -> bool:
        return True

    def poll(self, now: float, timeout_s: float, *, inline: bool = False) -> bool:  # noqa: ARG002 - as of any intake
        if self.closed or self._holds or len(self._out) >= self._capacity:
            self._source.serve(timeout_s)
            return False
        if self._behind:
            return self._continue(timeout_s)
        message = self._source.poll(timeout_s)
        self.polled = True
        if message is None:
            return False
        self._take([message, *self._source.sweep(ALL)])
        return True

    def close(self) -> None:
        self.closed = True

    def drop_waiting(self) -> dict[TopicPartition, list[int]]:
        """Those that have not begun never will: their offsets, by partition."""
        found: dict[TopicPartition, list[int]] = defaultdict(list)
        for message in (message for messages in self._behind for message in messages):
            found[TopicPartition(message.topic(), message.partition())].append(message.offset())
        self._behind.clear()
        return found

    def _take(self, messages: list[Message]) -> None:
        self.acquired_at = self._clock.monotonic()
        suspects = sorted((one for one in messages if deliveries_of(one) > 1), key=_probation_order)
        new = [one for one in messages if deliveries_of(one) <= 1]
        self.redelivered += len(suspects)
        self._condemned = set(map(_place_of, suspects[:1]))
        if suspects and (deaths := self._deaths(suspects)) is not None:
            suspects.sort(key=lambda one: deaths[_place_of(one)])
            self._condemned = {place for place, count in deaths.items() if count >= DEATHS}
        self._behind.extend([one] for one in suspects)
        if new:
            self._behind.append(new)
        self._begin(self._behind.popleft())

    def _deaths(self, suspects: list[Message]) -> Counter[tuple[str, int, int]] | None:
        """At how many deaths of processes of this host each was in flight; None if no death is known."""
        if self._recorder is None:
            return None
        found: Counter[tuple[str, int, int]] = Counter()
        noted = {
            topic: self._recorder.deaths(self._group, topic, self._topic_ids.get(topic, ""))
            for topic in {one.topic() for one in suspects}
        }
        for one in suspects:
            for in_hand in noted[one.topic()]:
                found[_place_of(one)] += covers(in_hand.get(one.partition(), ()), one.offset())
        return found if any(noted.values()) else None

    def _continue(self, timeout_s: float) -> bool:
        """Begin what comes next, when the broker has the acknowledgement of what was before it."""
        if any(one.ledger.unfinished() or self._committer.has_pending(one) for one in self._ownership):
            self._source.serve(timeout_s)
            return False
        if self._clock.monotonic() - self.acquired_at >= self._probation_s:
            left = [message for messages in self._behind for message in messages]
            parts = [[one for one in left if (_place_of(one) in self._condemned) is found] for found in (True, False)]
            self._behind = deque(filter(None, parts))
        self._begin(self._behind.popleft())
        return True

    def _begin(self, messages: list[Message]) -> None:
        found: dict[TopicPartition, dict[int, Message]] = defaultdict(dict)
        for message in messages:
            found[TopicPartition(message.topic(), message.partition())][message.offset()] = message
        for place, by_offset in found.items():
            before = self._ownership.get(place)
            if before is not None:  # it is acknowledged
                self._ownership.end(before)
            ordered = [by_offset[offset] for offset in sorted(by_offset)]
            partition = self._ownership.begin(
                place, start=min(by_offset), topic_id=self._topic_ids.get(place.topic, "")
            )
            partition.spared = self._condemned.isdisjoint(map(_place_of, ordered))
            if self._recorder is not None:
                partition.flight = self._recorder.place(self._group, place, partition.topic_id, partition.epoch)
            self._feed(ordered)


def _place_of(message: Message) -> tuple[str, int, int]:
    return message.topic(), message.partition(), message.offset()


def _probation_order(message: Message) -> tuple[int, str, int, int]:
    """The same in each process, and at each delivery."""
    return -deliveries_of(message), *_place_of(message)


class Acknowledger(Committer):
    """Acknowledges finished records, once: what fails is not sent again, but delivered again when its lock runs out."""

    def __init__(
        self, source: QueueSource, lanes: Lanes, plan: Plan, topic_ids: Mapping[str, str], events: Events
    ) -> None:
        super().__init__(source, lanes, plan, topic_ids, events)
        self._acknowledged: dict[Partition, set[int]] = defaultdict(set)

    def finished(self, partition: Partition, holder: Holder, records: int) -> None:
        if partition.live:
            super().finished(partition, holder, records)
        else:  # its lock ran out while its letter was published
            self._lanes.release(holder)

    def _is_due(self, now: float, *, others_soon: bool) -> bool:
        """At once, when the next records can be acquired after it."""
        complete = any(partition.ledger.watermark() > partition.ledger.last for partition in self._dirty.values())
        return complete or super()._is_due(now, others_soon=others_soon)

    def _position(self, partition: Partition) -> Position | None:
        sent = self._acknowledged[partition]
        finished = [offset for offset in partition.ledger.finished_offsets() if offset not in sent]
        if not finished:
            return None
        sent.update(finished)
        return Position(partition.place, partition.ledger.watermark(), finished=finished)

    def on_committed(self, outcome: CommitOutcome, now: float) -> None:
        super().on_committed(outcome, now)
        self._acknowledged = defaultdict(
            set, {partition: sent for partition, sent in self._acknowledged.items() if partition.live}
        )

    def _failed(self, sent: dict[TopicPartition, SentPart], outcome: CommitOutcome, now: float) -> None:  # noqa: ARG002
        self.failed += 1
        errors: dict[TopicPartition, SourceError] = {position.place: error for position, error in outcome.failed}
        for place, part in sent.items():
            self._release(part.holders)
            error = errors.get(place)
            fault = error.fault if error is not None else Fault.RETRY
            if fault is Fault.FATAL:
                self.fatal = error
            first = min(part.position.finished, default=part.position.offset)
            self._events.emit(
                CommitFailed(
                    *self._events.source,
                    **place._asdict(),
                    offset=first,
                    fault=fault,
                    code=error.code if error is not None else "",
                )
            )


class Locks:
    """Ends what was acquired when its locks run out: nothing more of it starts, and late results do not count. Dead
    letters that are being published continue: the record may not come again.

    `expired`: records whose lock ran out, since the start.
    """

    def __init__(
        self,
        lock_s: float,
        source: QueueSource,
        deliveries: Deliveries,
        ownership: Ownership,
        handover: Handover,
        *,
        committer: Committer,
        failures: Failures,
        holds: Holds,
        events: Events,
    ) -> None:
        self.lock_s = lock_s
        self._source = source
        self._deliveries = deliveries
        self._ownership = ownership
        self._handover = handover
        self._committer = committer
        self._failures = failures
        self._holds = holds
        self._events = events
        self._publishing: set[FailedRecord] = set()
        self.expired = 0

    @property
    def has_polled(self) -> bool:
        """Whether records were asked for."""
        return self._deliveries.polled

    @property
    def redelivered(self) -> int:
        """Records that had been delivered before, since the start. Any thread may read."""
        return self._deliveries.redelivered

    def step(self, now: float) -> None:
        if now - self._deliveries.acquired_at >= self.lock_s:
            waiting = self._deliveries.drop_waiting()
            for partition in self._ownership:
                if partition.ledger.unfinished() or partition.place in waiting:
                    self._expire(partition, waiting.pop(partition.place, []))
            for place, left in waiting.items():
                self._expired(place, sorted(left), in_flight=0)
                self._source.release([place])
        if self._publishing or LETTERS in self._holds:
            self._publishing &= set(self._failures.settling)
            self._holds.put(LETTERS, held=bool(self._publishing))

    def _expire(self, partition: Partition, waiting: Sequence[int]) -> None:
        """With those of the same place that have not begun."""
        place, left = partition.place, sorted((*partition.ledger.unfinished_offsets(), *waiting))
        in_hand = {offset for run in partition.running for of, offset in run.in_hand() if of is partition}
        self._expired(place, left, in_flight=len(in_hand))
        self._handover.close_down([place])
        self._publishing |= {one for one in self._failures.settling if one.partition is partition}
        self._source.release([place])
        self._committer.forget(partition)
        self._ownership.end(partition)

    def _expired(self, place: TopicPartition, left: Sequence[int], *, in_flight: int) -> None:
        self.expired += len(left)
        self._events.emit(
            LockExpired(
                *self._events.source,
                **place._asdict(),
                offset=left[0],
                records=len(left),
                in_flight=in_flight,
                lock_s=self.lock_s,
            )
        )
