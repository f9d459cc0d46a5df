"""What a dead-letter topic is made with."""

from __future__ import annotations

import pytest

from keepfast.kafka import KafkaAdmin, admin_properties
from keepfast.testing.broker import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.wiring.cluster import letter_topic_config
from tests.support.members import connection

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("largest", "expected"), [(4 * MIB, 10 * MIB + 64 * 1024), (60 * MIB, 100 * MIB)], ids=["larger", "the most"]
)
def test_it_has_room_for_letters_of_the_largest_records_of_its_sources(
    kafka: KafkaBroker, topic: TopicFactory, largest: int, expected: int
) -> None:
    sources = [topic(config={"max.message.bytes": str(size)}) for size in (MIB, largest, 2 * MIB)]
    admin = KafkaAdmin(admin_properties(connection(kafka.bootstrap)))
    assert letter_topic_config(admin, sources)["max.message.bytes"] == str(expected)
