"""A real broker and the real client as a backend of the conformance suite."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress

from confluent_kafka import Message as ClientMessage
from confluent_kafka import Producer

from keepfast.core.errors import KeepfastError
from keepfast.core.ports import Mailbox, Sink, Source
from keepfast.core.records import Headers, TopicPartition
from keepfast.engine.mailbox import QueueMailbox
from keepfast.kafka import Connection, Consuming, KafkaSink, KafkaSource, sink_properties, source_properties
from keepfast.testing.topics import TopicAdmin
from tests.support.waiting import happens


class RealBackend:
    """Topics and groups with names of their own on a broker that may serve other tests, too."""

    def __init__(self, broker: TopicAdmin) -> None:
        self._broker = broker
        self._connection = Connection(brokers=[broker.bootstrap])
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "log_level": 0})
        self._sources: list[KafkaSource] = []
        self._sinks: list[Sink] = []

    def topic(self, partitions: int = 1) -> str:
        limits = {"max.message.bytes": "1000000"}  # the test broker's own limit is for records of 10 MB
        return self._broker.create_topic(self.missing_topic(), partitions=partitions, config=limits)

    def missing_topic(self) -> str:
        return f"conformance.{uuid.uuid4().hex}"

    def produce(
        self, place: TopicPartition, value: bytes | None, *, key: bytes | None = None, headers: Headers = ()
    ) -> int:
        written: list[ClientMessage] = []
        self._producer.produce(
            place.topic,
            value,
            key,
            place.partition,
            headers=list(headers),
            on_delivery=lambda error, message: written.append(message),
        )
        assert self._producer.flush(30) == 0
        assert written[0].error() is None
        offset = written[0].offset()
        assert offset is not None
        return offset

    def fill(self, place: TopicPartition, count: int) -> None:
        """All of them wait for the broker together, not each for itself."""
        failed: list[object] = []
        for number in range(count):
            self._producer.produce(
                place.topic,
                b"%d" % number,
                b"k%d" % (number % 5),
                place.partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert (self._producer.flush(30), failed) == (0, [])

    def produce_transaction(self, place: TopicPartition, values: Sequence[bytes], *, commit: bool = True) -> None:
        producer = Producer(
            {"bootstrap.servers": self._broker.bootstrap, "transactional.id": uuid.uuid4().hex, "log_level": 0}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(place.topic, value, partition=place.partition)
        # Unflushed records of an aborted transaction would never be written, and leave no gap.
        assert producer.flush(30) == 0
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    def delete_records(self, place: TopicPartition, before: int) -> None:
        if before > 0:
            self._broker.delete_records(place.topic, partition=place.partition, before=before)

    def source(self, group: str) -> Source:
        consuming = Consuming(
            group=group,
            session_timeout_ms=3_000,
            heartbeat_interval_ms=300,
            max_poll_interval_ms=4_000,
            fetch_max_wait_ms=100,
        )
        source = KafkaSource(source_properties(self._connection, consuming))
        self._sources.append(source)
        return source

    def sink(self) -> Sink:
        sink = KafkaSink(sink_properties(self._connection))
        self._sinks.append(sink)
        return sink

    def mailbox(self) -> Mailbox:
        return QueueMailbox()

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        timer = threading.Timer(delay_s, action)
        timer.daemon = True
        timer.start()

    def group(self) -> str:
        return f"conformance.{uuid.uuid4().hex}"

    def now(self) -> float:
        return time.monotonic()

    def until(self, ready: Callable[[], object], timeout_s: float) -> bool:
        return happens(ready, within_s=timeout_s)

    def close(self) -> None:
        for source in self._sources:
            # A test may leave a listener's exception or an unanswered commit behind: that is its business.
            with suppress(KeepfastError, LookupError):
                source.close()
        for sink in self._sinks:
            sink.close(5.0)
