"""The mailbox of a simulated process."""

from __future__ import annotations

from typing import Any

from holdfast.testing.simulator.process import Process


class SimMailbox:
    """Implements `core.ports.Mailbox`: waiting for a letter lets simulated time pass."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._items: list[Any] = []

    def post(self, item: Any) -> None:
        self._items.append(item)

    def collect(self, timeout_s: float) -> list[Any]:
        self._process.enter()
        if not self._items and timeout_s > 0:
            self._process.wait(timeout_s, lambda: self._items)
        items, self._items = self._items, []
        return items
