"""Ownership epochs: each assignment of a partition, and each deliberate reset of its position, gets a number of its
own.
"""

from __future__ import annotations

from keepfast.core.records import TopicPartition


class Epochs:
    """Counts epochs; a result is current only if it carries the number that is in force. Owner: the loop thread."""

    __slots__ = ("_current", "_last")

    def __init__(self) -> None:
        self._last = 0
        self._current: dict[TopicPartition, int] = {}

    def begin(self, place: TopicPartition) -> int:
        """A new epoch for this partition; whatever came before is stale from now on."""
        self._last += 1
        self._current[place] = self._last
        return self._last

    def end(self, place: TopicPartition) -> None:
        """The partition is not ours any more; no result of it is current."""
        self._current.pop(place, None)

    def is_current(self, place: TopicPartition, epoch: int) -> bool:
        return self._current.get(place) == epoch
