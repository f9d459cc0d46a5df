"""Workers of a simulated process: the engine's own `walk` functions, driven by events of the clock."""

from __future__ import annotations

import asyncio
import inspect
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from keepfast.core.batches import as_batch, lane_of
from keepfast.core.ports import Mailbox
from keepfast.core.records import Message
from keepfast.core.runs import Run, SelectedRecords
from keepfast.decode.signature import inspect_handler
from keepfast.engine.calls import (
    AsyncBatchCall,
    AsyncCall,
    AsyncRecordCall,
    BatchCall,
    Call,
    Handle,
    Handler,
    RecordCall,
)
from keepfast.engine.context import BatchContext, Context
from keepfast.engine.flight_recorder import NO_SLOT, FlightRecorder, Slot
from keepfast.engine.inbox import consumer_inbox
from keepfast.engine.middleware import Around
from keepfast.engine.workers import CANCEL_GRACE_S, CoroutineExecutor
from keepfast.telemetry.metrics import Tally
from keepfast.testing.fakes.acts import BatchTimedOut, Blocked, StaleGivenUp, TimedOut
from keepfast.testing.fakes.process import Process, ProcessDied, SimulationError
from keepfast.testing.fakes.sink import OUTPUT, FakeSink, HandlerSink
from keepfast.testing.fakes.trace import Fact
from simulation.event_loop import Results, SimEventLoop, SimEvents
from simulation.setup import GROUP, Setup
from simulation.variants.inboxes import SimDatabase, SimInbox, SimTx
from simulation.workload import FIRST_OUTPUT, LAST_OUTPUT, Attempt, BatchAttempt, Entry, Workload, outputs_of

HAND_OVER_S = (1e-6, 3e-4)
"""From the loop to a worker."""

WAKE_UP_S = 0.02

STUCK_LOOK_S = 0.5
"""A handler that is stuck finds out so late that it may end."""


@dataclass(frozen=True, slots=True)
class _Pause(Awaitable[None]):
    """What the simulated handler awaits: the driver of the coroutine lets this much time pass."""

    seconds: float

    def __await__(self) -> Generator[float, None, None]:
        yield self.seconds


class _Walk:
    """A worker with its run. `turn` distinguishes a valid step from one that was cancelled."""

    __slots__ = ("attempt", "coroutine", "run", "turn")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.coroutine: Coroutine[Any, Any, None] | None = None
        self.attempt: Attempt | BatchAttempt | None = None
        self.turn = 0


