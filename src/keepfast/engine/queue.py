"""A queue (a share group): records of any partition, each locked for a time, and acknowledged one by one.

It differs from a consumer of partitions in how records come in (`Deliveries`), how the broker learns what is finished
(`Acknowledger`), and in its locks (`Locks`). All else is the same: each partition of a delivery is an epoch of its own,
which ends when everything of it is acknowledged, or when the locks run out. Owner: the loop thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from keepfast.core.errors import Fault, SourceError
from keepfast.core.events import CommitFailed, LockExpired
from keepfast.core.lanes import Holder, Lanes
from keepfast.core.ports import Clock, CommitOutcome, Position, QueueSource
from keepfast.core.records import Message, TopicPartition, deliveries_of
from keepfast.core.runs import FailedRecord, InFlight, Partition
from keepfast.engine.commits import Committer, SentPart
from keepfast.engine.events import Events
from keepfast.engine.failures import Failures
from keepfast.engine.guards import Holds
from keepfast.engine.intake import Intake
from keepfast.engine.outcomes import OutcomeReporter
from keepfast.engine.ownership import Ownership
from keepfast.engine.plan import Plan
from keepfast.engine.rebalance import Handover

ALL: Final = 1 << 30
"""Records: all that were acquired together."""

LETTERS: Final = "letters"
"""The hold while a dead letter is not published although the lock of its record has run out: what is delivered now
might come to the same end.
"""


class Deliveries(Intake):
    """Takes what was acquired together, when everything before it is acknowledged. `acquired_at`: when that was.

    Nothing is acquired while the consumer is held or has no free worker: a record that only waits here would be locked
    for nothing, and each delivery counts.
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
    ) -> None:
        super().__init__(source, ownership, lanes, plan, clock, outcomes=outcomes, at_end=at_end)
        self._topic_ids = plan.topic_ids
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

    def poll(self, now: float, timeout_s: float) -> bool:  # noqa: ARG002 - as of any intake
        if self.closed or self._holds or len(self._out) >= self._capacity:
            self._source.serve(timeout_s)
            return False
        message = self._source.poll(timeout_s)
        self.polled = True
        if message is None:
            return False
        self._begin([message, *self._source.sweep(ALL)])
        return True

    def close(self) -> None:
        self.closed = True

    def _begin(self, messages: list[Message]) -> None:
        self.acquired_at = self._clock.monotonic()
        found: dict[TopicPartition, dict[int, Message]] = defaultdict(dict)
        for message in messages:
            found[TopicPartition(message.topic(), message.partition())][message.offset()] = message
            self.redelivered += deliveries_of(message) > 1
        for place, by_offset in found.items():
            before = self._ownership.get(place)
            if before is not None:  # it is acknowledged
                self._ownership.end(before)
            ordered = [by_offset[offset] for offset in sorted(by_offset)]
            self._ownership.begin(place, start=min(by_offset), topic_id=self._topic_ids.get(place.topic, ""))
            self._feed(ordered)


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
            for partition in self._ownership:
                if partition.ledger.unfinished():
                    self._expire(partition)
        if self._publishing or LETTERS in self._holds:
            self._publishing &= set(self._failures.settling)
            self._holds.put(LETTERS, held=bool(self._publishing))

    def _expire(self, partition: Partition) -> None:
        place, left = partition.place, partition.ledger.unfinished_offsets()
        in_hand = {offset for run in partition.running for of, offset in run.in_hand() if of is partition}
        self.expired += len(left)
        self._events.emit(
            LockExpired(
                *self._events.source,
                **place._asdict(),
                offset=left[0],
                records=len(left),
                in_flight=len(in_hand),
                lock_s=self.lock_s,
            )
        )
        self._handover.close_down([place])
        self._publishing |= {one for one in self._failures.settling if one.partition is partition}
        self._source.release([place])
        self._committer.forget(partition)
        self._ownership.end(partition)
