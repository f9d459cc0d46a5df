"""A real broker, and a confluent-kafka consumer and producer that somebody else has made."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer

from keepfast.core.ports import Sink, Source
from keepfast.kafka.adopted import AdoptedSink, AdoptedSource
from tests.conformance.real import RealBackend


class AdoptedBackend(RealBackend):
    def source(self, group: str) -> Source:
        client = Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,  # without it, ends are not reported
                "isolation.level": "read_committed",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 3_000,
                "heartbeat.interval.ms": 300,
                "max.poll.interval.ms": 4_000,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        source = AdoptedSource(client)
        self._sources.append(source)
        return source

    def sink(self) -> Sink:
        client = Producer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "message.max.bytes": 100_000_000,
                "partitioner": "murmur2_random",
                "topic.metadata.propagation.max.ms": 1_000,
            }
        )
        sink = AdoptedSink(client)
        self._sinks.append(sink)
        return sink
