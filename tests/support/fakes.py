"""Ports of the core that do as a test says: no threads, no broker, a clock that is set by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from keepfast.core.errors import Fault, SinkError
from keepfast.core.ports import Delivery
from keepfast.core.records import Outgoing, Receipt

Outcome = Receipt | SinkError
Decision = Callable[[Outgoing], Outcome | None]
"""What becomes of a record that is sent; None: nothing yet."""


def acknowledge(outgoing: Outgoing) -> Receipt:
    return Receipt(outgoing.topic, outgoing.partition or 0, 0)


def refuse(fault: Fault, code: str = "") -> Decision:
    return lambda outgoing: SinkError("refused", fault=fault, code=code)


def hold(outgoing: Outgoing) -> None:
    """Leave it without an answer, until `FakeSink.answer`."""


class FakeSink:
    """Implements `core.ports.Sink`: `decide` says of each record what becomes of it. Any thread may send.

    With `answers_elsewhere` each answer comes on a thread of its own, as from a client.
    """

    def __init__(self, decide: Decision = acknowledge, *, answers_elsewhere: bool = False) -> None:
        self.decide = decide
        self.sent: list[Outgoing] = []
        self.held: list[tuple[Outgoing, Delivery]] = []
        """What waits for its answer."""
        self._answers_elsewhere = answers_elsewhere

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        outcome = self.decide(outgoing)
        if outcome is None:
            self.held.append((outgoing, delivered))
        self.sent.append(outgoing)
        if outcome is None:
            return
        if self._answers_elsewhere:
            threading.Thread(target=delivered, args=(outcome,)).start()
        else:
            delivered(outcome)

    def answer(self, decide: Decision = acknowledge) -> None:
        """Answer everything that is held."""
        held, self.held = self.held, []
        for outgoing, delivered in held:
            outcome = decide(outgoing)
            if outcome is None:
                self.held.append((outgoing, delivered))
            else:
                delivered(outcome)

    def close(self, timeout_s: float) -> None: ...


class ListMailbox:
    """Implements `core.ports.Mailbox` for a test that plays all threads itself: never waits."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def post(self, item: Any) -> None:
        self.items.append(item)

    def collect(self, timeout_s: float) -> list[Any]:
        items, self.items = self.items, []
        return items


class ManualClock:
    """Implements `core.ports.Clock`: it is always `now`, on both clocks, until the test says otherwise."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now
