"""Requests between a simulated process and the broker: latency, order, a muted line, time-outs.

A broker works on one request of a connection at a time. A JoinGroup that it holds until the group is complete
therefore holds back every later request of that connection, commits included: that is how a member that keeps its
partitions gets ILLEGAL_GENERATION in a routine rebalance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from keepfast.core.errors import Fault, SourceError
from keepfast.testing.fakes.clock import SimClock, Timer
from keepfast.testing.fakes.process import Process

Respond = Callable[[Any], None]
Handler = Callable[[Respond], None]

FAULTS = {
    "CLOSED": Fault.RETRY,
    "COORDINATOR_LOAD_IN_PROGRESS": Fault.RETRY,
    "COORDINATOR_NOT_AVAILABLE": Fault.RETRY,
    "FENCED_INSTANCE_ID": Fault.FENCED,
    "GROUP_AUTHORIZATION_FAILED": Fault.REFUSED,
    "ILLEGAL_GENERATION": Fault.REBALANCING,
    "MSG_SIZE_TOO_LARGE": Fault.TOO_LARGE,
    "NOT_COORDINATOR": Fault.RETRY,
    "OFFSET_METADATA_TOO_LARGE": Fault.TOO_LARGE,
    "NOT_HELD": Fault.REFUSED,
    "REBALANCE_IN_PROGRESS": Fault.REBALANCING,
    "TOPIC_AUTHORIZATION_FAILED": Fault.REFUSED,
    "UNKNOWN_MEMBER_ID": Fault.REBALANCING,
    "UNKNOWN_TOPIC_OR_PART": Fault.MISSING,
    "_AUTO_OFFSET_RESET": Fault.OUT_OF_RANGE,
    "_MAX_POLL_EXCEEDED": Fault.RETRY,
    "_TIMED_OUT": Fault.RETRY,
    "_TRANSPORT": Fault.RETRY,
}
"""The codes the simulated client and broker use, and what the engine does about each."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is an error code."""

    code: str

    def error(self, doing: str) -> SourceError:
        return SourceError(f"{doing}: {self.code}", fault=FAULTS[self.code], code=self.code)


class Gate:
    """Queue of a frozen broker: requests that have arrived, and its own timers."""

    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self.frozen = False
        self._lines: list[FakeConnection] = []
        self._timers: list[Timer] = []

    def after(self, delay_s: float, action: Callable[[], object]) -> Timer:
        """A timer of the broker: while it is frozen, it does not fire."""

        def fire() -> None:
            if self.frozen:
                self._timers.append(timer)
            else:
                action()

        timer = self._clock.after(delay_s, fire)
        return timer

    def register(self, line: FakeConnection) -> None:
        self._lines.append(line)

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self, *, timers_first: bool) -> None:
        """Answer what is queued and let due timers fire; which comes first is a race on a real machine."""
        self.frozen = False
        if timers_first:
            self._fire()
        for line in list(self._lines):
            line.pump()
        self._fire()

    def _fire(self) -> None:
        timers, self._timers = self._timers, []
        for timer in timers:
            if not timer.cancelled:
                timer.action()


class _Request:
    __slots__ = ("handler", "reply", "settled", "timer")

    def __init__(self, handler: Handler, reply: Respond) -> None:
        self.handler = handler
        self.reply = reply
        self.settled = False
        self.timer: Timer | None = None


class FakeConnection:
    """The broker's end of one connection: requests in order, one at a time."""

    def __init__(self, clock: SimClock, gate: Gate) -> None:
        self._clock = clock
        self._gate = gate
        self._inbox: deque[Handler] = deque()
        self._busy = False
        self.arrives_at = 0.0
        self.answers_at = 0.0
        gate.register(self)

    def arrive(self, handler: Handler) -> None:
        self._inbox.append(handler)
        self.pump()

    def pump(self) -> None:
        if self._inbox and not self._busy and not self._gate.frozen:
            self._busy = True
            self._inbox.popleft()(self._done)

    def _done(self, _: Any) -> None:
        # As a separate event: the code that answers is not re-entrant.
        self._busy = False
        self._clock.after(0.0, self.pump)


class Channel:
    """A process's connection to the coordinator. What was sent arrives even if the process dies meanwhile."""

    def __init__(self, process: Process, gate: Gate, rng: Random, latency_s: tuple[float, float]) -> None:
        self._process = process
        self._gate = gate
        self._rng = rng
        self._latency_s = latency_s
        self._line = FakeConnection(process.clock, gate)
        self._open: list[_Request] = []

    def send(self, handler: Handler, reply: Respond, *, timeout_s: float, cuts: bool = False) -> None:
        """Ask; `reply` is called exactly once while the process lives: with the answer, or a Failure.

        `cuts`: a time-out of this request closes the connection, and everything open on it fails; a new one is used.
        """
        request = _Request(handler, reply)
        self._open.append(request)
        line, clock = self._line, self._process.clock
        line.arrives_at = max(line.arrives_at, clock.monotonic() + self._latency())

        def handle(done: Respond) -> None:
            def respond(answer: Any) -> None:
                line.answers_at = max(line.answers_at, clock.monotonic() + self._latency())
                clock.at(line.answers_at, lambda: self._process.background(lambda: self._settle(request, answer)))
                done(None)

            request.handler(respond)

        clock.at(line.arrives_at, lambda: line.arrive(handle))
        request.timer = self._process.later(timeout_s, lambda: self._time_out(request, cuts=cuts))

    def close(self) -> None:
        """Forget what is open; the broker still works on what it has got."""
        for request in self._open:
            request.settled = True
        self._open.clear()

    def _latency(self) -> float:
        return self._rng.uniform(*self._latency_s)

    def _settle(self, request: _Request, answer: Any) -> None:
        if request.settled:
            return
        request.settled = True
        self._open.remove(request)
        if request.timer is not None:
            request.timer.cancel()
        request.reply(answer)

    def _time_out(self, request: _Request, *, cuts: bool) -> None:
        if request.settled:
            return
        self._settle(request, Failure("_TIMED_OUT"))
        if cuts:
            self._line = FakeConnection(self._process.clock, self._gate)
            for other in list(self._open):
                self._settle(other, Failure("_TRANSPORT"))
