"""Clients of confluent-kafka that somebody else has made: which are refused, and what can be told of the others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, DeserializingConsumer, SerializingProducer
from kafka import KafkaProducer
from kafka.serializer import DefaultSerializer

from holdfast.core.errors import ConfigError, Fault, SinkError
from holdfast.core.ports import BEGINNING, CommitOutcome, Outgoing, Position, Receipt
from holdfast.core.records import TopicPartition
from holdfast.kafka.adopted_sink import AdoptedSink
from holdfast.kafka.adopted_source import AdoptedSource
from holdfast.kafka.kafka_python.sink import KafkaPythonSink
from holdfast.testing.broker import KafkaBroker
from holdfast.testing.pytest_plugin import TopicFactory
from holdfast.testing.topics import TopicAdmin

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
BEHAVED = {"enable.auto.commit": False, "enable.auto.offset.store": False}


class Heard:
    """A listener that starts at the beginning and keeps what it hears."""

    def __init__(self, source: AdoptedSource) -> None:
        self.source = source
        self.outcomes: list[CommitOutcome] = []
        self.owned: list[TopicPartition] = []

    def on_assigned(self, places: Sequence[TopicPartition]) -> None:
        self.owned += places
        self.source.start([Position(place, BEGINNING) for place in places])

    def on_revoked(self, places: Sequence[TopicPartition]) -> None: ...
    def on_lost(self, places: Sequence[TopicPartition]) -> None: ...
    def on_error(self, error: object, place: object) -> None: ...

    def on_committed(self, outcome: CommitOutcome) -> None:
        self.outcomes.append(outcome)


@pytest.mark.parametrize(
    "told", [{}, {"enable.auto.commit": False}, {"enable.auto.commit": True, "enable.auto.offset.store": True}]
)
def test_a_consumer_that_stores_offsets_by_itself_is_refused_with_what_to_do(told: dict[str, Any]) -> None:
    client = Consumer(NOWHERE | {"group.id": "g"} | told)
    with pytest.raises(ConfigError, match=r'"enable.auto.offset.store": False'):
        AdoptedSource(client)
    client.close()


def test_a_consumer_that_does_not_is_taken_and_tells_its_group() -> None:
    client = Consumer(NOWHERE | {"group.id": "päyments.v1"} | BEHAVED)
    assert AdoptedSource(client).group == "päyments.v1"
    client.close()


def test_a_consumer_that_deserialises_by_itself_is_refused() -> None:
    client = DeserializingConsumer(NOWHERE | {"group.id": "g"} | BEHAVED)
    with pytest.raises(ConfigError, match="DeserializingConsumer deserialises by itself"):
        AdoptedSource(client)
    client.close()


def test_a_closed_consumer_is_refused() -> None:
    client = Consumer(NOWHERE | {"group.id": "g"} | BEHAVED)
    client.close()
    with pytest.raises(ConfigError, match="cannot be used"):
        AdoptedSource(client)


def test_producers_that_serialise_by_themselves_are_refused(kafka: TopicAdmin) -> None:
    with pytest.raises(ConfigError, match="SerializingProducer serialises by itself"):
        AdoptedSink(SerializingProducer(NOWHERE))
    client = KafkaProducer(
        bootstrap_servers=kafka.bootstrap, acks=1, enable_idempotence=False, value_serializer=DefaultSerializer()
    )
    with pytest.raises(ConfigError) as caught:
        KafkaPythonSink(client)
    acks, serialises = caught.value.problems
    assert 'acks="all"' in acks
    assert "dlq_publisher" in serialises
    client.close()


def test_a_kafka_python_producer_says_what_it_does_not_take(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name = topic()
    sink = KafkaPythonSink(KafkaProducer(bootstrap_servers=kafka.bootstrap, acks="all"))
    answers: list[Receipt | SinkError] = []
    sink.send(Outgoing(name, b"v", headers=[("h", None)]), answers.append)
    sink.send(Outgoing(name, b"v"), answers.append)
    sink.close(10)
    refused, sent = sorted(answers, key=lambda answer: isinstance(answer, Receipt))
    assert isinstance(refused, SinkError)
    assert (refused.fault, refused.code) == (Fault.REFUSED, "NOT_TAKEN")
    assert isinstance(sent, Receipt)
    sink.send(Outgoing(name, b"late"), answers.append)
    assert isinstance(answers[-1], SinkError)


def test_a_commit_that_never_arrives_is_given_up_without_holding_up_the_loop_and_can_be_sent_again(
    kafka: KafkaBroker, topic: TopicFactory
) -> None:
    name = topic()
    source = AdoptedSource(Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": name, **BEHAVED}))
    listener = Heard(source)
    source.subscribe([name], listener)
    until(lambda: listener.owned, source)
    [place] = listener.owned
    kafka.pause()
    try:
        source.commit([Position(place, 0, "first")])
        slowest = until(lambda: listener.outcomes, source)
    finally:
        kafka.resume()
        kafka.wait_ready()
    [outcome] = listener.outcomes
    assert [(error.fault, error.code) for _, error in outcome.failed] == [(Fault.RETRY, "UNCONFIRMED")]
    assert slowest < 0.5, "no single poll(0) waited for the broker"
    source.commit([Position(place, 0, "second")])
    until(lambda: len(listener.outcomes) == 2, source)
    assert listener.outcomes[1].confirmed == (Position(place, 0, "second"),)
    source.close()


def until(ready: Any, source: AdoptedSource, timeout_s: float = 30.0) -> float:
    """Poll without waiting until it is so; returns how long the slowest call took."""
    deadline, slowest = time.monotonic() + timeout_s, 0.0
    while not ready():
        began = time.monotonic()
        assert began < deadline
        source.poll(0)
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.001)
    return slowest
