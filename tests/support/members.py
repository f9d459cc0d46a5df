"""Members of groups: a source and a listener that writes down what it hears, and starts where a test says."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from keepfast.core.errors import SourceError
from keepfast.core.ports import CommitOutcome, Position, Source
from keepfast.core.records import Message, TopicPartition
from keepfast.kafka import Connection, Consuming, KafkaSource, source_properties
from keepfast.testing.topics import TopicAdmin
from tests.support.waiting import DEADLINE_S, wait_until

SESSION_MS = 6_000

Places = Sequence[TopicPartition]
Call = tuple[str, tuple[TopicPartition, ...]]


def connection(bootstrap: str, **other: Any) -> Connection:
    return Connection(brokers=[bootstrap], **{"properties": {"log_level": 0}} | other)


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def produce(broker: TopicAdmin, topic: str, count: int, *, partitions: int = 1) -> None:
    """`count` records, dealt out to the partitions in turn."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, value=b"%d" % number, partition=number % partitions)
    assert producer.flush(30) == 0


def static_members(bootstrap: str, group: str) -> list[str]:
    """The names of the group's static members."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [asked] = admin.describe_consumer_groups([group]).values()
    try:
        return sorted(str(member.group_instance_id) for member in asked.result(DEADLINE_S).members)
    except KafkaException:  # there is no such group yet
        return []


class GroupMember:
    """A source and its listener, which keeps all that it is called with. Owner: the test's thread.

    Partitions start at `start`; `during_…` are called from inside the callbacks, and `now` is the clock of its world.
    """

    def __init__(
        self,
        source: Source,
        topic: str,
        *,
        start: int = 0,
        journal: list[tuple[GroupMember, Call]] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source: Any = source
        self.start_at = start
        self.now = now
        self.owned: set[TopicPartition] = set()
        self.records: list[Message] = []
        self.calls: list[Call] = []
        self.outcomes: list[CommitOutcome] = []
        self.ends: dict[TopicPartition, int] = {}
        self.repeated = 0
        """How often it was reported that a commit was sent more than once."""
        self.errors: list[tuple[SourceError, TopicPartition | None]] = []
        self.replaced = 0
        self.during_assign: Callable[[Places], None] = lambda places: None
        self.during_revoke: Callable[[Places], None] = lambda places: None
        self._journal = journal if journal is not None else []
        source.subscribe([topic], self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.source.close()

    def positions(self, places: Places) -> list[Position]:
        """Where partitions that were assigned start."""
        return [Position(place, self.start_at) for place in places]

    def on_assigned(self, places: Places) -> None:
        self._note("assigned", places)
        self.source.start(self.positions(places))
        self.owned.update(places)
        self.during_assign(places)

    def on_revoked(self, places: Places) -> None:
        self._note("revoked", places)
        self.during_revoke(places)
        self.owned.difference_update(places)
        self._journal.append((self, ("let go", tuple(places))))

    def on_lost(self, places: Places) -> None:
        self._note("lost", places)
        self.owned.difference_update(places)

    def on_committed(self, outcome: CommitOutcome) -> None:
        self.outcomes.append(outcome)

    def on_commit_repeated(self) -> None:
        self.repeated += 1

    def on_end(self, place: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        assert place in self.owned, place
        self.ends[place] = offset

    def on_replaced(self) -> None:
        self.replaced += 1

    def on_error(self, error: SourceError, place: TopicPartition | None) -> None:
        self.errors.append((error, place))

    def step(self) -> None:
        message = self.source.poll(0.02)
        if message is not None:
            self.records.append(message)
        self.records += self.source.sweep(500)

    def offsets(self, place: TopicPartition) -> list[int]:
        """The offsets received of one partition, in the order in which they came."""
        return [record.offset() for record in self.records if (record.topic(), record.partition()) == place]

    def heard(self, what: str) -> list[tuple[TopicPartition, ...]]:
        """The partitions of each callback of that kind: "assigned", "revoked", "lost"."""
        return [places for name, places in self.calls if name == what]

    def commit(self, *positions: Position, beside: Sequence[GroupMember] = ()) -> CommitOutcome:
        """Commit and poll until it is answered; `beside`: others that must be polled for a rebalance to end."""
        before = len(self.outcomes)
        self.source.commit(positions)
        drive([self, *beside], lambda: len(self.outcomes) > before)
        return self.outcomes[before]

    def _note(self, what: str, places: Places) -> None:
        call = (what, tuple(sorted(places)))
        self.calls.append(call)
        self._journal.append((self, call))


def kafka_member(
    to: Connection,
    topic: str,
    group: str,
    *,
    start: int = 0,
    **consuming: Any,
) -> GroupMember:
    """A member with the client of keepfast, and the shortest session that the broker allows."""
    timings: dict[str, Any] = {
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 1_000,
        "max_poll_interval_ms": SESSION_MS,
    }
    source = KafkaSource(source_properties(to, Consuming(group=group, **timings | consuming)))
    return GroupMember(source, topic, start=start)


def drive(members: Sequence[GroupMember], ready: Callable[[], object], *, timeout_s: float = DEADLINE_S) -> None:
    """Poll the members in turn until `ready()`."""

    def step() -> None:
        for member in members:
            member.step()

    try:
        wait_until(ready, timeout_s=timeout_s, between=step, now=members[0].now)
    except AssertionError as error:
        error.add_note(str([(member.calls, member.errors, len(member.records)) for member in members]))
        raise


def drive_for(members: Sequence[GroupMember], duration_s: float) -> None:
    """Poll the members in turn for a while: to see that something does not happen."""
    end = members[0].now() + duration_s
    drive(members, lambda: members[0].now() >= end, timeout_s=duration_s + DEADLINE_S)