class SimExecutor:
    """Implements `core.ports.Executor`.

    As threads, `walk` goes through a run of several records at one instant, and the result is posted when its time has
    passed; else, for single records, and wherever handlers may time out, the async call is driven record by record, the
    loop running in between. `few` is how many runs may be out at least, however fast the handler is.

    Where workers are cancelled (`Setup.cancels`), the engine's own `CoroutineExecutor` does all that, on a simulated
    event loop.
    """

    def __init__(
        self,
        process: Process,
        mailbox: Mailbox,
        workload: Workload,
        rng: Random,
        *,
        setup: Setup,
        few: int,
        recorder: FlightRecorder | None = None,
        sink: FakeSink | None = None,
        database: SimDatabase | None = None,
    ) -> None:
        self._process = process
        self._mailbox = mailbox
        self._workload = workload
        self._rng = rng
        self._threads = setup.threads
        self._at_once = setup.threads and setup.timeout.timeout_s is None and not setup.stuck
        self._times_out = setup.timeout.timeout_s is not None
        self._sync: Call = RecordCall(self._call)
        self._async: AsyncCall = AsyncRecordCall(self._call_async)
        if setup.batch is not None:
            decode, lanes = partial(workload.decode, process.name), lane_of(setup.order)
            self._sync = BatchCall(self._call_batch, decode, lanes)
            self._async = AsyncBatchCall(self._call_batch_async, decode, lanes)
        self._few = few
        self._recorder = recorder
        self._free: list[Slot] = []  # of workers that are at no run
        self._tally = Tally()
        self._time = 0.0
        self._walks: dict[Run, _Walk] = {}
        self.grace_s = 0.0 if setup.threads else CANCEL_GRACE_S
        self.blocked_until = 0.0  # by a handler that keeps the event loop
        self._events = SimEventLoop(  # type: ignore[abstract] # sockets, processes and signals are not simulated
            process, rng, lambda: self.blocked_until
        )
        self._sending: Handle | None = None
        self._handler_sink: HandlerSink | None = None
        self._timed_out: list[tuple[int, Run]] = []  # calls that were given up
        if sink is not None and (setup.sends or setup.inbox):
            function: Callable[..., Any] = self._write_and_handle
            if setup.sends:
                function = self._send_and_handle if setup.batch is None else self._send_and_handle_list
            shape = inspect_handler(
                function, context_type=Context, batch_context_type=BatchContext, namespace={"SimTx": SimTx}
            )
            around = Around()
            if setup.inbox and database is not None:
                inbox = SimInbox(database, process, Random(rng.getrandbits(32)), self._pause)
                around = Around((), None, {}, consumer_inbox(inbox, GROUP, handler_is_async=True, where="handler"))
            handler = Handler(
                function,
                shape,
                order=setup.order,
                tombstones="dead-letter",
                group=GROUP,
                around=around,
                exactly_once=setup.once,
            )
            self._handler_sink = HandlerSink(sink, self._note_full)
            self._sending = handler.call_async(self._handler_sink).handle
        self._workers: CoroutineExecutor | None = None
        self._cancel_next: float | None = None  # together with the next hand-over: the share of the workers
        if setup.cancels:
            self._workers = CoroutineExecutor(
                self._async,
                Results(self._post),
                capacity=setup.capacity,
                events=SimEvents(self._events, process),
                clock=process.clock.monotonic,
                recorder=recorder,
            )
        self.out: list[Run] = []
        self.full_at = 0.0  # when no worker was free, or few were
        self.posted_at = 0.0
        self.returned_at = 0.0  # the same, without runs that had been given up

    def submit(self, runs: list[Run], out: int) -> None:  # noqa: ARG002 - there is always a worker free
        if self._workers is not None:
            self._hand_over(runs, self._workers)
            return
        for run in runs:
            self.out.append(run)
            self._process.later(self._rng.uniform(*HAND_OVER_S), lambda run=run: self._begin(run))  # type: ignore[misc]

    def lively(self) -> bool:
        return self._process.clock.monotonic() >= self.blocked_until

    def where(self, run: Run) -> None:  # noqa: ARG002 - nowhere in the code
        return None

    def blocker(self) -> tuple[None, list[Run]]:
        return None, []

    def give_up(self, run: Run) -> None:
        self._note_full()
        self.out.remove(run)
        attempt = self._walks[run].attempt
        if attempt is not None:
            if self._times_out:
                self._timed_out.append((attempt.call, run))
            self._process.trace.add(self._given_up(attempt))
            self._process.trace.fault("handler_timed_out" if self._times_out else "stale_handler_given_up")
        if self._workers is not None:
            self._workers.give_up(run)
        elif not self._threads:
            self._process.later(self._rng.uniform(*HAND_OVER_S), lambda: self._cancel(run))

    def _given_up(self, attempt: Attempt | BatchAttempt) -> Fact:
        now, name = self._process.clock.monotonic(), self._process.name
        if isinstance(attempt, BatchAttempt):
            return BatchTimedOut(
                now, name, attempt.batch, tuple(entry.number for entry in attempt.entries), attempt.calls
            )
        entry, event = attempt.entry, TimedOut if self._times_out else StaleGivenUp
        return event(now, name, entry.place, entry.offset, entry.number, attempt.call)

    def regain(self, run: Run) -> None:
        """There is always a worker free."""

    # -- as coroutines of the engine's own executor

    def _hand_over(self, runs: list[Run], workers: CoroutineExecutor) -> None:
        self.out.extend(runs)
        workers.submit(runs, len(self.out))
        if self._cancel_next is not None:
            share, self._cancel_next = self._cancel_next, None
            self._events.call_with_the_last(lambda: self._cancel_tasks(workers, share))

    def cancel_workers(self, share: float, *, at_hand_over: bool) -> None:
        """Something in the process cancels tasks: now, or when the next runs are handed over."""
        if at_hand_over:
            self._cancel_next = share
        elif self._workers is not None:
            workers = self._workers
            self._events.call_soon_threadsafe(lambda: self._cancel_tasks(workers, share))

    def end(self) -> None:
        """The world is over: workers that have not begun yet never will."""
        for task in self._workers._workers if self._workers is not None else ():  # noqa: SLF001
            worker = task.get_coro()
            if inspect.iscoroutine(worker) and inspect.getcoroutinestate(worker) == inspect.CORO_CREATED:
                worker.close()

    def _cancel_tasks(self, workers: CoroutineExecutor, share: float) -> None:
        for task in workers._workers:  # noqa: SLF001 - in order; those of the event loop are in none
            if self._rng.random() < share and task.cancel():
                self._process.trace.fault("worker_cancelled")

    def _begin(self, run: Run) -> None:
        if self._at_once and len(run.messages) > 1:
            self._walk(run)
            return
        walk = self._walks[run] = _Walk(run)
        self._drive(walk, 0)

    @property
    def places_taken(self) -> int:
        """By runs that are out, and by records that timed out and have sent what is not answered yet: until then they
        are not judged, and count as in flight like all that wait for their sends.
        """
        return len(self.out) + len(self.await_sends())

    def await_sends(self) -> list[Run]:
        """Runs that were given up at a record that has sent what is not answered yet."""
        sink = self._handler_sink
        self._timed_out = [one for one in self._timed_out if sink is not None and sink.unanswered[one[0]]]
        return [run for _, run in self._timed_out]

    def _note_full(self) -> None:
        if self.places_taken >= self._few:
            self.full_at = self._process.clock.monotonic()

    def _post(self, run: Run) -> None:
        self._note_full()
        self.posted_at = self._process.clock.monotonic()
        if run in self.out:
            self.out.remove(run)
            self.returned_at = self.posted_at
        if self._workers is not None:
            self._walks.pop(run, None)
        self._mailbox.post(run)

    # -- on the thread of the loop

    def walk(self, run: Run) -> None:
        """In place of `engine.workers.Inline`: no time passes, whatever the handler says that it took."""
        self._time = self._process.clock.monotonic()
        slot = self._slot()
        self._sync.walk(run, self._tally, lambda: self._time, slot)
        self._free.append(slot)
        if not self._process.alive:
            raise ProcessDied(self._process.name)
        self._process.trace.fault("walked_by_the_loop")

    # -- as a thread that is not interrupted

    def _walk(self, run: Run) -> None:
        begun = self._time = self._process.clock.monotonic()
        slot = self._slot()
        self._sync.walk(run, self._tally, lambda: self._time, slot)
        self._free.append(slot)
        self._process.later(self._time - begun, lambda: self._post(run))

    def _call(self, message: Message, run: Run) -> None:
        attempt = self._workload.begin(self._process.name, message, run)
        self._time += attempt.takes_s
        self._perhaps_die(attempt.entry)
        error = self._workload.decide(attempt)
        self._workload.end(attempt, error)
        if error is not None:
            raise error

    def _call_batch(self, selection: SelectedRecords, run: Run) -> None:
        batch = as_batch(run)
        if batch is None:
            self._call(selection.messages[0], run)
            return
        attempt = self._workload.begin_batch(self._process.name, selection.value(), batch)
        self._time += attempt.takes_s
        self._perhaps_die(*attempt.entries)
        self._workload.end_batch(attempt, self._workload.decide_batch(attempt))
        if attempt.error is not None:
            raise attempt.error

    # -- record by record

    def _drive(self, walk: _Walk, turn: int, cancel: CancelledError | None = None) -> None:
        now = self._process.clock.monotonic()
        if turn != walk.turn:
            return
        if not self._threads and now < self.blocked_until:
            self._process.later(self.blocked_until - now, lambda: self._drive(walk, turn, cancel))
            return
        if walk.coroutine is None:
            walk.coroutine = self._walking(walk.run)
        walk.turn += 1
        try:
            pause_s = walk.coroutine.send(None) if cancel is None else walk.coroutine.throw(cancel)
        except StopIteration:
            del self._walks[walk.run]
            if self._process.alive:
                self._post(walk.run)
            return
        due = self._process.clock.monotonic() + pause_s
        self._process.later(pause_s, lambda turn=walk.turn: self._go_on(walk, turn, due))  # type: ignore[misc]

    async def _walking(self, run: Run) -> None:
        clock, slot = self._process.clock.monotonic, self._slot()
        await self._async.walk(run, self._tally, clock, slot)
        self._free.append(slot)

    def _slot(self) -> Slot:
        """A worker that is free, or a new one."""
        if self._free:
            return self._free.pop()
        return NO_SLOT if self._recorder is None else self._recorder.slot()

    def _go_on(self, walk: _Walk, turn: int, due: float) -> None:
        """The handler's time has passed. After a standstill, a loop may be awake before its workers are."""
        if self._process.clock.monotonic() - due > WAKE_UP_S:
            self._process.later(self._rng.uniform(0, WAKE_UP_S), lambda: self._drive(walk, turn))
        else:
            self._drive(walk, turn)

    def _cancel(self, run: Run) -> None:
        walk = self._walks.get(run)
        if walk is not None:
            self._drive(walk, walk.turn, CancelledError())

    async def _call_async(self, message: Message, run: Run, subject: Any = None) -> None:
        """`subject`: what the handler gets, if it is not the message."""
        attempt = self._workload.begin(self._process.name, message, run)
        self._walks.setdefault(run, _Walk(run)).attempt = attempt
        try:
            await (self._handle(attempt, run) if self._sending is None else self._sending(subject or message, run))
        except ProcessDied:
            raise
        except BaseException as error:
            self._workload.end(attempt, error)
            raise
        self._workload.end(attempt, None)

    async def _send_and_handle(self, value: bytes | None, ctx: Context) -> None:  # noqa: ARG002 - a handler's shape
        """What the user would write."""
        await self._send_for([ctx], ctx._run)  # noqa: SLF001 - the only way from a context to its attempt

    async def _send_and_handle_list(self, values: list[bytes | None], ctx: BatchContext) -> None:  # noqa: ARG002 - a handler's shape
        await self._send_for(ctx, ctx._run)  # noqa: SLF001 - as above

    async def _send_for(self, contexts: Sequence[Context], run: Run) -> None:
        attempt = self._begun(run)
        for output in (FIRST_OUTPUT, LAST_OUTPUT):
            for ctx, entry, call in zip(contexts, attempt.entries, attempt.calls, strict=True):
                if output in outputs_of(entry):
                    ctx.send(OUTPUT, output, key=str(call))
            if output == FIRST_OUTPUT:
                await self._handle(attempt, run)

    async def _write_and_handle(self, value: bytes | None, tx: SimTx, ctx: Context) -> None:  # noqa: ARG002 - a handler's shape
        attempt = self._begun(ctx._run)  # noqa: SLF001 - as above
        tx.effects.append(attempt.entries[0].number)
        await self._handle(attempt, ctx._run)  # noqa: SLF001 - as above

    def _begun(self, run: Run) -> Attempt | BatchAttempt:
        attempt = self._walks[run].attempt
        if attempt is None:
            raise SimulationError("a handler is called that has not begun")
        return attempt

    async def _handle(self, attempt: Attempt | BatchAttempt, run: Run) -> None:
        if attempt.manners == "blocks" and not self._threads:
            self._block(attempt.takes_s)
        until = self._process.clock.monotonic() + attempt.takes_s
        try:
            while attempt.stuck and not (self._workload.calm and run.partition.live):
                await self._pause(STUCK_LOOK_S)
            await self._pause(attempt.takes_s)
        except CancelledError:
            if attempt.manners in ("polite", ""):
                raise
            if attempt.manners == "refuses":
                await self._stay(until)
        self._perhaps_die(*attempt.entries)
        workload = self._workload
        error = workload.decide_batch(attempt) if isinstance(attempt, BatchAttempt) else workload.decide(attempt)
        if error is not None:
            raise error

    async def _pause(self, seconds: float) -> None:
        await (_Pause(seconds) if self._workers is None else asyncio.sleep(seconds))

    async def _stay(self, until: float) -> None:
        """Whatever is cancelled meanwhile."""
        while (left_s := until - self._process.clock.monotonic()) > 0:
            with suppress(CancelledError):
                await self._pause(left_s)

    async def _call_batch_async(self, selection: SelectedRecords, run: Run) -> None:
        batch = as_batch(run)
        if batch is None:
            await self._call_async(selection.messages[0], run, selection)
            return
        attempt = self._workload.begin_batch(self._process.name, selection.value(), batch)
        self._walks[run].attempt = attempt
        try:
            await (self._handle(attempt, run) if self._sending is None else self._sending(selection, run))
        except ProcessDied:
            raise
        except BaseException as error:
            self._workload.end_batch(attempt, error)
            raise
        self._workload.end_batch(attempt, None)

    def _block(self, seconds: float) -> None:
        now = self._process.clock.monotonic()
        self.blocked_until = now + seconds
        self._process.trace.add(Blocked(now, self._process.name, seconds))
        self._process.trace.fault("event_loop_blocked")

    def _perhaps_die(self, *entries: Entry) -> None:
        """As `os._exit` in a handler: nothing of this process happens any more."""
        if any(entry.conduct == "kill" for entry in entries):
            self._process.trace.fault("killed_by_a_record")
            self._process.crash()
            raise ProcessDied(self._process.name)
