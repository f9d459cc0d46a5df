"""Simulated time: a clock that advances only when a process waits, and timed events."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Protocol

Action = Callable[[], object]

HOLD_UP_S = 0.05
"""An event that takes longer blocks the wait in which it happened to fall."""


class Waiter(Protocol):
    """Who waits: while it is stopped, its wait is not over."""

    stopped: bool


class Timer:
    """A scheduled event. `cancel` makes it a no-op; cancelling twice, or after it ran, is harmless."""

    __slots__ = ("action", "cancelled", "when")

    def __init__(self, when: float, action: Action) -> None:
        self.when = when
        self.action = action
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class SimClock:
    """Implements `core.ports.Clock`. One thread; events at the same instant run in the order they were scheduled.

    Waits nest: an event may itself wait, which advances the time for all. The outer wait then returns late, as
    on a busy machine; time never goes back. A wait that `yields` gives up early when an outer one is over, so that only
    waits that cannot be cut short (inside a callback) block others; `held_up_s` sums up how long those took.
    """

    def __init__(self, *, start_s: float = 1000.0, wall_start_s: float = 1_750_000_000.0) -> None:
        self._now = start_s
        self._skew = wall_start_s - start_s
        self._heap: list[tuple[float, int, Timer]] = []
        self._scheduled = 0
        self.waits: list[tuple[float, Waiter | None, Callable[[], object]]] = []
        self.events_run = 0
        self.held_up_s = 0.0

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + self._skew

    def shift_wall(self, seconds: float) -> None:
        """The wall clock jumps, as NTP or an operator makes it; the monotonic one does not."""
        self._skew += seconds

    def at(self, when: float, action: Action) -> Timer:
        timer = Timer(max(when, self._now), action)
        self._scheduled += 1
        heappush(self._heap, (timer.when, self._scheduled, timer))
        return timer

    def after(self, delay_s: float, action: Action) -> Timer:
        return self.at(self._now + delay_s, action)

    def next_event(self) -> float | None:
        """When the next event is due; None when there is none."""
        while self._heap and self._heap[0][2].cancelled:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_next(self, limit: float) -> bool:
        """Run the next event if it is due at `limit` or before, moving the time there; else move it to `limit`."""
        due = self.next_event()
        if due is None and limit == inf:
            raise RuntimeError("waiting forever in a simulated world in which nothing is scheduled")
        if due is None or due > limit:
            self._now = max(self._now, limit)
            return False
        timer = heappop(self._heap)[2]
        self._now = max(self._now, due)
        self.events_run += 1
        begun = self._now
        timer.action()
        if self._now - begun > HOLD_UP_S:
            self.held_up_s += self._now - begun
        return True

    def skip(self, seconds: float) -> bool:
        """Let so much time pass if nothing falls due meanwhile; says whether it did."""
        due = self.next_event()
        if due is not None and due <= self._now + seconds:
            return False
        self._now += seconds
        return True

    def advance(self, seconds: float) -> None:
        """Let this much time pass, running what falls due."""
        limit = self._now + seconds
        while self.run_next(limit):
            pass

    def wait(self, deadline: float, ready: Callable[[], object]) -> bool:
        """Let time pass until `ready()` is true or the deadline is reached; says which."""
        self.waits.append((deadline, None, ready))
        try:
            while not ready():
                if not self.run_next(deadline):
                    return bool(ready())
            return True
        finally:
            self.waits.pop()

    def another_is_over(self) -> bool:
        """Whether a wait further down on the stack could end now. (The caller's own, the last, is not over.)"""
        for deadline, waiter, ready in self.waits:
            if (waiter is None or not waiter.stopped) and (deadline <= self._now or ready()):
                return True
        return False
