"""What is to happen later, by the monotonic clock. Owner: the loop thread."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class Timers(Generic[T]):
    """A heap of due times; equal times in the order they were added.

    `wanted` says whether an item still counts. One that does not is never handed out; it is removed when it is due, or
    when more than half of the heap is such (`dropped`), so that it does not keep its record in memory until then.
    """

    def __init__(self, wanted: Callable[[T], bool] = lambda _: True) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._count = count()
        self._wanted = wanted
        self._unwanted = 0  # at most so many in the heap

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, due: float, item: T) -> None:
        heapq.heappush(self._heap, (due, next(self._count), item))

    def due(self, now: float) -> list[T]:
        """Take out everything whose time has come."""
        items: list[T] = []
        while self._heap and self._heap[0][0] <= now:
            item = heapq.heappop(self._heap)[2]
            if self._wanted(item):
                items.append(item)
            else:
                self._unwanted = max(0, self._unwanted - 1)
        return items

    def dropped(self, items: int) -> None:
        """Up to so many more items are not wanted any more."""
        self._unwanted += items
        if 2 * self._unwanted > len(self._heap):
            self._heap = [entry for entry in self._heap if self._wanted(entry[2])]
            heapq.heapify(self._heap)
            self._unwanted = 0

    def next_in(self, now: float) -> float:
        """Seconds until the next one is due."""
        return max(0.0, self._heap[0][0] - now) if self._heap else float("inf")
