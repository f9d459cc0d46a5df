"""Where the user's code runs: threads for `def`, coroutines of one event loop for `async def`.

Handing a record to another thread and getting the result back costs about 50 µs, ten times as much as a fast handler.
So the thread that drives the loop (the driver) walks runs of fast handlers itself. Polling must continue when such a
handler turns out to be slow: a watcher thread checks now and then and takes the loop over, and the thread that hangs in
the handler continues as a worker, whose run comes back through the mailbox like any other.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Protocol

from keepfast.core.ports import Mailbox
from keepfast.core.runs import Run
from keepfast.engine.calls import WALKS, AsyncCall, Call
from keepfast.engine.flight_recorder import NO_SLOT, FlightRecorder, Slot
from keepfast.engine.mailbox import HaltApp
from keepfast.engine.stacks import awaits_of, stack_of, threads_now, trace_of
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.metrics import Tallies

log = get_logger("keepfast.workers")

CANCEL_GRACE_S = 1.0
"""A coroutine that has not ended this long after its cancellation is lost, like a thread that hangs."""


class ThreadExecutor:
    """Daemon threads, started on demand, at most `capacity` besides those whose run was given up. They live as long as
    the process; one whose run was given up takes runs again as soon as its handler returns.

    Each worker writes its own tally and its own entry of `_at`; everything else belongs to the loop thread.
    """

    grace_s = 0.0

    def __init__(
        self,
        call: Call,
        mailbox: Mailbox,
        *,
        capacity: int,
        name: str,
        recorder: FlightRecorder | None = None,
    ) -> None:
        self._walk = call.walk
        self._mailbox = mailbox
        self._capacity = capacity
        self._name = name
        self._recorder = recorder
        self._queue: SimpleQueue[Run] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._at: list[Run | None] = []  # the run that each thread took last
        self._given_up: set[Run] = set()  # and not returned yet
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
            target=self._work,
            args=(tally, number, _slot(self._recorder)),
            name=f"{self._name}-worker-{number}",
            daemon=True,
        )
        self._threads.append(thread)
        thread.start()

    def _work(self, tally: Tallies, number: int, slot: Slot) -> None:
        take, post, walk, clock, at = self._queue.get, self._mailbox.post, self._walk, time.perf_counter, self._at
        while True:
            at[number] = run = take()
            walk(run, tally[run.partition.place.topic], clock, slot)
            post(run)

    def lively(self) -> bool:
        return True

    def where(self, run: Run) -> TracebackType | None:
        """Looks at all threads: the run may hang in one that drove the loop."""
        stacks = map(stack_of, threads_now().values())
        return next((trace_of(stack) for stack in stacks if run in _runs_on(stack)), None)

    def blocker(self) -> tuple[TracebackType | None, list[Run]]:
        """A thread does not block the others."""
        return None, []

    def give_up(self, run: Run) -> None:
        """A thread cannot be ended: from now on it does not count towards the capacity. Its transaction can."""
        if run.abort is not None:
            threading.Thread(target=run.abort, name=f"{self._name}-abort", daemon=True).start()
        if _index(self._at, run) is not None:
            self._given_up.add(run)

    def regain(self, run: Run) -> None:
        self._given_up.discard(run)


def _runs_on(stack: list[FrameType]) -> list[Run]:
    """The runs whose handlers are on this stack, each once."""
    return list(dict.fromkeys(frame.f_locals["run"] for frame in stack if frame.f_code in WALKS))


def _slot(recorder: FlightRecorder | None) -> Slot:
    """The slot in which a new worker notes the records that it has in flight."""
    return NO_SLOT if recorder is None else recorder.slot()


def _index(at: list[Run | None], run: Run) -> int | None:
    return next((number for number, other in enumerate(at) if other is run), None)


class HandlerLoop(Protocol):
    """The event loop of async handlers, shared by the consumers of an app."""

    stopping: bool

    def start(self, raised: Callable[[BaseException], None]) -> asyncio.AbstractEventLoop:
        """Start it, or find it running. Any thread. `raised` is called in the loop's thread, with each SystemExit and
        KeyboardInterrupt that left a task or a callback, where that does not end the loop.
        """
        ...

    def spawn(self, worker: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A worker's task. Only in the loop's thread."""
        ...

    def stack(self) -> list[FrameType]:
        """Where its thread is now, the outermost frame first. Any thread."""
        ...

    def cancel_workers(self, timeout_s: float) -> None:
        """End the workers, and nothing else there. Blocks, for at most timeout_s: any thread but the loop's."""

    def stop(self, timeout_s: float) -> None:
        """End what is ours there; all within timeout_s. Blocks: any thread but the loop's."""


