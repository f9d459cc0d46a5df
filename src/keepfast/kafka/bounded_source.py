"""A source that ends: records at or behind the given offsets are never handed out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keepfast.core.ports import Source
from keepfast.core.records import Message, TopicPartition


class BoundedSource:
    """Implements `core.ports.Source` with another source. `ends`: of each partition the first offset that is not read;
    of a partition that is not named, nothing is. A partition is paused when its end is reached.
    """

    def __init__(self, source: Source, ends: Mapping[TopicPartition, int]) -> None:
        self._source = source
        self._ends = ends

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def poll(self, timeout_s: float) -> Message | None:
        message = self._source.poll(timeout_s)
        return message if message is None or self._is_within(message) else None

    def sweep(self, limit: int) -> list[Message]:
        return [message for message in self._source.sweep(limit) if self._is_within(message)]

    def _is_within(self, message: Message) -> bool:
        place = TopicPartition(message.topic(), message.partition())
        if message.offset() < self._ends.get(place, 0):
            return True
        self._source.pause([place])
        return False
