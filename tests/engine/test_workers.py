"""Workers run handlers elsewhere and hand every run back, whatever the handler does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from keepfast.core.records import Message, TopicPartition
from keepfast.core.runs import Partition, Run
from keepfast.engine.calls import AsyncRecordCall, RecordCall
from keepfast.engine.mailbox import HaltApp, QueueMailbox
from keepfast.engine.workers import CoroutineExecutor, EventLoopThread, GivenEventLoop, ThreadExecutor
from tests.support.messages import message
from tests.support.waiting import DEADLINE_S, wait_until

PARTITION = Partition(TopicPartition("t", 0), epoch=1, start=0)


def run_of(count: int, first: int = 0) -> Run:
    messages: list[Message] = [message(offset=first + number) for number in range(count)]
    return Run(PARTITION, messages, range(first, first + count), {})


def collect(mailbox: QueueMailbox, count: int) -> list[Any]:
    found: list[Any] = []
    wait_until(
        lambda: len(found) >= count, f"{count} runs come back", between=lambda: found.extend(mailbox.collect(0.05))
    )
    return found


def thread_executor(call: Callable[[Message, Run], object], capacity: int = 4) -> tuple[ThreadExecutor, QueueMailbox]:
    mailbox = QueueMailbox()
    return ThreadExecutor(RecordCall(call), mailbox, capacity=capacity, name="test"), mailbox


def test_a_thread_walks_its_run_in_order_and_counts_every_success() -> None:
    seen: list[int] = []
    executor, mailbox = thread_executor(lambda one, _: seen.append(one.offset()))
    executor.submit([run_of(5)], 1)
    [run] = collect(mailbox, 1)
    assert (run.done, run.failure, seen) == (5, None, [0, 1, 2, 3, 4])
    assert sum(sum(tally.counts) for own in executor.tallies for tally in own.values()) == 5


def test_a_run_stops_at_the_first_failure() -> None:
    def call(one: Message, _: Run) -> None:
        if one.offset() == 2:
            raise ValueError("two")

    executor, mailbox = thread_executor(call)
    executor.submit([run_of(5)], 1)
    [run] = collect(mailbox, 1)
    assert run.done == 2
    assert isinstance(run.failure, ValueError)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
def test_a_worker_survives_whatever_a_handler_raises(error: BaseException) -> None:
    def call(one: Message, _: Run) -> None:
        if one.offset() == 0:
            raise error

    executor, mailbox = thread_executor(call, capacity=1)
    executor.submit([run_of(1), run_of(1, first=1)], 2)
    first, second = collect(mailbox, 2)
    assert first.failure is error
    assert (second.done, second.failure) == (1, None)


def test_the_transaction_of_a_run_that_is_given_up_is_aborted_on_another_thread() -> None:
    go, begun, aborted_by = threading.Event(), threading.Event(), list[threading.Thread]()

    def call(_: Message, run: Run) -> None:
        run.abort = lambda: aborted_by.append(threading.current_thread())
        begun.set()
        assert go.wait(DEADLINE_S)

    executor, mailbox = thread_executor(call, capacity=1)
    run = run_of(1)
    executor.submit([run], 1)
    assert begun.wait(DEADLINE_S)
    executor.give_up(run)
    wait_until(lambda: aborted_by, "it is aborted")
    assert aborted_by[0] is not threading.current_thread(), "which may take long"
    go.set()
    collect(mailbox, 1)


def test_a_run_that_is_asked_to_stop_ends_after_its_current_record() -> None:
    begun, go = threading.Event(), threading.Event()

    def call(one: Message, _: Run) -> None:
        begun.set()
        go.wait(DEADLINE_S)

    executor, mailbox = thread_executor(call)
    run = run_of(5)
    executor.submit([run], 1)
    assert begun.wait(DEADLINE_S)
    run.stop = True
    go.set()
    assert collect(mailbox, 1) == [run]
    assert (run.done, run.failure) == (1, None)


def test_no_more_threads_are_started_than_runs_are_out() -> None:
    executor, mailbox = thread_executor(lambda _, __: None, capacity=32)
    for number in range(20):
        executor.submit([run_of(1, first=number)], 1)
        collect(mailbox, 1)
    assert len(executor.tallies) == 1


def test_coroutines_run_side_by_side_and_come_back_in_bundles() -> None:
    inside, most = 0, 0

    async def call(one: Message, _: Run) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.01)
        inside -= 1

    events, mailbox = EventLoopThread(asyncio.new_event_loop), QueueMailbox()
    executor = CoroutineExecutor(AsyncRecordCall(call), mailbox, capacity=50, events=events)
    executor.submit([run_of(1, first=number) for number in range(200)], 200)
    runs = collect(mailbox, 200)
    events.stop(1.0)
    assert len(runs) == 200
    assert all(run.done == 1 for run in runs)
    assert most == 50


def test_an_unrequested_cancellation_is_a_failure_and_the_worker_survives() -> None:
    async def call(one: Message, _: Run) -> None:
        if one.offset() == 0:
            raise asyncio.CancelledError

    events, mailbox = EventLoopThread(asyncio.new_event_loop), QueueMailbox()
    executor = CoroutineExecutor(AsyncRecordCall(call), mailbox, capacity=1, events=events)
    executor.submit([run_of(1), run_of(1, first=1)], 2)
    first, second = collect(mailbox, 2)
    events.stop(1.0)
    assert isinstance(first.failure, asyncio.CancelledError)
    assert (second.done, second.failure) == (1, None)


def test_stopping_the_event_loop_lets_handlers_clean_up() -> None:
    begun, cleaned = threading.Event(), threading.Event()

    async def call(one: Message, _: Run) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.set()

    events, mailbox = EventLoopThread(asyncio.new_event_loop), QueueMailbox()
    executor = CoroutineExecutor(AsyncRecordCall(call), mailbox, capacity=2, events=events)
    executor.submit([run_of(1)], 1)
    assert begun.wait(DEADLINE_S)
    events.stop(2.0)
    assert cleaned.is_set()


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_handlers_run_on_a_given_event_loop_which_goes_on_when_they_are_stopped(
    factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    seen: list[asyncio.AbstractEventLoop] = []
    cleaned: list[int] = []

    async def call(one: Message, _: Run) -> None:
        seen.append(asyncio.get_running_loop())
        if one.offset() == 1:
            try:
                await asyncio.sleep(60)
            finally:
                cleaned.append(one.offset())

    async def service() -> int:
        events, mailbox = GivenEventLoop(), QueueMailbox()
        executor = CoroutineExecutor(AsyncRecordCall(call), mailbox, capacity=2, events=events)
        others = asyncio.create_task(asyncio.sleep(0.01, result="the service's own"))
        executor.submit([run_of(1), run_of(1, first=1)], 2)
        [done] = await asyncio.to_thread(collect, mailbox, 1)
        assert (done.done, done.failure) == (1, None)
        assert "service" in {frame.f_code.co_name for frame in events.stack()}
        await asyncio.to_thread(events.stop, 5.0)
        assert await others == "the service's own"
        assert len(asyncio.all_tasks()) == 1, "nothing of ours is left"
        return len(executor.tallies)

    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(service()) == 2
        assert seen == [runner.get_loop()] * 2
        assert cleaned == [1]


def test_a_given_event_loop_that_is_closed_or_blocked_does_not_hold_up_the_end() -> None:
    async def made() -> GivenEventLoop:
        return GivenEventLoop()

    asyncio.run(made()).stop(60.0)

    async def blocked() -> bool:
        events, go = GivenEventLoop(), threading.Event()

        def end() -> None:
            events.stop(0.01)
            go.set()

        threading.Thread(target=end).start()
        return go.wait(30)

    assert asyncio.run(blocked()), "it gave up on the event loop, whose thread was waiting for it"


# -- what a handler, or a library that it uses, does to the event loop that everyone shares


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def events(request: pytest.FixtureRequest) -> Iterator[EventLoopThread]:
    made = EventLoopThread(request.param)
    yield made
    made.stop(2.0)


def coroutine_executor(
    events: EventLoopThread, call: Callable[[Message, Run], Coroutine[Any, Any, None]], capacity: int = 1
) -> tuple[CoroutineExecutor, QueueMailbox]:
    mailbox = QueueMailbox()
    return CoroutineExecutor(AsyncRecordCall(call), mailbox, capacity=capacity, events=events), mailbox


async def leave(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_in_a_task_that_a_handler_awaits_is_its_failure_and_halts_the_app(
    events: EventLoopThread, error: BaseException
) -> None:
    async def call(one: Message, _: Run) -> None:
        if one.offset() == 0:
            await asyncio.gather(leave(error), asyncio.sleep(0))

    executor, mailbox = coroutine_executor(events, call)
    executor.submit([run_of(1), run_of(1, first=1)], 2)
    found = collect(mailbox, 3)
    [halt] = [one for one in found if isinstance(one, HaltApp)]
    [first, second] = [one for one in found if isinstance(one, Run)]
    assert type(error).__name__ in halt.reason
    assert first.failure is error
    assert (second.done, second.failure) == (1, None), "the event loop continues"


def test_an_exit_in_a_task_that_is_not_awaited_halts_the_app_and_the_event_loop_goes_on(
    events: EventLoopThread,
) -> None:
    tasks = []

    async def call(one: Message, _: Run) -> None:
        if one.offset() == 0:
            tasks.append(asyncio.create_task(leave(SystemExit(3))))
        if one.offset() == 1:
            asyncio.get_running_loop().call_soon(exit, 4)
        await asyncio.sleep(0.01)

    executor, mailbox = coroutine_executor(events, call)
    executor.submit([run_of(1, first=number) for number in range(3)], 3)
    found = collect(mailbox, 5)
    assert [(one.done, one.failure) for one in found if isinstance(one, Run)] == [(1, None)] * 3
    assert sum(isinstance(one, HaltApp) for one in found) == 2


def test_an_event_loop_that_a_handler_stops_goes_on(events: EventLoopThread) -> None:
    async def call(_: Message, __: Run) -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)

    executor, mailbox = coroutine_executor(events, call)
    executor.submit([run_of(3), run_of(1, first=3)], 2)
    assert [run.done for run in collect(mailbox, 2)] == [3, 1]


def cancel_all_but(task: asyncio.Task[Any] | None) -> None:
    for other in asyncio.all_tasks():
        if other is not task:
            other.cancel()


@pytest.mark.parametrize("settled", [False, True], ids=["before it ends", "after it is replaced"])
def test_an_idle_worker_that_is_cancelled_is_replaced(events: EventLoopThread, settled: bool) -> None:
    async def call(_: Message, __: Run) -> None: ...

    executor, mailbox = coroutine_executor(events, call, capacity=2)
    for number in range(0, 8, 2):
        executor.submit([run_of(1, first=number), run_of(1, first=number + 1)], 2)
        assert [(run.done, run.failure) for run in collect(mailbox, 2)] == [(1, None)] * 2
        events.start().call_soon_threadsafe(cancel_all_but, None)
        if settled:
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), events.start()).result(DEADLINE_S)
    assert len(executor.tallies) == 2, "in the place of the one that was cancelled"


def test_a_worker_that_is_cancelled_when_it_is_woken_or_before_it_starts_leaves_no_run_behind(
    events: EventLoopThread,
) -> None:
    async def call(_: Message, __: Run) -> None: ...

    executor, mailbox = coroutine_executor(events, call, capacity=2)
    loop = events.start()
    for number in range(4):  # the first ones meet workers that have not started, the others such that are about to wake

        def submit_and_cancel(first: int = 2 * number) -> None:
            executor._receive([run_of(1, first=first), run_of(1, first=first + 1)])
            cancel_all_but(None)

        loop.call_soon_threadsafe(submit_and_cancel)
        assert [(run.done, run.failure) for run in collect(mailbox, 2)] == [(1, None)] * 2


@pytest.mark.parametrize("awaits", [True, False])
def test_a_worker_that_is_cancelled_at_a_record_goes_on_as_if_nothing_had_been(
    events: EventLoopThread, awaits: bool
) -> None:
    """A TaskGroup asks its task whether it is being cancelled: what is left of a cancellation would end the group."""

    async def call(one: Message, _: Run) -> None:
        task = asyncio.current_task()
        assert task is not None
        if one.offset() == 0:
            task.cancel()
            if awaits:
                await asyncio.sleep(0)
        else:
            assert task.cancelling() == 0
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))

    executor, mailbox = coroutine_executor(events, call)
    executor.submit([run_of(1), run_of(1, first=1)], 2)
    first, second = collect(mailbox, 2)
    assert isinstance(first.failure, asyncio.CancelledError) is awaits
    assert (second.done, second.failure) == (1, None)
