"""Where the user's code runs: threads for `def`, coroutines of one event loop for `async def`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from holdfast.core.ports import Mailbox
from holdfast.core.runs import Run
from holdfast.observe.tally import Tally
from holdfast.runtime.walk import AsyncCall, Call, walk, walk_async


class ThreadExecutor:
    """Daemon threads, started as they are needed, at most `capacity`; they live as long as the process.

    `submit` is the loop thread's; the tallies are the workers'.
    """

    def __init__(self, call: Call, mailbox: Mailbox, *, capacity: int, name: str) -> None:
        self._call = call
        self._mailbox = mailbox
        self._capacity = capacity
        self._name = name
        self._queue: SimpleQueue[Run] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self.tallies: list[Tally] = []

    def submit(self, runs: list[Run], out: int) -> None:
        for run in runs:
            self._queue.put(run)
        while len(self._threads) < min(out, self._capacity):
            self._start()

    def _start(self) -> None:
        tally = Tally()
        self.tallies.append(tally)
        thread = threading.Thread(
            target=self._work, args=(tally,), name=f"{self._name}-worker-{len(self._threads)}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _work(self, tally: Tally) -> None:
        take, post, call, clock = self._queue.get, self._mailbox.post, self._call, time.perf_counter
        while True:
            run = take()
            walk(run, call, tally, clock)
            post(run)


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
    """Worker coroutines that live on, at most `capacity`, started as they are needed. A bundle of runs crosses threads
    at once.

    `submit` is the loop thread's; everything else is the event loop's, which starts workers by what it sees waiting.
    """

    def __init__(self, call: AsyncCall, mailbox: Mailbox, *, capacity: int, events: EventLoopThread) -> None:
        self._call = call
        self._mailbox = mailbox
        self._capacity = capacity
        self._events = events
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runs: deque[Run] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._workers: list[asyncio.Task[None]] = []
        self._done: list[Run] = []
        self.tallies: list[Tally] = []

    def submit(self, runs: list[Run], out: int) -> None:  # noqa: ARG002 - workers are started by what waits
        if self._loop is None:
            self._loop = self._events.start()
        self._loop.call_soon_threadsafe(self._receive, runs)

    def _receive(self, runs: list[Run]) -> None:
        self._runs.extend(runs)
        for _ in runs:
            if self._idle:
                self._idle.popleft().set_result(None)
            elif len(self._workers) < self._capacity:
                tally = Tally()
                self.tallies.append(tally)
                self._workers.append(asyncio.get_running_loop().create_task(self._work(tally)))
            else:
                return

    async def _work(self, tally: Tally) -> None:
        loop, runs, clock = asyncio.get_running_loop(), self._runs, time.perf_counter
        while not self._events.stopping:
            while not runs:
                waiter: asyncio.Future[None] = loop.create_future()
                self._idle.append(waiter)
                await waiter
            run = runs.popleft()
            await walk_async(run, self._call, tally, clock)
            self._hand_back(run, loop)

    def _hand_back(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        """Results of one turn of the event loop travel together: waking the loop thread is the dear part."""
        if not self._done:
            loop.call_soon(self._flush)
        self._done.append(run)

    def _flush(self) -> None:
        done, self._done = self._done, []
        self._mailbox.post(done)
