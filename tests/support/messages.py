"""Messages for tests that need no client."""

from __future__ import annotations

from keepfast.core.records import Headers, Message, TopicPartition
from keepfast.testing.fakes.log import FakeMessage

PLACE = TopicPartition("orders", 0)


def message(
    offset: int,
    key: bytes | None = None,
    *,
    place: TopicPartition = PLACE,
    value: bytes | None = b"v",
    headers: Headers = (),
    timestamp_ms: int = 0,
) -> Message:
    return FakeMessage(place, offset, key=key, value=value, headers=headers, timestamp_ms=timestamp_ms)
