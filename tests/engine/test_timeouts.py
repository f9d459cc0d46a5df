"""Workers that are given up: what becomes of them, of their records and of their contexts."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from keepfast.core.errors import Abandoned, Fault, HandlerTimeout, SinkError
from keepfast.core.lanes import Lanes, lanes_for
from keepfast.core.ports import Executor
from keepfast.core.records import Message, TopicPartition
from keepfast.core.runs import Batch, InFlight, Partition, Run
from keepfast.core.sizing import Sizer
from keepfast.core.timeouts import TimeoutPolicy
from keepfast.decode.signature import inspect_handler
from keepfast.engine.calls import AsyncCall, AsyncRecordCall, Call, Handle, Handler, RecordCall
from keepfast.engine.commits import Committer
from keepfast.engine.context import Context
from keepfast.engine.events import Events
from keepfast.engine.mailbox import QueueMailbox
from keepfast.engine.plan import Plan
from keepfast.engine.timeouts import Overdue
from keepfast.engine.workers import CoroutineExecutor, EventLoopThread, ThreadExecutor
from keepfast.runner.hooks import Hooks
from keepfast.telemetry.event_log import EventLog
from tests.support.fakes import FakeSink, acknowledge, hold
from tests.support.messages import message
from tests.support.waiting import wait_until

WAIT_S = 10.0


class Bench:
    """A loop reduced to what handlers that take too long need: lanes, workers, a mailbox and the watch."""

    def __init__(self, executor: Executor, mailbox: QueueMailbox, policy: TimeoutPolicy) -> None:
        self.lanes: Lanes = lanes_for("partition")
        self.executor = executor
        self.mailbox = mailbox
        self.back: list[Run] = []
        plan = Plan(name="c", group="g", topics=("t",), timeout=policy)
        events = Events(plan.name, plan.group, (EventLog(),))
        self.out = InFlight()
        self.touched: list[Partition] = []
        self.overdue = Overdue(
            plan,
            executor,
            self.lanes,
            cast(Committer, SimpleNamespace(mark_dirty=self.touched.append)),
            in_flight=self.out,
            mailbox=mailbox,
            sizer=Sizer(capacity=100, consecutive=True, one_by_one=True, may_inline=False),
            returned=lambda run, _: self.back.append(run),
            events=events,
        )
        self.late: list[Run] = []
        self._offset = 0

    def start(self, records: int = 1, runs: int = 1) -> list[Run]:
        made = []
        for _ in range(runs):
            partition = Partition(TopicPartition("t", self._offset), epoch=1, start=0)  # a lane of its own
            partition.feed([message(offset=self._offset + one) for one in range(records)])
            self._offset += records
            self.lanes.ready(partition)
            [run] = self.lanes.take(1, records)
            made.append(run)
        self.out.start(made, time.monotonic())
        self.executor.submit(made, len(self.out))
        return made

    def start_batch(self, records: int) -> Batch:
        partition = Partition(TopicPartition("t", 0), epoch=1, start=0)
        partition.feed([message(offset=offset) for offset in range(records)])
        self.lanes.ready(partition)
        batch = Batch(self.lanes.take(1, records))
        batch.muster(time.monotonic())
        self.out.start([batch], time.monotonic())
        self.executor.submit([batch], 1)
        return batch

    def turn(self) -> None:
        for run in self.mailbox.collect(0.005):
            if run.abandoned:
                self.overdue.came_back(run, time.monotonic())
                self.late.append(run)
            else:
                self.out.back(run)
                self.back.append(run)
        self.overdue.step(time.monotonic())

    def turn_until(self, condition: Callable[[], object], what: str) -> None:
        wait_until(condition, what, between=self.turn)

    def turn_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.turn()


def handler_of(function: Any) -> Handler:
    shape = inspect_handler(function, context_type=Context)
    return Handler(function, shape, order="partition", tombstones="dead-letter", group="g")


def threads(
    handle: Handle | Call,
    *,
    capacity: int = 4,
    timeout_s: float | None = 0.1,
    **policy: Any,
) -> Bench:
    mailbox = QueueMailbox()
    call = RecordCall(handle) if callable(handle) else handle
    executor = ThreadExecutor(call, mailbox, capacity=capacity, name="test")
    return Bench(executor, mailbox, TimeoutPolicy(timeout_s=timeout_s, **policy))


@pytest.fixture
def events() -> Iterator[EventLoopThread]:
    made = EventLoopThread(asyncio.new_event_loop)
    yield made
    made.stop(2.0)


def coroutines(
    events: EventLoopThread,
    handle: Handle | AsyncCall,
    *,
    capacity: int = 4,
    timeout_s: float | None = 0.1,
    **more: Any,
) -> Bench:
    mailbox = QueueMailbox()
    call = AsyncRecordCall(handle) if callable(handle) else handle
    executor = CoroutineExecutor(call, mailbox, capacity=capacity, events=events)
    return Bench(executor, mailbox, TimeoutPolicy(timeout_s=timeout_s, **more))


# -- threads


@pytest.mark.timing
def test_a_thread_that_hangs_is_given_up_and_its_record_has_timed_out() -> None:
    go = threading.Event()

    def call(one: Message, _: Run) -> None:
        if one.offset() == 2:
            go.wait(WAIT_S)

    bench = threads(call, timeout_s=0.1)
    [run] = bench.start(records=5)
    begun = time.monotonic()
    bench.turn_until(lambda: bench.back, "the record times out")
    assert 0.1 <= time.monotonic() - begun < 2
    [other] = bench.back
    assert other is not run
    assert isinstance(other.failure, HandlerTimeout)
    assert (other.done, other.messages[other.done].offset()) == (2, 2), "what it did before counts"
    assert (bench.touched, run.partition.ledger.watermark()) == ([run.partition], 2), "and may be committed"
    assert run.abandoned
    assert not other.abandoned
    assert run not in bench.out
    assert run not in run.partition.running
    go.set()
    bench.turn_until(lambda: bench.late, "the thread comes back")
    assert bench.back == [other], "what it says then is dropped"
    assert run.done == 3
    assert other.done == 2
    assert bench.overdue.abandoned(time.monotonic()) == 0


def test_another_thread_takes_the_place_of_one_that_is_given_up_and_it_serves_again_when_it_is_back() -> None:
    go, seen = threading.Event(), set()

    def call(one: Message, _: Run) -> None:
        seen.add(threading.get_ident())
        if one.offset() == 0:
            go.wait(WAIT_S)

    bench = threads(call, capacity=1, timeout_s=0.05)
    bench.start()
    bench.turn_until(lambda: bench.back, "the record times out")
    bench.start()
    bench.turn_until(lambda: len(bench.back) == 2, "the next record is done")
    assert bench.back[1].done == 1
    assert len(seen) == 2
    go.set()
    bench.turn_until(lambda: bench.late, "the thread comes back")
    for _ in range(20):
        bench.start()
        bench.turn_until(lambda: not bench.out, "one more is done")
    assert len(seen) == 2, "no thread is started while enough are free"


def test_the_letter_can_say_where_the_handler_hangs() -> None:
    go = threading.Event()

    def hangs_here(event: threading.Event) -> None:
        event.wait(WAIT_S)

    def call(one: Message, _: Run) -> None:
        hangs_here(go)

    bench = threads(call, timeout_s=0.05)
    bench.start()
    bench.turn_until(lambda: bench.back, "the record times out")
    text = "".join(traceback.format_exception(bench.back[0].failure))
    go.set()
    assert "in hangs_here" in text
    assert "the handler did not end within 0.05 s" in text


def test_beyond_the_most_that_may_be_abandoned_a_record_is_held_until_a_thread_comes_back() -> None:
    gates = [threading.Event() for _ in range(3)]

    def call(one: Message, _: Run) -> None:
        gates[one.offset()].wait(WAIT_S)

    bench = threads(call, timeout_s=0.05, max_abandoned=2)
    bench.start(runs=3)
    bench.turn_until(lambda: bench.overdue.choked, "the third is held")
    assert len(bench.back) == 2
    assert (bench.overdue.abandoned(time.monotonic()), bench.overdue.stuck) == (2, True)
    bench.turn_for(0.2)
    assert len(bench.back) == 2
    gates[0].set()
    bench.turn_until(lambda: len(bench.back) == 3, "there is room, so the third is given up")
    assert not bench.overdue.choked
    assert isinstance(bench.back[2].failure, HandlerTimeout)
    for gate in gates:
        gate.set()


def test_a_held_record_that_ends_after_all_counts() -> None:
    go = threading.Event()

    def call(one: Message, _: Run) -> None:
        go.wait(WAIT_S)

    bench = threads(call, timeout_s=0.05, on_timeout="hold")
    [run] = bench.start(records=2)
    bench.turn_until(lambda: bench.overdue.held, "it is overdue")
    bench.turn_for(0.15)
    assert bench.back == []
    assert (bench.overdue.stuck, bench.overdue.choked, run.abandoned) == (True, False, False)
    go.set()
    bench.turn_until(lambda: bench.back, "it comes back")
    assert bench.back == [run]
    assert (run.done, run.failure) == (1, None), "nothing behind it was started"
    bench.turn_until(lambda: not bench.overdue.stuck, "all is well again")


def test_many_quick_records_in_one_run_do_not_time_out_together() -> None:
    bench = threads(lambda _, __: time.sleep(0.02), timeout_s=0.1)
    [run] = bench.start(records=10)
    bench.turn_until(lambda: bench.back, "it comes back, called back or done")
    assert bench.back == [run]
    assert run.failure is None


def test_time_in_which_nobody_looked_does_not_count() -> None:
    go = threading.Event()

    def call(one: Message, _: Run) -> None:
        go.wait(WAIT_S)

    bench = threads(call, timeout_s=0.3)
    bench.start()
    bench.turn_for(0.1)
    time.sleep(0.4)  # as if the process had been stopped
    bench.turn()
    bench.turn()
    assert bench.back == []
    go.set()
    bench.turn_until(lambda: bench.back, "it comes back")
    assert bench.back[0].failure is None


def test_waiting_for_what_was_sent_is_not_the_handlers_time() -> None:
    sink = FakeSink(hold)

    def handle(value: bytes, ctx: Context) -> None:
        ctx.send("out", b"1")

    handler = handler_of(handle)
    bench = threads(handler.call(sink), timeout_s=0.05)
    [run] = bench.start()
    wait_until(lambda: sink.sent, "it is sent")
    bench.turn_for(0.2)
    assert bench.back == []
    sink.answer()
    bench.turn_until(lambda: bench.back, "the broker has answered")
    assert (run.done, run.failure) == (1, None)


def test_waiting_for_ones_turn_behind_a_slow_publisher_is_not_the_handlers_time() -> None:
    go, handled = threading.Event(), []

    def process(known: object) -> None:
        handled.append(known)
        if len(handled) > 1:
            go.wait(WAIT_S)

    made = Hooks(
        lambda *_: {},
        process_message=process,
        message_factory=lambda data: data,
        message_context=None,
        rate_limit_min_delay_ms=None,
        logger=None,
        one_at_a_time=True,
    )
    bench = threads(made.call, timeout_s=0.1)
    with made.turn.of(None):  # as the thread does that calls dlq_publisher
        bench.start()
        bench.turn_for(0.4)
        assert (bench.back, handled) == ([], []), "its time has not begun"
    bench.turn_until(lambda: bench.back, "it is handled")
    assert (bench.back[0].failure, len(handled)) == (None, 1)
    bench.start()
    bench.turn_until(lambda: len(bench.back) == 2, "one that hangs in its turn times out")
    assert isinstance(bench.back[1].failure, HandlerTimeout)
    go.set()


def test_the_context_of_a_record_that_timed_out_refuses_and_nothing_is_sent() -> None:
    sink, go = FakeSink(hold), threading.Event()
    raised: list[str] = []

    def handle(value: bytes, ctx: Context) -> None:
        assert not ctx.abandoned
        go.wait(WAIT_S)
        assert ctx.abandoned
        try:
            ctx.send("out", b"too late")
        except Abandoned as error:
            raised.append(str(error))
            raise

    handler = handler_of(handle)
    bench = threads(handler.call(sink), timeout_s=0.05)
    [run] = bench.start()
    bench.turn_until(lambda: bench.back, "the record times out")
    go.set()
    bench.turn_until(lambda: bench.late, "the thread comes back")
    assert sink.sent == []
    assert len(raised) == 1
    assert "has timed out" in raised[0]
    assert isinstance(run.failure, Abandoned)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_record_that_timed_out_is_not_over_before_what_it_sent_is_answered(
    events: EventLoopThread, fails: bool, is_async: bool
) -> None:
    sink, go = FakeSink(hold), threading.Event()

    def handle(value: bytes, ctx: Context) -> None:
        ctx.send("out", b"1")
        go.wait(WAIT_S)

    async def handle_async(value: bytes, ctx: Context) -> None:
        ctx.send("out", b"1")
        await asyncio.sleep(WAIT_S)

    function = handle_async if is_async else handle
    handler = handler_of(function)
    if is_async:
        bench = coroutines(events, handler.call_async(sink), timeout_s=0.05)
    else:
        bench = threads(handler.call(sink), timeout_s=0.05)
    [run] = bench.start()
    bench.turn_until(lambda: run.abandoned, "the record times out")
    go.set()
    bench.turn_until(lambda: bench.late, "its worker comes back")
    bench.turn_for(0.2)
    assert bench.back == []
    [other] = bench.out
    assert list(run.partition.running) == [other], "a revoke waits for it, too"
    failure = SinkError("no", fault=Fault.RETRY)
    sink.answer(lambda one: failure if fails else acknowledge(one))
    bench.turn_until(lambda: bench.back, "the broker has answered")
    assert bench.back == [other]
    timeout = failure.raised if fails else other.failure
    assert isinstance(timeout, HandlerTimeout)
    assert (other.failure is failure) is fails


# -- coroutines


def test_a_coroutine_is_cancelled_at_its_record_alone_and_its_worker_lives_on(events: EventLoopThread) -> None:
    cancelled: list[int] = []
    workers: list[Any] = []

    async def call(one: Message, _: Run) -> None:
        workers.append(asyncio.current_task())
        if one.offset() == 1:
            try:
                await asyncio.sleep(WAIT_S)
            except asyncio.CancelledError:
                cancelled.append(one.offset())
                raise
        async with asyncio.timeout(5):  # which a cancellation that nobody took back would upset
            await asyncio.sleep(0)

    bench = coroutines(events, call, capacity=1)
    [run] = bench.start(records=3)
    bench.turn_until(lambda: bench.late, "the record times out and its worker is back")
    assert cancelled == [1]
    assert (bench.back[0].done, type(bench.back[0].failure)) == (1, HandlerTimeout)
    bench.start()
    bench.turn_until(lambda: len(bench.back) == 2, "the next record is done")
    assert (bench.back[1].done, bench.back[1].failure) == (1, None)
    assert len(set(workers)) == 1
    assert workers[-1].cancelling() == 0
    assert run.abandoned


def test_a_coroutine_that_takes_its_cancellation_for_a_hint_has_timed_out_all_the_same(events: EventLoopThread) -> None:
    async def call(one: Message, _: Run) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(WAIT_S)

    bench = coroutines(events, call)
    [run] = bench.start(records=2)
    bench.turn_until(lambda: bench.late, "it comes back")
    assert [type(one.failure) for one in bench.back] == [HandlerTimeout]
    assert (run.done, run.failure) == (1, None), "it returned normally, and nothing behind it was started"


def test_a_coroutine_that_refuses_to_end_counts_as_abandoned_and_does_not_keep_others_from_working(
    events: EventLoopThread,
) -> None:
    go = asyncio.Event()

    async def call(one: Message, _: Run) -> None:
        while one.offset() == 0 and not go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go.wait()

    bench = coroutines(events, call, capacity=1, max_abandoned=1)
    bench.start()
    bench.turn_until(lambda: bench.back, "it times out")
    assert bench.overdue.abandoned(time.monotonic()) == 0, "it may take a moment to end"
    bench.start()
    bench.turn_until(lambda: len(bench.back) == 2, "another worker does the next record")
    bench.turn_until(lambda: bench.overdue.abandoned(time.monotonic()) == 1, "it had its moment")
    events.start().call_soon_threadsafe(go.set)
    bench.turn_until(lambda: bench.late, "it ends after all")
    assert bench.overdue.abandoned(time.monotonic()) == 0


def test_who_blocks_the_event_loop_does_not_make_others_time_out(events: EventLoopThread) -> None:
    begun = threading.Event()

    async def call(one: Message, _: Run) -> None:
        if one.offset() == 0:
            await asyncio.sleep(0.15)
        else:
            begun.set()
            time.sleep(0.6)

    bench = coroutines(events, call, timeout_s=0.25)
    bench.start(runs=2)
    assert begun.wait(WAIT_S)
    bench.turn_until(lambda: bench.overdue.stuck, "it is noticed")
    assert bench.back == []
    bench.turn_until(lambda: len(bench.back) == 2, "both come back")
    assert [one.failure for one in bench.back] == [None, None]
    bench.turn_until(lambda: not bench.overdue.stuck, "and all is well again")


def test_where_a_coroutine_hangs_can_be_told_too(events: EventLoopThread) -> None:
    async def hangs_here() -> None:
        await asyncio.sleep(WAIT_S)

    async def call(one: Message, _: Run) -> None:
        await hangs_here()

    bench = coroutines(events, call)
    bench.start()
    bench.turn_until(lambda: bench.back, "it times out")
    assert "in hangs_here" in "".join(traceback.format_exception(bench.back[0].failure))
