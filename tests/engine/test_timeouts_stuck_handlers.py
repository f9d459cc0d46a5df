"""Handlers that hang and event loops that are blocked, where nothing times out: they are reported with their stack."""

from __future__ import annotations

import asyncio
import threading

import pytest

from keepfast.core.batches import lane_of
from keepfast.core.records import Message
from keepfast.core.runs import Run
from keepfast.engine.calls import WALKS, AsyncBatchCall, BatchCall
from keepfast.engine.stacks import locations
from keepfast.engine.workers import EventLoopThread
from tests.engine.bench import coroutines, threads
from tests.support.log_capture import LogCapture
from tests.support.waiting import DEADLINE_S, wait_until

STUCK_S = 0.2


def test_a_thread_that_hangs_is_reported_with_its_stack_at_doubling_intervals(log: LogCapture) -> None:
    go = threading.Event()

    def hangs_here(secret: str) -> None:
        go.wait(DEADLINE_S)

    def call(one: Message, _: Run) -> None:
        if one.offset() == 2:
            hangs_here("4111111111111111")

    bench = threads(call, timeout_s=None, stuck_after_s=STUCK_S)
    bench.start(records=4)
    bench.pass_until(lambda: len(log.fields("handler_stuck")) == 3, "it is reported three times")
    reports = log.fields("handler_stuck")
    assert [round(report["for_s"] / STUCK_S) for report in reports] == [1, 2, 4]
    assert (reports[0]["topic"], reports[0]["partition"], reports[0]["offset"]) == ("orders", 0, 2)
    stack = reports[0]["stack"]
    assert any(place.endswith(" hangs_here") and "test_timeouts_stuck_handlers.py:" in place for place in stack)
    assert not any(" walk" in place or "bootstrap" in place for place in stack), "what is ours is left out"
    assert "4111" not in str(stack)
    [shown] = bench.overdue.reports.handlers
    assert (shown.offset, shown.stack) == (2, tuple(stack))
    assert bench.back == [], "nothing is done about it"
    assert not bench.overdue.not_live
    go.set()
    bench.turn_until(lambda: bench.back, "it ends")
    bench.pass_until(lambda: log.fields("stuck_handler_ended"), "which is logged")
    assert (bench.overdue.reports.handlers, bench.overdue.reports.count) == ((), 0)
    assert bench.back[0].failure is None


def test_a_batch_that_hangs_is_reported_as_one(log: LogCapture) -> None:
    go = threading.Event()

    def call(*_: object) -> None:
        go.wait(DEADLINE_S)

    bench = threads(BatchCall(call, lambda one: one, lane_of("none")), timeout_s=None, stuck_after_s=STUCK_S)
    run = bench.start_batch(3)
    bench.pass_until(lambda: log.fields("handler_stuck"), "it is reported")
    [report] = log.fields("handler_stuck")
    assert (report["records"], report["offset"]) == (3, 0)
    go.set()
    bench.turn_until(lambda: bench.back, "it ends")
    assert bench.back == [run]


def test_many_quick_records_in_one_run_are_not_stuck_together(log: LogCapture) -> None:
    def take_a_while(*_: object) -> None:
        bench.clock.now += 0.02
        seen = bench.turns
        wait_until(lambda: bench.turns > seen + 1, "the loop looks")

    bench = threads(take_a_while, timeout_s=None, stuck_after_s=STUCK_S)
    bench.start(records=20)
    bench.turn_until(lambda: bench.back, "it comes back, called back or done")
    assert log.fields("handler_stuck") == []


def test_with_a_time_limit_the_larger_of_both_counts(log: LogCapture) -> None:
    go = threading.Event()
    bench = threads(lambda _, __: go.wait(DEADLINE_S), timeout_s=0.4, on_timeout="hold", stuck_after_s=0.1)
    bench.start()
    bench.pass_until(lambda: log.fields("handler_stuck"), "it is reported")
    assert log.fields("handler_overdue"), "but not before its time is over"
    assert log.fields("handler_stuck")[0]["for_s"] >= 0.4
    go.set()
    bench.turn_until(lambda: bench.back, "it ends")


def test_nothing_is_looked_at_where_it_is_switched_off(log: LogCapture) -> None:
    go = threading.Event()
    bench = threads(lambda _, __: go.wait(DEADLINE_S), timeout_s=None, stuck_after_s=None)
    bench.start()
    bench.turn_for(0.3)
    assert log.fields("handler_stuck") == []
    assert bench.overdue.reports.count == 0
    go.set()
    bench.turn_until(lambda: bench.back, "it ends")


def test_time_in_which_the_process_stood_still_does_not_count(log: LogCapture) -> None:
    go = threading.Event()
    bench = threads(lambda _, __: go.wait(DEADLINE_S), timeout_s=None, stuck_after_s=2.0)
    bench.start()
    bench.turn_for(0.3)
    bench.overdue._looked_at -= 3600  # as if the process had been stopped for an hour
    bench.turn_for(0.3)
    assert log.fields("handler_stuck") == []
    go.set()
    bench.turn_until(lambda: bench.back, "it ends")


