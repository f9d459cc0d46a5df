"""What is to happen later, by the monotonic clock. Owner: the loop thread."""

from __future__ import annotations

import heapq
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class Timers(Generic[T]):
    """A heap of due times; equal times in the order they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._count = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, due: float, item: T) -> None:
        heapq.heappush(self._heap, (due, next(self._count), item))

    def due(self, now: float) -> list[T]:
        """Take out everything whose time has come."""
        items: list[T] = []
        while self._heap and self._heap[0][0] <= now:
            items.append(heapq.heappop(self._heap)[2])
        return items

    def next_in(self, now: float) -> float:
        """Seconds until the next one is due."""
        return max(0.0, self._heap[0][0] - now) if self._heap else float("inf")
