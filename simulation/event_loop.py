"""The event loop of a simulated process: asyncio's own tasks and futures, on the simulated clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from random import Random
from typing import Any

from keepfast.core.runs import Run
from keepfast.engine.workers import EventLoopThread
from keepfast.testing.fakes.process import Process, SimulationError

CROSSING_S = (1e-6, 3e-4)
"""From another thread to the loop."""


class SimEventLoop(asyncio.AbstractEventLoop):
    """As much of an event loop as tasks, futures and `asyncio.sleep` need. A dead process's loop does nothing more.

    While `blocked_until` lies ahead, a handler keeps it, and everything that is due waits.
    """

    def __init__(self, process: Process, rng: Random, blocked_until: Callable[[], float]) -> None:
        self._process = process
        self._rng = rng
        self._blocked_until = blocked_until
        self._crossed_at = 0.0

    def time(self) -> float:
        return self._process.clock.monotonic()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **options: Any
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, **options)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_at(self.time(), callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """What other threads ask for arrives in order."""
        self._crossed_at = max(self._crossed_at, self.time() + self._rng.uniform(*CROSSING_S))
        return self.call_at(self._crossed_at, callback, *args, context=context)

    def call_with_the_last(self, callback: Callable[[], object]) -> None:
        """In the same turn as what was asked for last by another thread, before anything that this leads to."""
        self.call_at(self._crossed_at, callback)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if self._process.alive:
            self._process.later(when - self.time(), lambda: self._run(handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Its turn comes, and it is not called."""

    def _run(self, handle: asyncio.TimerHandle) -> None:
        if handle.cancelled():
            return
        blocked_s = self._blocked_until() - self.time()
        if blocked_s > 0:
            self._process.later(blocked_s, lambda: self._run(handle))
            return
        # Private names, but those that the documentation gives to who writes an event loop.
        before = asyncio._get_running_loop()  # noqa: SLF001
        asyncio._set_running_loop(self)  # noqa: SLF001
        try:
            handle._run()  # noqa: SLF001
        finally:
            asyncio._set_running_loop(before)  # noqa: SLF001

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error that left a callback is logged, and no more: whether anything stalls is the oracle's question."""


class SimEvents(EventLoopThread):
    """A process's only event loop. It is about to end when the process is gone."""

    def __init__(self, loop: SimEventLoop, process: Process) -> None:
        self._process = process
        super().__init__(lambda: loop)
        self._loop = loop

    @property
    def stopping(self) -> bool:
        return not self._process.alive

    @stopping.setter
    def stopping(self, value: bool) -> None:
        """The process is asked."""

    def start(self, raised: Callable[[BaseException], None] | None = None) -> asyncio.AbstractEventLoop:  # noqa: ARG002
        if self._loop is None:
            raise RuntimeError("the event loop is not there")
        return self._loop


class Results:
    """Implements `core.ports.Mailbox`, as far as workers need it: what they hand back passes the executor."""

    def __init__(self, post: Callable[[Run], None]) -> None:
        self._post = post

    def post(self, item: Any) -> None:
        for run in item:
            self._post(run)

    def collect(self, timeout_s: float) -> list[Any]:  # noqa: ARG002 - the port's shape
        raise SimulationError("workers only post")
