"""The simulated broker: topics, groups, stored commits and fault switches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from zlib import crc32

from keepfast.core.ports import CommittedOffset, Position
from keepfast.core.records import Headers, Outgoing, TopicPartition
from keepfast.testing.fakes.clock import SimClock, Timer
from keepfast.testing.fakes.coordinator import Group, Identity
from keepfast.testing.fakes.faults import CommitFault, Faults
from keepfast.testing.fakes.log import MAX_METADATA_CHARS, FakeMessage, PartitionLog, Topic
from keepfast.testing.fakes.settings import WorldSettings
from keepfast.testing.fakes.trace import (
    CommitAccepted,
    CommitRefused,
    Compacted,
    Frozen,
    LogStartMoved,
    Produced,
    Thawed,
    TopicReplaced,
    Trace,
)
from keepfast.testing.fakes.wire import Failure, Gate

Watcher = Callable[[TopicPartition], None]

BEHIND_S = 0.3
"""For this long after a topic was recreated some answers still have its old id."""


@dataclass(frozen=True, slots=True)
class PositionAnswer:
    """The coordinator's answer for one position of a commit; `code` is empty when it was accepted."""

    position: Position
    code: str


class FakeBroker:
    """One broker for all processes of a world. Owner: the simulation's single thread.

    `trace` and `faults` of it are what an oracle reads and what a driver pulls.
    """

    def __init__(self, clock: SimClock, rng: Random, *, settings: WorldSettings | None = None) -> None:
        self.clock = clock
        self.rng = rng
        self.settings = settings or WorldSettings()
        self.trace = Trace()
        self.faults = Faults(clock, rng, self.trace)
        self.coordinator = Gate(clock)
        self.data = Gate(clock)
        self._topics: dict[str, Topic] = {}
        self._former_ids: dict[str, tuple[str, float]] = {}  # topic → its id before, and when that ended
        self._groups: dict[str, Group] = {}
        self._watchers: list[Watcher] = []
        self.held_back = 0  # copies of commits that the network has not delivered yet
        self.write_output: Callable[[Outgoing], object] = self.write
        self._thaws: Timer | None = None

    def create_topic(self, name: str, partitions: int = 1) -> Topic:
        topic = Topic(name, f"{self.rng.getrandbits(128):032x}", [PartitionLog() for _ in range(partitions)])
        self._topics[name] = topic
        return topic

    def recreate_topic(self, name: str) -> None:
        """Delete the topic and recreate it under the same name. The group's commits remain, as they may in reality."""
        self._former_ids[name] = self._topics[name].topic_id, self.clock.monotonic()
        topic = self.create_topic(name, len(self._topics[name].logs))
        self.trace.add(TopicReplaced(self.clock.monotonic(), name, topic.topic_id))
        self.trace.fault("topic_recreated")
        for number in range(len(topic.logs)):
            self._notify(TopicPartition(name, number))

    def delete_topic(self, name: str) -> None:
        topic = self._topics.pop(name)
        for number in range(len(topic.logs)):
            self._notify(TopicPartition(name, number))

    def add_partitions(self, name: str, total: int) -> None:
        """Grow the topic; groups rebalance as their leaders notice."""
        logs = self._topics[name].logs
        logs.extend(PartitionLog() for _ in range(total - len(logs)))
        for group in self._groups.values():
            group.prepare()

    def topic_id(self, name: str) -> str | None:
        topic = self._topics.get(name)
        return topic.topic_id if topic else None

    def reported_id(self, name: str) -> str | None:
        """The answer of a broker whose metadata may be out of date."""
        former, ended_at = self._former_ids.get(name, ("", 0.0))
        if former and self.clock.monotonic() - ended_at < BEHIND_S and self.rng.random() < 0.5:
            self.trace.fault("topic_id_behind")
            return former
        return self.topic_id(name)

    def partitions(self, name: str) -> int | None:
        topic = self._topics.get(name)
        return len(topic.logs) if topic else None

    def partition_counts(self) -> dict[str, int]:
        return {name: len(topic.logs) for name, topic in self._topics.items()}

    def log(self, place: TopicPartition) -> PartitionLog | None:
        topic = self._topics.get(place.topic)
        return topic.logs[place.partition] if topic and 0 <= place.partition < len(topic.logs) else None

    def produce(
        self,
        place: TopicPartition,
        *,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Write a record at once and return its offset."""
        log = self.existing(place)
        offset = log.end
        if timestamp_ms is None:
            timestamp_ms = int(self.clock.wall() * 1000)
        log.append(FakeMessage(place, offset, key=key, value=value, headers=headers, timestamp_ms=timestamp_ms))
        self.trace.add(Produced(self.clock.monotonic(), place, offset))
        self._notify(place)
        return offset

    def produce_gap(self, place: TopicPartition, offsets: int = 1) -> None:
        """Offsets without a visible record: a transaction's marker, or an aborted transaction."""
        self.existing(place).append_gap(offsets)
        self.trace.fault("offset_gap")
        self._notify(place)

    def compact(self, place: TopicPartition, offset: int) -> None:
        """Remove one record from the log, if it exists."""
        if self.existing(place).remove(offset):
            self.trace.add(Compacted(self.clock.monotonic(), place, offset))
            self.trace.fault("compaction")

    def delete_records(self, place: TopicPartition, before: int) -> None:
        log = self.existing(place)
        log.delete_before(before)
        self.trace.add(LogStartMoved(self.clock.monotonic(), place, log.start))
        self.trace.fault("records_deleted")
        self._notify(place)

    def existing(self, place: TopicPartition) -> PartitionLog:
        log = self.log(place)
        if log is None:
            raise KeyError(f"no partition {place}; make the topic with create_topic first")
        return log

    def group(self, name: str) -> Group:
        if name not in self._groups:
            self._groups[name] = Group(name, self.clock, self.coordinator, self.trace, self.settings)
        return self._groups[name]

    def stored(self, group: str, place: TopicPartition) -> Position | None:
        """The group's committed offsets."""
        return self.group(group).commits.get(place)

    def watch(self, watcher: Watcher) -> None:
        """`watcher(place)` is called when something about a partition's log has changed."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def freeze(self, duration_s: float, *, data: bool = True, expire_first: bool = False) -> None:
        """SIGSTOP the broker (or, without `data`, only its group coordinator) for a while.

        Afterwards it answers queued requests; with `expire_first` it expires overdue sessions before that.
        """
        if self._thaws is not None:
            self._thaws.cancel()
        self.trace.add(Frozen(self.clock.monotonic(), data))
        self.trace.fault("broker_frozen" if data else "coordinator_frozen")
        self.coordinator.freeze()
        if data:
            self.data.freeze()
        self._thaws = self.clock.after(duration_s, lambda: self._thaw(expire_first=expire_first))

    def commit(self, group: Group, who: Identity, positions: Sequence[Position]) -> Failure | list[PositionAnswer]:
        """Handle one OffsetCommit, faults included; the trace says what was stored."""
        fault = self.faults.commits.take(but=CommitFault.UNSENT)
        code = group.check_commit(who)
        if fault is CommitFault.REBALANCING:
            code = code or "REBALANCE_IN_PROGRESS"
        elif fault is CommitFault.RETRY:
            code = self.faults.retry_code()
        answers = [PositionAnswer(p, code or self._refusal(p)) for p in positions]
        if fault is CommitFault.PARTIAL and answers:
            unlucky = self.rng.randrange(len(answers))
            answers[unlucky] = PositionAnswer(answers[unlucky].position, self.faults.retry_code())
        if any(position.outputs for position in positions):
            answers = self._in_transaction(answers)
        for answer in answers:
            self._store(group, who, answer)
        return Failure(self.faults.retry_code()) if fault is CommitFault.APPLIED else answers

    def deliver_late(self, group: Group, who: Identity, positions: Sequence[Position]) -> None:
        """A copy of a commit arrives that the network has held back. The answer is dropped."""
        self.held_back -= 1
        if not group.check_commit(who):
            for position in positions:
                self._store(group, who, PositionAnswer(position, self._refusal(position)), late=True)

    def _in_transaction(self, answers: list[PositionAnswer]) -> list[PositionAnswer]:
        """All of it or nothing: if nothing is wrong with any position and any output, the outputs are written."""
        code = next((answer.code for answer in answers if answer.code), "")
        if not code and self.faults.sends.take() is not None:
            code = self.faults.retry_code()
        if code:
            self.trace.fault("transaction_aborted")
            return [PositionAnswer(answer.position, code) for answer in answers]
        for answer in answers:
            for output in answer.position.outputs:
                self.write_output(output.outgoing)
        return answers

    def write(self, outgoing: Outgoing) -> tuple[TopicPartition, int]:
        """Write an output of a transaction at once; `write_output` may be another function that does. Returns where."""
        count = self.partitions(outgoing.topic) or 0
        partition = outgoing.partition if outgoing.partition is not None else crc32(outgoing.key or b"") % count
        place = TopicPartition(outgoing.topic, partition)
        headers, at_ms = outgoing.headers, outgoing.timestamp_ms
        offset = self.produce(place, value=outgoing.value, key=outgoing.key, headers=headers, timestamp_ms=at_ms)
        return place, offset

    def committed(self, group: Group, places: Sequence[TopicPartition]) -> Failure | list[CommittedOffset]:
        """Handle one OffsetFetch."""
        if self.faults.committed_reads.take() is not None:
            return Failure(self.faults.retry_code())
        stored = [(place, group.commits.get(place)) for place in places]
        return [
            CommittedOffset(place, p.offset, p.metadata, p.leader_epoch) if p else CommittedOffset(place, None)
            for place, p in stored
        ]

    def _refusal(self, position: Position) -> str:
        if self.log(position.place) is None:
            return "UNKNOWN_TOPIC_OR_PART"
        if code := self.faults.refused.code_of(position.place):
            return code
        return "OFFSET_METADATA_TOO_LARGE" if len(position.metadata) > MAX_METADATA_CHARS else ""

    def _store(self, group: Group, who: Identity, answer: PositionAnswer, *, late: bool = False) -> None:
        now, position = self.clock.monotonic(), answer.position
        if answer.code:
            self.trace.fault(f"commit_refused_{answer.code}")
            self.trace.add(CommitRefused(now, who.name, who.generation, position.place, position.offset, answer.code))
            return
        group.commits[position.place] = position
        self.trace.add(
            CommitAccepted(now, who.name, who.generation, position.place, position.offset, position.metadata, late)
        )

    def _thaw(self, *, expire_first: bool) -> None:
        self._thaws = None
        self.trace.add(Thawed(self.clock.monotonic()))
        self.data.thaw(timers_first=False)
        self.coordinator.thaw(timers_first=expire_first)

    def _notify(self, place: TopicPartition) -> None:
        for watcher in list(self._watchers):
            watcher(place)
