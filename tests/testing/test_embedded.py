"""The cluster inside librdkafka: as far as it goes."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from keepfast.core.errors import StartError
from keepfast.testing import EmbeddedBroker
from keepfast.testing.embedded import LIMITS, PARTITIONS
from tests.support.waiting import wait_until

PRODUCE = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "log_level": 0})
producer.produce("greetings", b"hello", partition=0)
sys.exit(producer.flush(20))
"""


def test_another_process_produces_into_it() -> None:
    with EmbeddedBroker() as broker:
        subprocess.run([sys.executable, "-c", PRODUCE, broker.bootstrap], check=True, timeout=60)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "log_level": 0})
        consumer.assign([TopicPartition("greetings", 0, 0)])
        message = wait_until(lambda: consumer.poll(0.2), "the record is there")
        assert message is not None
        assert message.value() == b"hello"
        partitions = consumer.list_topics("greetings", timeout=10).topics["greetings"].partitions
        consumer.close()
    assert len(partitions) == PARTITIONS == 4


@pytest.mark.timing
def test_it_boots_within_a_second_with_several_nodes() -> None:
    began = time.monotonic()
    with EmbeddedBroker(nodes=3) as broker:
        assert time.monotonic() - began < 1.0
        assert len(broker.bootstrap.split(",")) == 3


def test_before_the_start_and_after_the_end_it_has_no_address() -> None:
    broker = EmbeddedBroker()
    for _ in range(2):
        with pytest.raises(StartError, match="not been started"):
            _ = broker.bootstrap
        broker.start()
        broker.stop()
        broker.stop()


def test_its_limits_are_sentences() -> None:
    assert all(limit.endswith(".") for limit in LIMITS)
