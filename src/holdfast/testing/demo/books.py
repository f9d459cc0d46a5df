"""The books: reads the topics and accounts for every order by its identity. Runs in a process of its own.

`python -m holdfast.testing.demo.books BROKERS LETTER_TOPIC` prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from holdfast.testing.demo.shop import ORDERS, SHIPMENTS


def read_all(brokers: str, topic: str) -> list[bytes]:
    """Every value in a topic, from its first record to the last one there is now."""
    client = Consumer({"bootstrap.servers": brokers, "group.id": "shop.books", "enable.auto.commit": False})
    values: list[bytes] = []
    try:
        numbers = client.list_topics(topic, timeout=10).topics[topic].partitions
        ends = {}
        for number in numbers:
            low, high = client.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
            if high > low:
                ends[number] = high
        client.assign([TopicPartition(topic, number, 0) for number in ends])
        while ends:
            message = client.poll(10)
            if message is None:
                raise SystemExit(f"{topic} gave no record for 10 s although {len(ends)} partitions have more")
            if message.error() is not None:
                raise SystemExit(f"{topic} could not be read: {message.error()}")
            values.append(message.value() or b"")
            number, offset = message.partition(), message.offset()
            if number is not None and offset is not None and offset + 1 >= ends[number]:
                del ends[number]
    finally:
        client.close()
    return values


def order_of(letter: bytes) -> bytes:
    """The original bytes of the order that a letter is about."""
    fields: dict[str, Any] = json.loads(letter)
    if fields["original_encoding"] == "base64":
        return b64decode(fields["original_message"])
    return json.dumps(fields["original_message"], ensure_ascii=False, separators=(",", ":")).encode()


def account(brokers: str, letter_topic: str) -> dict[str, Any]:
    """Who was sent, who was shipped, who was buried; and who is nowhere."""
    sent = Counter(read_all(brokers, ORDERS))
    shipped = Counter(json.loads(value)["id"] for value in read_all(brokers, SHIPMENTS))
    buried = Counter(order_of(value) for value in read_all(brokers, letter_topic))
    ids = {json.loads(value)["id"]: value for value in sent if value.startswith(b"{")}
    processed = {ids[one] for one in shipped if one in ids}
    lost = [value for value in sent if value not in processed and value not in buried]
    return {
        "sent": len(sent),
        "processed": len(processed),
        "buried": len(set(buried) & set(sent)),
        "lost": len(lost),
        "processed_twice": sum(count - 1 for count in shipped.values()),
        "strangers": len(set(shipped) - set(ids)) + len(set(buried) - set(sent)),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(account(*sys.argv[1:3])) + "\n")
