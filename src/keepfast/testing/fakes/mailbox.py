"""The mailbox of a simulated process."""

from __future__ import annotations

from typing import Any

from keepfast.testing.fakes.process import Process

LEAST_WAIT_S = 0.005
"""A loop may look for the answer to a commit many times in a millisecond: more often than a simulation can afford."""


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
            self._process.wait(max(timeout_s, LEAST_WAIT_S), lambda: self._items, yields=True)
        items, self._items = self._items, []
        return items