def test_a_coroutine_that_awaits_for_ever_is_reported_with_what_it_awaits(
    events: EventLoopThread, log: LogCapture
) -> None:
    gone = asyncio.Event()

    async def waits_here() -> None:
        await gone.wait()

    async def call(one: Message, _: Run) -> None:
        await waits_here()

    bench = coroutines(events, call, timeout_s=None, stuck_after_s=STUCK_S)
    bench.start(runs=2)
    bench.pass_until(lambda: len(log.fields("handler_stuck")) >= 2, "both are reported")
    for report in log.fields("handler_stuck")[:2]:
        names = [place.rpartition(" ")[2] for place in report["stack"]]
        assert names[:3] == ["call", "waits_here", "wait"]
    assert not bench.overdue.blocked
    events.start().call_soon_threadsafe(gone.set)
    bench.turn_until(lambda: len(bench.back) == 2, "they end")


def test_the_record_that_blocks_the_event_loop_is_found_on_its_stack_and_no_other_is(
    events: EventLoopThread, log: LogCapture
) -> None:
    begun, go = threading.Event(), threading.Event()

    async def call(one: Message, _: Run) -> None:
        if one.offset() == 0:
            await asyncio.sleep(0.01)
        else:
            blocks_here()

    def blocks_here() -> None:
        begun.set()
        go.wait(DEADLINE_S)

    bench = coroutines(events, call, timeout_s=None, stuck_after_s=STUCK_S)
    [_, culprit] = bench.start(runs=2)
    assert begun.wait(DEADLINE_S)
    bench.pass_until(lambda: len(log.fields("event_loop_blocked")) == 2, "it is reported twice", blocked=True)
    report = log.fields("event_loop_blocked")[0]
    assert any(place.endswith(" blocks_here") for place in report["stack"])
    assert report["records"] == [{"topic": "orders", "partition": 0, "offset": 1}]
    assert "await asyncio.to_thread(…) around that call, or make the handler a plain def" in report["hint"]
    assert log.fields("handler_stuck") == [], "the other one is innocent"
    assert bench.overdue.blocked
    assert bench.overdue.not_live
    assert bench.overdue.culprits() == [culprit]
    assert culprit.messages[culprit.current].offset() == 1
    go.set()
    bench.turn_until(lambda: len(bench.back) == 2, "both come back")
    bench.pass_until(lambda: not bench.overdue.not_live, "and all is well again")


def test_a_task_of_the_handler_that_blocks_the_event_loop_names_no_record(
    events: EventLoopThread, log: LogCapture
) -> None:
    begun, go = threading.Event(), threading.Event()

    async def blocks() -> None:
        begun.set()
        go.wait(DEADLINE_S)

    async def call(one: Message, _: Run) -> None:
        await asyncio.get_running_loop().create_task(blocks())

    bench = coroutines(events, call, timeout_s=None, stuck_after_s=STUCK_S)
    bench.start()
    assert begun.wait(DEADLINE_S)
    bench.pass_until(lambda: log.fields("event_loop_blocked"), "it is reported", blocked=True)
    assert any(place.endswith(" blocks") for place in log.fields("event_loop_blocked")[0]["stack"])
    assert (bench.overdue.not_live, bench.overdue.culprits()) == (True, [])
    go.set()
    bench.turn_until(lambda: bench.back, "it ends")


def test_the_records_of_a_batch_that_blocks_the_event_loop_are_found(events: EventLoopThread) -> None:
    begun, go = threading.Event(), threading.Event()

    async def call(*_: object) -> None:
        begun.set()
        go.wait(DEADLINE_S)

    batch = AsyncBatchCall(call, lambda one: one, lane_of("none"))
    bench = coroutines(events, batch, timeout_s=None, stuck_after_s=STUCK_S)
    run = bench.start_batch(3)
    assert begun.wait(DEADLINE_S)
    bench.pass_until(lambda: bench.overdue.not_live, "it is noticed", blocked=True)
    assert bench.overdue.culprits() == [run]
    go.set()
    bench.turn_until(lambda: bench.back, "it ends")


def test_too_many_that_may_not_be_abandoned_are_the_culprits_themselves() -> None:
    go = threading.Event()
    bench = threads(lambda _, __: go.wait(DEADLINE_S), timeout_s=0.05, max_abandoned=1)
    [_, second] = bench.start(runs=2)
    bench.pass_until(lambda: bench.overdue.max_abandoned_reached, "the second is held")
    assert bench.overdue.not_live
    assert bench.overdue.culprits() == [second]
    go.set()
    bench.turn_until(lambda: bench.back, "they end")


def test_locations_are_places_in_the_code_and_nothing_else() -> None:
    def inner(payload: str) -> None:
        raise ValueError(payload)

    with pytest.raises(ValueError, match="secret") as caught:
        inner("secret")
    found = locations(caught.value.__traceback__)
    assert [place.rpartition(" ")[2] for place in found] == [
        "test_locations_are_places_in_the_code_and_nothing_else",
        "inner",
    ]
    assert "secret" not in str(found)
    assert locations(caught.value.__traceback__, below=(inner.__code__,)) == []
    assert locations(None, below=WALKS) == []
