"""Clients of confluent-kafka that somebody else has made: which are refused, and what can be told of the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, DeserializingConsumer, SerializingProducer
from kafka import KafkaProducer
from kafka.serializer import DefaultSerializer

from keepfast.core.errors import ConfigError, Fault, SinkError
from keepfast.core.ports import BEGINNING, Position
from keepfast.core.records import Outgoing, Receipt
from keepfast.kafka.adopted import AdoptedSink, AdoptedSource
from keepfast.kafka.kafka_python.sink import KafkaPythonSink
from keepfast.testing.broker import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.kafka.conftest import Join
from tests.support.members import GroupMember, drive, new_group
from tests.support.waiting import DEADLINE_S, wait_until

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
BEHAVED = {"enable.auto.commit": False, "enable.auto.offset.store": False}


@pytest.mark.parametrize(
    "reported", [{}, {"enable.auto.commit": False}, {"enable.auto.commit": True, "enable.auto.offset.store": True}]
)
def test_a_consumer_that_stores_offsets_by_itself_is_refused_with_what_to_do(reported: dict[str, Any]) -> None:
    client = Consumer(NOWHERE | {"group.id": "g"} | reported)
    with pytest.raises(ConfigError, match=r'"enable.auto.offset.store": False'):
        AdoptedSource(client)
    client.close()


def test_a_consumer_that_does_not_is_taken_and_tells_its_group() -> None:
    client = Consumer(NOWHERE | {"group.id": "päyments.v1"} | BEHAVED)
    assert AdoptedSource(client).group == "päyments.v1"
    client.close()


@pytest.mark.parametrize(("reported", "static"), [({}, False), ({"group.instance.id": "till"}, True)])
def test_it_is_known_whether_it_is_a_static_member(reported: dict[str, str], static: bool) -> None:
    client = Consumer(NOWHERE | {"group.id": "g"} | BEHAVED | reported)
    assert AdoptedSource(client)._is_static is static
    client.close()


def test_a_consumer_that_deserialises_by_itself_is_refused() -> None:
    client = DeserializingConsumer(NOWHERE | {"group.id": "g"} | BEHAVED)
    with pytest.raises(ConfigError, match="DeserializingConsumer deserialises values"):
        AdoptedSource(client)
    client.close()


def test_a_closed_consumer_is_refused() -> None:
    client = Consumer(NOWHERE | {"group.id": "g"} | BEHAVED)
    client.close()
    with pytest.raises(ConfigError, match="cannot be used"):
        AdoptedSource(client)


def test_producers_that_serialise_by_themselves_are_refused(kafka: TopicAdmin) -> None:
    with pytest.raises(ConfigError, match="SerializingProducer serialises values"):
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


@pytest.mark.timing
def test_a_commit_that_never_arrives_is_given_up_without_holding_up_the_loop_and_can_be_sent_again(
    kafka: KafkaBroker, topic: TopicFactory
) -> None:
    name = topic()
    source = AdoptedSource(Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": name, **BEHAVED}))
    listener = GroupMember(source, name, start=BEGINNING)
    poll_until(lambda: listener.owned, source)
    [place] = listener.owned
    kafka.pause()
    try:
        source.commit([Position(place, 0, "first")])
        slowest = poll_until(lambda: listener.outcomes, source)
    finally:
        kafka.resume()
        kafka.wait_ready()
    [outcome] = listener.outcomes
    assert [(error.fault, error.code) for _, error in outcome.failed] == [(Fault.RETRY, "UNCONFIRMED")]
    assert slowest < 0.5, "no single poll(0) waited for the broker"
    source.commit([Position(place, 0, "second")])
    poll_until(lambda: len(listener.outcomes) == 2, source)
    assert listener.outcomes[1].confirmed == (Position(place, 0, "second"),)
    source.close()


@pytest.mark.timing
def test_a_poll_does_not_wait_for_a_record_when_it_has_found_the_answer_to_a_commit(
    kafka: KafkaBroker, topic: TopicFactory
) -> None:
    name = topic()
    source = AdoptedSource(Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": name, **BEHAVED}))
    listener = GroupMember(source, name, start=BEGINNING)
    poll_until(lambda: listener.owned, source)
    [place] = listener.owned
    begun = time.monotonic()
    for number in range(10):
        source.commit([Position(place, 0, str(number))])
        while len(listener.outcomes) == number:
            source.poll(0.5)
    took_s = time.monotonic() - begun
    source.close()
    assert took_s < 10 * 0.5 / 2


def test_an_error_that_ends_the_client_is_reported_and_the_users_client_is_left_alone(
    kafka: KafkaBroker, topic: TopicFactory, join: Join
) -> None:
    name, group = topic(), new_group()
    owner = join(name, group, group_instance_id="one", group_protocol="consumer")
    drive([owner], lambda: owner.owned)
    same_name = {"group.instance.id": "one", "group.protocol": "consumer"}
    client = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 0, **same_name, **BEHAVED})
    with GroupMember(AdoptedSource(client), name) as member:
        drive([owner, member], lambda: member.errors)
        error, _ = member.errors[0]
        assert error.fault is Fault.FATAL
        assert "instance" in str(error), "the reason"
        assert member.source._renew_at is None, "no other client takes its place"
        assert client.list_topics(name, timeout=DEADLINE_S).topics[name].error is None, "it is not closed"


def poll_until(ready: Callable[[], object], source: AdoptedSource) -> float:
    """Poll without waiting until it is so; returns how long the slowest call took."""
    took_s = [0.0]

    def poll() -> None:
        began = time.monotonic()
        source.poll(0)
        took_s.append(time.monotonic() - began)
        time.sleep(0.001)

    wait_until(ready, between=poll)
    return max(took_s)
