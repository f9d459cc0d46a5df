"""A real broker and kafka-python as a backend of the conformance suite."""

from __future__ import annotations

from contextlib import suppress

from kafka import KafkaConsumer, KafkaProducer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from keepfast.core.errors import KeepfastError
from keepfast.core.ports import Sink, Source
from keepfast.kafka.kafka_python.sink import KafkaPythonSink
from keepfast.kafka.kafka_python.source import KafkaPythonSource
from keepfast.testing.topics import TopicAdmin
from tests.conformance.real import RealBackend


class PythonBackend(RealBackend):
    """As the real one, with the other client; `eager`: its groups give everything up in every rebalance."""

    def __init__(self, broker: TopicAdmin, *, eager: bool = False) -> None:
        super().__init__(broker)
        self._assignor = RangePartitionAssignor if eager else CooperativeStickyAssignor
        self._python_sources: list[KafkaPythonSource] = []
        self._python_sinks: list[KafkaPythonSink] = []

    def source(self, group: str) -> Source:
        client = KafkaConsumer(
            bootstrap_servers=self._broker.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            isolation_level="read_committed",
            allow_auto_create_topics=False,
            partition_assignment_strategy=[self._assignor],
            session_timeout_ms=3_000,
            heartbeat_interval_ms=300,
            max_poll_interval_ms=4_000,
            fetch_max_wait_ms=100,
        )
        source = KafkaPythonSource(client)
        self._python_sources.append(source)
        return source

    def sink(self) -> Sink:
        client = KafkaProducer(bootstrap_servers=self._broker.bootstrap, acks="all", max_request_size=100_000_000)
        sink = KafkaPythonSink(client)
        self._python_sinks.append(sink)
        return sink

    def close(self) -> None:
        super().close()
        for sink in self._python_sinks:
            sink.close(5.0)
        for source in self._python_sources:
            # A test may leave a listener's exception or an unanswered commit behind: that is its business.
            with suppress(KeepfastError, LookupError):
                source.close()
