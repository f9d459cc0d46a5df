"""What a reader of a topic sees that reads committed records only."""

from __future__ import annotations

import uuid

from confluent_kafka import Consumer, TopicPartition

from keepfast.testing.topics import TopicAdmin


def committed_values(kafka: TopicAdmin, topic: str) -> list[bytes]:
    """All values up to the last stable offsets of now, by partition, in order; empty ones for null."""
    reader = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    try:
        count = len(kafka.admin.list_topics(topic, timeout=30).topics[topic].partitions)
        reader.assign([TopicPartition(topic, number, 0) for number in range(count)])
        found: list[list[bytes]] = [[] for _ in range(count)]
        ended: set[int] = set()
        while len(ended) < count:
            for message in reader.consume(1000, 1.0):
                error = message.error()
                if error is None:
                    found[message.partition() or 0].append(message.value() or b"")
                elif error.name() == "_PARTITION_EOF":
                    ended.add(message.partition() or 0)
    finally:
        reader.close()
    return [one for partition in found for one in partition]
