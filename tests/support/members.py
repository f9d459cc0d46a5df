"""Members for these tests: a listener that writes down what it hears, and starts where it is told."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer

from keepfast.core.errors import SourceError
from keepfast.core.ports import CommitOutcome, Position
from keepfast.core.records import Message, TopicPartition
from keepfast.kafka import Connection, Consuming, KafkaSource, source_properties
from keepfast.testing.topics import TopicAdmin
from tests.support.waiting import DEADLINE_S, wait_until

SESSION_MS = 6_000

Places = Sequence[TopicPartition]


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


class Heard:
    """A member. Owner: the test's thread."""

    def __init__(
        self,
        to: Connection,
        topic: str,
        group: str,
        *,
        start: int = 0,
        source: KafkaSource | None = None,
        **consuming: Any,
    ) -> None:
        timings: dict[str, Any] = {
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": 1_000,
            "max_poll_interval_ms": SESSION_MS,
        }
        made = KafkaSource(source_properties(to, Consuming(group=group, **timings | consuming)))
        self.source = source or made
        self.start_at = start
        self.owned: set[TopicPartition] = set()
        self.records: list[Message] = []
        self.outcomes: list[CommitOutcome] = []
        self.errors: list[tuple[SourceError, TopicPartition | None]] = []
        self.revoked: list[Places] = []
        self.lost: list[Places] = []
        self.on_revoke: Callable[[Places], None] = lambda places: None
        self.on_assign: Callable[[Places], None] = lambda places: None
        self.source.subscribe([topic], self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.source.close()

    def on_assigned(self, places: Places) -> None:
        self.on_assign(places)
        self.source.start([Position(place, self.start_at) for place in places])
        self.owned.update(places)

    def on_revoked(self, places: Places) -> None:
        self.revoked.append(places)
        self.on_revoke(places)
        self.owned.difference_update(places)

    def on_lost(self, places: Places) -> None:
        self.lost.append(places)
        self.owned.difference_update(places)

    def on_committed(self, outcome: CommitOutcome) -> None:
        self.outcomes.append(outcome)

    def on_error(self, error: SourceError, place: TopicPartition | None) -> None:
        self.errors.append((error, place))

    def step(self) -> None:
        message = self.source.poll(0.02)
        if message is not None:
            self.records.append(message)
        self.records += self.source.sweep(500)

    def offsets(self, place: TopicPartition) -> list[int]:
        return [record.offset() for record in self.records if (record.topic(), record.partition()) == place]


def drive(members: Sequence[Heard], ready: Callable[[], object], *, timeout_s: float = DEADLINE_S) -> None:
    """Poll the members in turn until `ready()`."""

    def step() -> None:
        for member in members:
            member.step()

    try:
        wait_until(ready, timeout_s=timeout_s, between=step)
    except AssertionError as error:
        error.add_note(str([(m.owned, m.errors, len(m.records)) for m in members]))
        raise