class _Workers:
    """The tasks of workers on an event loop. `spawn` in the loop's thread, `cancel` on any other."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, worker: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(worker)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        if loop.is_closed():
            return
        ending = self._finish(timeout_s)
        try:
            asyncio.run_coroutine_threadsafe(ending, loop).result(timeout_s)
        except (TimeoutError, concurrent.futures.CancelledError):
            pass  # it is blocked, or ends by itself
        except RuntimeError:  # closed meanwhile
            ending.close()

    async def _finish(self, timeout_s: float) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)


class GivenEventLoop:
    """Implements `HandlerLoop` with an event loop of the user's, which continues when we stop. Made in its thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._workers = _Workers()
        self.spawn = self._workers.spawn
        self.stopping = False

    def start(self, raised: Callable[[BaseException], None]) -> asyncio.AbstractEventLoop:  # noqa: ARG002 - it ends
        return self._loop

    def stack(self) -> list[FrameType]:
        return stack_of(threads_now().get(self._thread))

    def cancel_workers(self, timeout_s: float) -> None:
        self.stopping = True
        self._workers.cancel(self._loop, timeout_s)

    def stop(self, timeout_s: float) -> None:
        self.cancel_workers(timeout_s)


class EventLoopThread:
    """Implements `HandlerLoop` with one event loop in a daemon thread, started by the first consumer that needs it.

    SystemExit and KeyboardInterrupt of a task or a callback leave `run_forever`, and a handler may call `loop.stop()`.
    The loop runs on nevertheless, because records and their workers are still in it: it ends by `stop` alone.
    """

    def __init__(self, factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._factory = factory
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._raised: list[Callable[[BaseException], None]] = []
        self._finished = False
        self._workers = _Workers()
        self.spawn = self._workers.spawn
        self.stopping = False

    def start(self, raised: Callable[[BaseException], None] | None = None) -> asyncio.AbstractEventLoop:
        with self._lock:
            if raised is not None:
                self._raised.append(raised)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="keepfast-asyncio", daemon=True)
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
        while not self._finished:
            try:
                loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - the thread's edge: it becomes a halt of the app
                self._report(error)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def stack(self) -> list[FrameType]:
        thread = self._thread
        return [] if thread is None or thread.ident is None else stack_of(threads_now().get(thread.ident))

    def _report(self, error: BaseException) -> None:
        if not self.stopping:
            log.error("event_loop_interrupted", exc=error)
            for raised in self._raised:
                raised(error)

    def cancel_workers(self, timeout_s: float) -> None:
        self.stopping = True
        if self._loop is not None:
            self._workers.cancel(self._loop, timeout_s)

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
        # Tasks that would not be cancelled end with the process; they were counted as unfinished, which was reported.
        loop.set_exception_handler(lambda *_: None)
        self._finished = True
        loop.call_soon(loop.stop)


