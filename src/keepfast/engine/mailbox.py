"""The real mailbox: one queue into the loop."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import Any


class QueueMailbox:
    """`post` from any thread; `collect` on the loop thread. A list that is posted counts as its items, in order."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Any] = SimpleQueue()

    def post(self, item: Any) -> None:
        self._queue.put(item)

    def collect(self, timeout_s: float) -> list[Any]:
        queue = self._queue
        items: list[Any] = []
        try:
            self._take(queue.get_nowait() if timeout_s <= 0 else queue.get(timeout=timeout_s), items)
            while True:
                self._take(queue.get_nowait(), items)
        except Empty:
            return items

    @staticmethod
    def _take(item: Any, items: list[Any]) -> None:
        if type(item) is list:
            items.extend(item)
        else:
            items.append(item)
