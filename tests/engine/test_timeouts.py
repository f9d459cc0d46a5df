"""Workers that are given up: what becomes of them, of their records and of their contexts."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import traceback
from typing import Any

import pytest

from keepfast.core.errors import Abandoned, Fault, HandlerTimeout, SinkError
from keepfast.core.records import Message
from keepfast.core.runs import Run
from keepfast.engine.context import Context
from keepfast.engine.workers import EventLoopThread
from keepfast.runner.hooks import Hooks
from tests.engine.bench import coroutines, handler_of, threads
from tests.support.fakes import FakeSink, acknowledge, hold
from tests.support.waiting import DEADLINE_S, wait_until

# -- threads


def test_a_thread_that_hangs_is_given_up_and_its_record_has_timed_out() -> None:
    go = threading.Event()

    def call(one: Message, _: Run) -> None:
        if one.offset() == 2:
            go.wait(DEADLINE_S)

    bench = threads(call, timeout_s=0.1)
    [run] = bench.start(records=5)
    begun = bench.clock.now
    bench.turn_until(lambda: run.current == 2, "it hangs")
    bench.pass_until(lambda: bench.back, "the record times out")
    assert 0.1 <= bench.clock.now - begun < 0.2
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
    assert bench.overdue.abandoned(bench.clock.now) == 0


def test_another_thread_takes_the_place_of_one_that_is_given_up_and_it_serves_again_when_it_is_back() -> None:
    go, seen = threading.Event(), set()

    def call(one: Message, _: Run) -> None:
        seen.add(threading.get_ident())
        if one.offset() == 0:
            go.wait(DEADLINE_S)

    bench = threads(call, capacity=1, timeout_s=0.05)
    bench.start()
    bench.pass_until(lambda: bench.back, "the record times out")
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
        event.wait(DEADLINE_S)

    def call(one: Message, _: Run) -> None:
        hangs_here(go)

    bench = threads(call, timeout_s=0.05)
    bench.start()
    bench.pass_until(lambda: bench.back, "the record times out")
    text = "".join(traceback.format_exception(bench.back[0].failure))
    go.set()
    assert "in hangs_here" in text
    assert "the handler did not end within 0.05 s" in text


def test_beyond_the_most_that_may_be_abandoned_a_record_is_held_until_a_thread_comes_back() -> None:
    gates = [threading.Event() for _ in range(3)]

    def call(one: Message, _: Run) -> None:
        gates[one.offset()].wait(DEADLINE_S)

    bench = threads(call, timeout_s=0.05, max_abandoned=2)
    bench.start(runs=3)
    bench.pass_until(lambda: bench.overdue.max_abandoned_reached, "the third is held")
    assert len(bench.back) == 2
    assert (bench.overdue.abandoned(bench.clock.now), bench.overdue.stuck) == (2, True)
    bench.turn_for(0.2)
    assert len(bench.back) == 2
    gates[0].set()
    bench.pass_until(lambda: len(bench.back) == 3, "there is room, so the third is given up")
    assert not bench.overdue.max_abandoned_reached
    assert isinstance(bench.back[2].failure, HandlerTimeout)
    for gate in gates:
        gate.set()


def test_a_held_record_that_ends_after_all_counts() -> None:
    go = threading.Event()

    def call(one: Message, _: Run) -> None:
        go.wait(DEADLINE_S)

    bench = threads(call, timeout_s=0.05, on_timeout="hold")
    [run] = bench.start(records=2)
    bench.pass_until(lambda: bench.overdue.held, "it is overdue")
    bench.turn_for(0.15)
    assert bench.back == []
    assert (bench.overdue.stuck, bench.overdue.max_abandoned_reached, run.abandoned) == (True, False, False)
    go.set()
    bench.turn_until(lambda: bench.back, "it comes back")
    assert bench.back == [run]
    assert (run.done, run.failure) == (1, None), "nothing behind it was started"
    bench.pass_until(lambda: not bench.overdue.stuck, "all is well again")


def test_many_quick_records_in_one_run_do_not_time_out_together() -> None:
    def take_a_while(*_: object) -> None:
        bench.clock.now += 0.02
        seen = bench.turns
        wait_until(lambda: bench.turns > seen + 1, "the loop looks")

    bench = threads(take_a_while, timeout_s=0.1)
    [run] = bench.start(records=10)
    bench.turn_until(lambda: bench.back, "it comes back, called back or done")
    assert bench.back == [run]
    assert run.failure is None


def test_unobserved_time_does_not_count() -> None:
    go = threading.Event()

    def call(one: Message, _: Run) -> None:
        go.wait(DEADLINE_S)

    bench = threads(call, timeout_s=0.3)
    bench.start()
    bench.turn_for(0.1)
    bench.turn(pass_s=0.4)  # as if the process had been stopped
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
            go.wait(DEADLINE_S)

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
    bench.pass_until(lambda: len(bench.back) == 2, "one that hangs in its turn times out")
    assert isinstance(bench.back[1].failure, HandlerTimeout)
    go.set()


def test_the_context_of_a_record_that_timed_out_refuses_and_nothing_is_sent() -> None:
    sink, go = FakeSink(hold), threading.Event()
    raised: list[str] = []

    def handle(value: bytes, ctx: Context) -> None:
        assert not ctx.abandoned
        go.wait(DEADLINE_S)
        assert ctx.abandoned
        try:
            ctx.send("out", b"too late")
        except Abandoned as error:
            raised.append(str(error))
            raise

    handler = handler_of(handle)
    bench = threads(handler.call(sink), timeout_s=0.05)
    [run] = bench.start()
    bench.pass_until(lambda: bench.back, "the record times out")
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
        go.wait(DEADLINE_S)

    async def handle_async(value: bytes, ctx: Context) -> None:
        ctx.send("out", b"1")
        await asyncio.sleep(DEADLINE_S)

    function = handle_async if is_async else handle
    handler = handler_of(function)
    if is_async:
        bench = coroutines(events, handler.call_async(sink), timeout_s=0.05)
    else:
        bench = threads(handler.call(sink), timeout_s=0.05)
    [run] = bench.start()
    bench.pass_until(lambda: run.abandoned, "the record times out")
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
                await asyncio.sleep(DEADLINE_S)
            except asyncio.CancelledError:
                cancelled.append(one.offset())
                raise
        async with asyncio.timeout(5):  # which a cancellation that nobody took back would upset
            await asyncio.sleep(0)

    bench = coroutines(events, call, capacity=1)
    [run] = bench.start(records=3)
    bench.pass_until(lambda: bench.late, "the record times out and its worker is back")
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
            await asyncio.sleep(DEADLINE_S)

    bench = coroutines(events, call)
    [run] = bench.start(records=2)
    bench.pass_until(lambda: bench.late, "it comes back")
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
    bench.pass_until(lambda: bench.back, "it times out")
    assert bench.overdue.abandoned(bench.clock.now) == 0, "it may take a moment to end"
    bench.start()
    bench.turn_until(lambda: len(bench.back) == 2, "another worker does the next record")
    bench.pass_until(lambda: bench.overdue.abandoned(bench.clock.now) == 1, "it had its moment")
    events.start().call_soon_threadsafe(go.set)
    bench.turn_until(lambda: bench.late, "it ends after all")
    assert bench.overdue.abandoned(bench.clock.now) == 0


def test_who_blocks_the_event_loop_does_not_make_others_time_out(events: EventLoopThread) -> None:
    begun, go = threading.Event(), threading.Event()

    async def call(one: Message, _: Run) -> None:
        if one.offset() == 0:
            await asyncio.sleep(0.01)
        else:
            begun.set()
            go.wait(DEADLINE_S)

    bench = coroutines(events, call, timeout_s=0.25)
    bench.start(runs=2)
    assert begun.wait(DEADLINE_S)
    bench.pass_until(lambda: bench.overdue.stuck, "it is noticed", blocked=True)
    assert bench.back == []
    go.set()
    bench.turn_until(lambda: len(bench.back) == 2, "both come back")
    assert [one.failure for one in bench.back] == [None, None]
    bench.pass_until(lambda: not bench.overdue.stuck, "and all is well again")


def test_where_a_coroutine_hangs_is_reported_too(events: EventLoopThread) -> None:
    async def hangs_here() -> None:
        await asyncio.sleep(DEADLINE_S)

    async def call(one: Message, _: Run) -> None:
        await hangs_here()

    bench = coroutines(events, call)
    bench.start()
    bench.pass_until(lambda: bench.back, "it times out")
    assert "in hangs_here" in "".join(traceback.format_exception(bench.back[0].failure))
