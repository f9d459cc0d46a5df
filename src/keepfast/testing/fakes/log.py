"""Topics of the simulated broker: logs whose offsets may have gaps, and the messages read from them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from keepfast.core.records import Headers, TopicPartition

MAX_METADATA_CHARS = 4096
"""The broker's default for the text of a commit."""


class FakeMessage:
    """Implements `core.records.Message`."""

    __slots__ = ("_headers", "_key", "_leader_epoch", "_offset", "_place", "_timestamp_ms", "_value")

    def __init__(
        self,
        place: TopicPartition,
        offset: int,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp_ms: int = 0,
        leader_epoch: int | None = None,
    ) -> None:
        self._place = place
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = list(headers)
        self._timestamp_ms = timestamp_ms
        self._leader_epoch = leader_epoch

    def topic(self) -> str:
        return self._place.topic

    def partition(self) -> int:
        return self._place.partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers | None:
        return self._headers or None

    def timestamp(self) -> tuple[int, int]:
        return (1, self._timestamp_ms)

    def leader_epoch(self) -> int | None:
        return self._leader_epoch

    def __len__(self) -> int:
        return len(self._value or b"")

    def __repr__(self) -> str:
        return f"FakeMessage({self._place}@{self._offset})"


class PartitionLog:
    """One partition: visible records by offset; `start` and `end` as the broker reports them."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self._offsets: list[int] = []
        self._messages: list[FakeMessage] = []

    def append(self, message: FakeMessage) -> None:
        self._offsets.append(self.end)
        self._messages.append(message)
        self.end += 1

    def append_gap(self, offsets: int) -> None:
        """Offsets no consumer ever sees: a transaction's marker, or records of an aborted one."""
        self.end += offsets

    def read(self, offset: int, limit: int) -> Sequence[FakeMessage]:
        first = bisect_left(self._offsets, offset)
        return self._messages[first : first + limit]

    def has(self, offset: int) -> bool:
        """Whether there is a visible record at this offset or later."""
        return bool(self._offsets) and self._offsets[-1] >= offset

    def messages(self) -> Sequence[FakeMessage]:
        return tuple(self._messages)

    def delete_before(self, offset: int) -> None:
        self.start = max(self.start, min(offset, self.end))
        keep = bisect_left(self._offsets, self.start)
        del self._offsets[:keep], self._messages[:keep]

    def remove(self, offset: int) -> bool:
        """Compaction removed this record; returns whether it existed."""
        index = bisect_left(self._offsets, offset)
        if index == len(self._offsets) or self._offsets[index] != offset:
            return False
        del self._offsets[index], self._messages[index]
        return True


@dataclass(slots=True)
class Topic:
    """A topic under its name; `topic_id` distinguishes it from an earlier one of the same name."""

    name: str
    topic_id: str
    logs: list[PartitionLog]
