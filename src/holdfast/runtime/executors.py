"""Where the user's code runs: threads for `def`, coroutines of one event loop for `async def`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from types import FrameType, TracebackType
from typing import Any

from holdfast.core.ports import Mailbox
from holdfast.core.runs import Run
from holdfast.observe.tally import Tallies
from holdfast.runtime.batch_walk import AsyncBatchCall, BatchCall, walk_batch, walk_batch_async
from holdfast.runtime.walk import AsyncCall, Call, walk, walk_async
from holdfast.runtime.whereabouts import awaits_of, stack_of, threads_now, trace_of

WALKS = (walk.__code__, walk_batch.__code__)
"""Where a thread that has a run in hand can be found."""

CANCEL_GRACE_S = 1.0
"""A coroutine that is cancelled and is not over by then is lost, like a thread that nobody can end."""


class ThreadExecutor:
    """Daemon threads, started as they are needed, at most `capacity` beside those that were given up; they live as long
    as the process, and one that comes back serves again.

    The tallies are the workers', and so are their places in `_at`; everything else is the loop thread's.
    """

    grace_s = 0.0

    def __init__(self, call: Call | BatchCall, mailbox: Mailbox, *, capacity: int, name: str) -> None:
        self._call: Any = call
        self._walk: Any = walk_batch if isinstance(call, BatchCall) else walk
        self._mailbox = mailbox
        self._capacity = capacity
        self._name = name
        self._queue: SimpleQueue[Run] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._at: list[Run | None] = []  # what each thread took last
        self._given_up: set[Run] = set()  # and not back yet
        self.tallies: list[Tallies] = []

    def submit(self, runs: list[Run], out: int) -> None:
        for run in runs:
            self._queue.put(run)
        while len(self._threads) - len(self._given_up) < min(out, self._capacity):
            self._start()

    def _start(self) -> None:
        tally, number = Tallies(), len(self._threads)
        self.tallies.append(tally)
        self._at.append(None)
        thread = threading.Thread(
            target=self._work, args=(tally, number), name=f"{self._name}-worker-{number}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _work(self, tally: Tallies, number: int) -> None:
        take, post, call, clock, at = self._queue.get, self._mailbox.post, self._call, time.perf_counter, self._at
        walk = self._walk
        while True:
            at[number] = run = take()
            walk(run, call, tally[run.partition.place.topic], clock)
            post(run)

    def lively(self) -> bool:
        return True

    def where(self, run: Run) -> TracebackType | None:
        """Wherever that is: it may hang in a thread that drove the loop."""
        stacks = map(stack_of, threads_now())
        return next((trace_of(stack) for stack in stacks if any(_walks(frame, run) for frame in stack)), None)

    def give_up(self, run: Run) -> None:
        """A thread cannot be ended: it is only not counted on any more."""
        if _index(self._at, run) is not None:
            self._given_up.add(run)

    def regain(self, run: Run) -> None:
        self._given_up.discard(run)


def _walks(frame: FrameType, run: Run) -> bool:
    return frame.f_code in WALKS and frame.f_locals.get("run") is run


def _index(at: list[Run | None], run: Run) -> int | None:
    return next((number for number, other in enumerate(at) if other is run), None)


class EventLoopThread:
    """One event loop in a daemon thread, shared by the async consumers of an app; started by the first of them."""

    def __init__(self, factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._factory = factory
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stopping = False

    def start(self) -> asyncio.AbstractEventLoop:
        """Start it, or find it running. Any thread."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="holdfast-asyncio", daemon=True)
                self._thread.start()
        self._ready.wait()
        if self._loop is None:
            raise RuntimeError("the event loop did not start")
        return self._loop

    def _run(self) -> None:
        try:
            loop = self._loop = self._factory()
        finally:
            self._ready.set()
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def stop(self, timeout_s: float) -> None:
        """Cancel what still runs there, give it a moment to clean up, and end the thread; all within timeout_s."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self.stopping = True
        asyncio.run_coroutine_threadsafe(self._finish(timeout_s / 2), loop)
        thread.join(timeout_s)

    async def _finish(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
        # Tasks that would not be cancelled end with the process; they were counted as unfinished, so say no more.
        loop.set_exception_handler(lambda *_: None)
        loop.call_soon(loop.stop)


class CoroutineExecutor:
    """Worker coroutines that live on, at most `capacity` beside those that were given up, started as they are needed. A
    bundle of runs crosses threads at once.

    The methods of the port are the loop thread's; everything else is the event loop's, which starts workers by what it
    sees waiting.
    """

    grace_s = CANCEL_GRACE_S

    def __init__(
        self, call: AsyncCall | AsyncBatchCall, mailbox: Mailbox, *, capacity: int, events: EventLoopThread
    ) -> None:
        self._call: Any = call
        self._walk: Any = walk_batch_async if isinstance(call, AsyncBatchCall) else walk_async
        self._mailbox = mailbox
        self._capacity = capacity
        self._events = events
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runs: deque[Run] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._workers: list[asyncio.Task[None]] = []
        self._at: list[Run | None] = []  # what each worker is at
        self._cancelled: set[Run] = set()  # and not over yet
        self._asked = self._answered = 0
        self._done: list[Run] = []
        self.tallies: list[Tallies] = []

    def submit(self, runs: list[Run], out: int) -> None:  # noqa: ARG002 - workers are started by what waits
        if self._loop is None:
            self._loop = self._events.start()
        self._loop.call_soon_threadsafe(self._receive, runs)

    def _receive(self, runs: list[Run]) -> None:
        self._runs.extend(runs)
        for _ in runs:
            if self._idle:
                self._idle.popleft().set_result(None)
            elif len(self._workers) - len(self._cancelled) < self._capacity:
                tally, number = Tallies(), len(self._workers)
                self.tallies.append(tally)
                self._at.append(None)
                self._workers.append(asyncio.get_running_loop().create_task(self._work(tally, number)))
            else:
                return

    async def _work(self, tally: Tallies, number: int) -> None:
        loop, runs, clock, at = asyncio.get_running_loop(), self._runs, time.perf_counter, self._at
        while not self._events.stopping:
            while not runs:
                waiter: asyncio.Future[None] = loop.create_future()
                self._idle.append(waiter)
                await waiter
            at[number] = run = runs.popleft()
            await self._walk(run, self._call, tally[run.partition.place.topic], clock)
            at[number] = None
            if run in self._cancelled:
                self._cancelled.discard(run)
                self._workers[number].uncancel()  # it was meant for that record, and the worker lives on
            self._hand_back(run, loop)

    def lively(self) -> bool:
        """Whether the event loop has turned since. It has not while a handler calls something that blocks."""
        answered = self._asked == self._answered
        if answered and self._loop is not None:
            self._asked += 1
            self._loop.call_soon_threadsafe(self._answer)
        return answered

    def _answer(self) -> None:
        self._answered += 1

    def where(self, run: Run) -> TracebackType | None:
        number = _index(self._at, run)
        return None if number is None else trace_of(awaits_of(self._workers[number].get_coro()))

    def give_up(self, run: Run) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, run)

    def _cancel(self, run: Run) -> None:
        """Reaches this run alone: whoever is at another by now is not in its place."""
        number = _index(self._at, run)
        if number is not None:
            self._cancelled.add(run)
            self._workers[number].cancel()

    def regain(self, run: Run) -> None:
        """The event loop has noticed already."""

    def _hand_back(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        """Results of one turn of the event loop travel together: waking the loop thread is the dear part."""
        if not self._done:
            loop.call_soon(self._flush)
        self._done.append(run)

    def _flush(self) -> None:
        done, self._done = self._done, []
        self._mailbox.post(done)
