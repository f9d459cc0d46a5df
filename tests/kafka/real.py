"""The real client on a real broker as a backend of the conformance suite, and clients for the other tests here."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, cast

from confluent_kafka import Producer

from holdfast.core.ports import Mailbox, Sink, Source
from holdfast.core.records import Headers, TopicPartition
from holdfast.kafka import (
    Connection,
    Consuming,
    KafkaSink,
    KafkaSource,
    Producing,
    sink_properties,
    source_properties,
)
from holdfast.testing.topics import TopicAdmin

EVICTION_MS = 6_000  # the shortest session that a broker allows by default


def consuming(group: str, **other: Any) -> Consuming:
    """A member with a short session, so that tests need not wait for the long one."""
    short: dict[str, Any] = {
        "session_timeout_ms": EVICTION_MS,
        "heartbeat_interval_ms": 1_000,
        "max_poll_interval_ms": EVICTION_MS,
    }
    return Consuming(group=group, **short | other)


class RealBackend:
    """One test's use of a broker. `member` changes how its sources behave (see `Consuming`)."""

    def __init__(self, broker: TopicAdmin, **member: Any) -> None:
        self.broker = broker
        self.connection = Connection(brokers=[broker.bootstrap], properties={"log_level": 0})
        self._member = member
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        self._sources: list[KafkaSource] = []
        self._sinks: list[KafkaSink] = []

    def topic(self, partitions: int = 1) -> str:
        return self.broker.create_topic(self.missing_topic(), partitions=partitions)

    def missing_topic(self) -> str:
        return f"conformance-{uuid.uuid4().hex[:12]}"

    def produce(
        self, place: TopicPartition, value: bytes | None, *, key: bytes | None = None, headers: Headers = ()
    ) -> int:
        offsets: list[int] = []
        self._producer.produce(
            place.topic,
            value=value,
            key=key,
            partition=place.partition,
            headers=cast("list[tuple[str, str | bytes | None]]", list(headers)),
            on_delivery=lambda error, message: offsets.append(cast(int, message.offset())),
        )
        self._producer.flush(30)
        (offset,) = offsets
        return offset

    def produce_transaction(self, place: TopicPartition, values: Sequence[bytes], *, commit: bool = True) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(place.topic, value=value, partition=place.partition)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    def delete_records(self, place: TopicPartition, before: int) -> None:
        self.broker.delete_records(place.topic, partition=place.partition, before=before)

    def source(self, group: str) -> Source:
        source = KafkaSource(source_properties(self.connection, consuming(group, **self._member)))
        self._sources.append(source)
        return source

    def sink(self) -> Sink:
        sink = KafkaSink(sink_properties(self.connection, Producing(delivery_timeout_ms=10_000)))
        self._sinks.append(sink)
        return sink

    def mailbox(self) -> Mailbox:
        raise NotImplementedError("a broker has no mailbox")

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        threading.Timer(delay_s, action).start()

    def group(self) -> str:
        return f"group-{uuid.uuid4().hex[:12]}"

    def now(self) -> float:
        return time.monotonic()

    def until(self, ready: Callable[[], object], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not ready():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def close(self) -> None:
        for source in self._sources:
            source.close()
        for sink in self._sinks:
            sink.close(5.0)
