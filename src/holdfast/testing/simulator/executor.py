"""Workers of a simulated process: the engine's own `walk` functions, driven by events of the clock."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator
from dataclasses import dataclass
from random import Random
from typing import Any

from holdfast.core.ports import Mailbox
from holdfast.core.records import Message
from holdfast.core.runs import Run
from holdfast.observe.tally import Tally
from holdfast.runtime.walk import walk, walk_async
from holdfast.testing.simulator.process import Process
from holdfast.testing.simulator.workload import Workload

HAND_OVER_S = (1e-6, 3e-4)
"""From the loop to a worker."""


@dataclass(frozen=True, slots=True)
class _Pause(Awaitable[None]):
    """What the simulated handler awaits: whoever drives the coroutine lets so much time pass."""

    seconds: float

    def __await__(self) -> Generator[float, None, None]:
        yield self.seconds


class SimExecutor:
    """Implements `runtime.loop.Executor`.

    As threads, `walk` goes through a run of several records at one instant, and the result is posted when its time has
    passed; else, and for single records, `walk_async` is driven record by record, the loop running in between. `few` is
    how many runs may be out at least, however fast the handler is.
    """

    def __init__(
        self, process: Process, mailbox: Mailbox, workload: Workload, rng: Random, *, threads: bool, few: int
    ) -> None:
        self._process = process
        self._mailbox = mailbox
        self._workload = workload
        self._rng = rng
        self._threads = threads
        self._few = few
        self._tally = Tally()
        self._time = 0.0
        self.out: list[Run] = []
        self.full_at = 0.0  # when no worker was free, or few were
        self.posted_at = 0.0

    def submit(self, runs: list[Run], out: int) -> None:  # noqa: ARG002 - there is always a worker free
        begin = self._walk if self._threads else self._walk_async
        for run in runs:
            self.out.append(run)
            self._process.later(self._rng.uniform(*HAND_OVER_S), lambda run=run: begin(run))  # type: ignore[misc]

    def _post(self, run: Run) -> None:
        if len(self.out) >= self._few:
            self.full_at = self._process.clock.monotonic()
        self.posted_at = self._process.clock.monotonic()
        self.out.remove(run)
        self._mailbox.post(run)

    def _walk(self, run: Run) -> None:
        if len(run.messages) == 1:
            self._walk_async(run)
            return
        begun = self._time = self._process.clock.monotonic()
        walk(run, self._call, self._tally, lambda: self._time)
        self._process.later(self._time - begun, lambda: self._post(run))

    def _call(self, message: Message, run: Run) -> None:
        attempt = self._workload.begin(self._process.name, message, run)
        self._time += attempt.takes_s
        self._workload.end(attempt)
        if attempt.error is not None:
            raise attempt.error

    def _walk_async(self, run: Run) -> None:
        self._drive(walk_async(run, self._call_async, self._tally, self._process.clock.monotonic), run)

    def _drive(self, walking: Coroutine[Any, Any, None], run: Run) -> None:
        try:
            pause_s = walking.send(None)
        except StopIteration:
            self._post(run)
            return
        self._process.later(pause_s, lambda: self._drive(walking, run))

    async def _call_async(self, message: Message, run: Run) -> None:
        attempt = self._workload.begin(self._process.name, message, run)
        await _Pause(attempt.takes_s)
        self._workload.end(attempt)
        if attempt.error is not None:
            raise attempt.error
