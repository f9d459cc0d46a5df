"""The mailbox of a simulated process."""

from __future__ import annotations

from typing import Any

from holdfast.testing.simulator.process import Process


class SimMailbox:
    """Implements `core.ports.Mailbox`: waiting for an item lets simulated time pass."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._items: list[Any] = []

    def post(self, item: Any) -> None:
        if type(item) is list:
            self._items.extend(item)
        else:
            self._items.append(item)

    def collect(self, timeout_s: float) -> list[Any]:
        self._process.enter()
        if not self._items and timeout_s > 0:
            self._process.wait(timeout_s, lambda: self._items, yields=True)
        items, self._items = self._items, []
        return items
