"""P9, 000 §2.2: without a `dlq_publisher` a letter goes out through the producer of the user's factory, whichever."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from keepfast.core.errors import StartError
from keepfast.runner import KafkaConsumerRunner
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.runners import KINDS, Kind, Running, factory_of
from tests.support.broker_client import Client, NewRecord
from tests.support.waiting import wait_until

VALUE = b'{"n":  1, "text": "\xc3\xa4"}'


def producer_of(kind: Kind, kafka: TopicAdmin) -> Callable[[], Any]:
    made: dict[Kind, Callable[[], Any]] = {
        "dict": lambda: {"bootstrap.servers": kafka.bootstrap, "acks": "all"},
        "confluent-kafka": lambda: Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0}),
        "kafka-python": lambda: KafkaProducer(bootstrap_servers=kafka.bootstrap, acks="all"),
    }
    return made[kind]


def refuse(message: object) -> None:
    raise ValueError("final")


@pytest.mark.parametrize("kind", KINDS)
def test_a_letter_of_ours_goes_out_through_the_users_producer(
    kafka: TopicAdmin, topic: TopicFactory, kind: Kind
) -> None:
    name, client = topic(partitions=2), Client(kafka)
    letters = kafka.create_topic(f"{name}.dlq", partitions=2)
    client.produce(name, [NewRecord(VALUE, key=b"\xff", headers=[("h", b"\x00")], partition=1)])
    group = f"group-of-{name}"
    with Running(
        kind, kafka, name, process_message=refuse, producer_factory=producer_of(kind, kafka), dead_letter=letters
    ):
        wait_until(lambda: client.committed(group, name, 1)[0] == 1, "it is dead-lettered and committed")
    [letter] = client.read(letters, 1, partitions=2)
    reported = json.loads(letter.value())
    assert (letter.partition(), letter.key(), letter.headers()[0]) == (1, b"\xff", ("h", b"\x00"))
    assert (reported["error_type"], reported["error_classification"], reported["retry_count"]) == (
        "ValueError",
        "non-retryable",
        0,
    )
    assert (reported["consumer_group"], reported["original_encoding"]) == (group, "json")
    assert b64decode(reported["original_bytes"]) == VALUE, "its JSON would be written otherwise"


def test_with_a_dict_alone_the_letters_topic_is_made(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(partitions=3), Client(kafka)
    client.produce(name, [NewRecord(VALUE, partition=2)])
    with Running("dict", kafka, name, process_message=refuse, dead_letter=f"{name}.made.dlq"):
        wait_until(lambda: client.committed(f"group-of-{name}", name, 2)[0] == 1, "it is dead-lettered and committed")
    assert len(client.read(f"{name}.made.dlq", 1, partitions=3)) == 1


@pytest.mark.parametrize("kind", ["confluent-kafka", "kafka-python"])
def test_with_a_consumer_of_the_user_a_topic_that_is_missing_is_reported_before_the_start(
    kafka: TopicAdmin, topic: TopicFactory, kind: Kind
) -> None:
    name = topic()
    runner = KafkaConsumerRunner(
        consumer_factory=factory_of(kind, kafka, name),
        producer_factory=producer_of("confluent-kafka", kafka),
        process_message=refuse,
        topics=[name, f"{name}.too"],
        dead_letter=f"{name}.dlq",
    )
    with pytest.raises(StartError) as caught:
        runner.run()
    printed = str(caught.value).splitlines()
    assert [line.split()[1] for line in printed] == [f"{name}.too", f"{name}.dlq"]
    assert "kafka-topics.sh --create" in printed[1]