class CoroutineExecutor:
    """Worker coroutines that live on, at most `capacity` beside those that were given up, started as they are needed. A
    bundle of runs crosses threads at once.

    Anything in the process may cancel a worker (`for task in asyncio.all_tasks(): task.cancel()`): the record in flight
    has failed then, and a worker that ended without one is replaced.

    The methods of the port are the loop thread's; everything else is the event loop's, which starts workers by what it
    sees waiting.
    """

    grace_s = CANCEL_GRACE_S

    def __init__(
        self,
        call: AsyncCall,
        mailbox: Mailbox,
        *,
        capacity: int,
        events: HandlerLoop,
        recorder: FlightRecorder | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._walk = call.walk
        self._mailbox = mailbox
        self._capacity = capacity
        self._events = events
        self._recorder = recorder
        self._clock = clock
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
            self._loop = self._events.start(self._interrupted)
        self._loop.call_soon_threadsafe(self._receive, runs)

    def _receive(self, runs: list[Run]) -> None:
        self._runs.extend(runs)
        for _ in runs:
            if self._wake():
                continue
            if len(self._workers) - len(self._cancelled) >= self._capacity:
                return
            tally, number = Tallies(), len(self._workers)
            self.tallies.append(tally)
            self._at.append(None)
            self._workers.append(self._worker(tally, number, _slot(self._recorder)))

    def _wake(self) -> bool:
        """Wake an idle worker, which takes the next run. False: there is none."""
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():  # else its worker was cancelled
                waiter.set_result(None)
                return True
        return False

    def _worker(self, tally: Tallies, number: int, slot: Slot) -> asyncio.Task[None]:
        task = self._events.spawn(self._work(tally, number, slot))
        task.add_done_callback(lambda _: self._replace(tally, number, slot))
        return task

    def _replace(self, tally: Tallies, number: int, slot: Slot) -> None:
        """The worker was cancelled without a run in flight: another takes its place, and the run it was woken for."""
        if not self._events.stopping:
            self._workers[number] = self._worker(tally, number, slot)

    def _interrupted(self, error: BaseException) -> None:
        self._mailbox.post(HaltApp(f"{type(error).__name__} was raised in a task or callback of the event loop"))

    async def _work(self, tally: Tallies, number: int, slot: Slot) -> None:
        loop, runs, clock, at = asyncio.get_running_loop(), self._runs, self._clock, self._at
        while not self._events.stopping:
            while not runs:
                waiter: asyncio.Future[None] = loop.create_future()
                self._idle.append(waiter)
                await waiter
            at[number] = run = runs.popleft()
            await self._walk(run, tally[run.partition.place.topic], clock, slot)
            at[number] = None
            self._cancelled.discard(run)
            self._hand_back(run, loop)
            if self._workers[number].cancelling():
                await self._clear(self._workers[number])

    async def _clear(self, worker: asyncio.Task[None]) -> None:
        """The cancellation was meant for the last record, if for any: the next one must not see it."""
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)  # delivers it, if the record ended before
        while worker.cancelling():
            worker.uncancel()

    def lively(self) -> bool:
        """Whether the event loop has run a callback since the last question. It has not while a handler blocks it."""
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

    def blocker(self) -> tuple[TracebackType | None, list[Run]]:
        """Where the thread of the event loop is, and the runs that stand on its stack. They may be of another consumer:
        the event loop is shared. There is none if the handler blocks in a task of its own.
        """
        stack = self._events.stack()
        return trace_of(stack), _runs_on(stack)

    def give_up(self, run: Run) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, run)

    def _cancel(self, run: Run) -> None:
        """Cancels the worker only if it still has this run."""
        number = _index(self._at, run)
        if number is not None:
            self._cancelled.add(run)
            self._workers[number].cancel()

    def regain(self, run: Run) -> None:
        """Nothing to do: the worker has removed it from `_cancelled`."""

    def _hand_back(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        """Results of one turn of the event loop are posted together: waking the loop thread is expensive."""
        if not self._done:
            loop.call_soon(self._flush)
        self._done.append(run)

    def _flush(self) -> None:
        done, self._done = self._done, []
        self._mailbox.post(done)


HANG_S = 0.02
"""After this long in one run, the driver loses the loop to another thread."""

WATCH_S = 0.01
"""How often the watcher checks while runs are walked here. After QUIET_LOOKS checks without any it sleeps."""

QUIET_LOOKS = 100


class Superseded(Exception):
    """Another thread drives the loop now: the thread that gets this must not touch the loop any more."""


class Driver:
    """What the thread that drives the loop writes to. `begun` has the time at which it called the handler, while that
    runs. The one that takes it out has the loop: the driver, when the handler has returned, or the watcher, when it has
    taken too long. That is one step of the interpreter, so that no lock is needed between two records.
    """

    __slots__ = ("begun", "slot", "tallies")

    def __init__(self, slot: Slot) -> None:
        self.begun: deque[float] = deque(maxlen=1)
        self.slot = slot
        self.tallies = Tallies()

    def end(self) -> bool:
        """Note that the handler has returned. Returns False if another thread has taken the loop over."""
        try:
            self.begun.pop()
        except IndexError:
            return False
        return True


class Inline:
    """Which thread drives the loop, and the runs that it walks itself. Only the driver calls `walk`."""

    def __init__(
        self,
        call: Call,
        mailbox: Mailbox,
        *,
        name: str,
        recorder: FlightRecorder | None = None,
    ) -> None:
        self._walk = call.walk
        self._mailbox = mailbox
        self.tallies: list[Tallies] = []
        self._name = name
        self._recorder = recorder
        self._awake = threading.Event()
        self._watched = False  # the watcher is awake, or about to be
        self._spare: list[Driver] = []  # of threads that have driven and are back from their handlers
        self.driver = self._new()
        self._drive: Callable[[], None] | None = None
        self.takeovers = 0

    def start(self, drive: Callable[[], None]) -> None:
        """From now on `drive` is called, on a new thread, when the loop has to be taken over."""
        self._drive = drive
        self._watch_from_a_new_thread()

    def walk(self, run: Run) -> None:
        """Call the handler for the records of the run, here and now. Raises Superseded if one of them took too long."""
        driver = self.driver
        driver.begun.append(time.monotonic())
        if not self._watched:
            self._awake.set()
        self._walk(run, driver.tallies[run.partition.place.topic], time.perf_counter, driver.slot)
        if driver.end():
            return
        self._spare.append(driver)
        self._mailbox.post(run)
        raise Superseded

    def _new(self) -> Driver:
        driver = Driver(NO_SLOT if self._recorder is None else self._recorder.slot())
        self.tallies.append(driver.tallies)
        return driver

    def _watch_from_a_new_thread(self) -> None:
        threading.Thread(target=self._watch, name=f"{self._name}-watch-{self.takeovers}", daemon=True).start()

    def _watch(self) -> None:
        quiet = 0
        while True:
            if quiet >= QUIET_LOOKS:
                self._watched = False
                self._awake.clear()
                if not self.driver.begun:  # looked at after that: `walk` notes the time before it looks itself
                    self._awake.wait()
                quiet = 0
            self._watched = True
            time.sleep(WATCH_S)
            quiet = 0 if self.driver.begun else quiet + 1
            if self._take_over():
                break
        self._watch_from_a_new_thread()
        if self._drive is not None:
            self._drive()

    def _take_over(self) -> bool:
        """If the handler returns at this very moment, only one of the two threads has the loop. If it is called again
        between the two steps, that call loses the loop, which does no harm.
        """
        begun = self.driver.begun
        try:
            if time.monotonic() - begun[0] < HANG_S:
                return False
            begun.pop()
        except IndexError:  # no handler runs
            return False
        self.takeovers += 1
        # The old one still belongs to the thread that hangs.
        self.driver = self._spare.pop() if self._spare else self._new()
        return True
