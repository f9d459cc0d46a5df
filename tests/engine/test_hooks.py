"""Hooks: which events they get, on which thread, and that nothing they do harms the loop or another hook."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from keepfast import App
from keepfast.core import events
from keepfast.core.errors import ConfigError
from keepfast.core.events import DeadLettered, DrainFinished, Event, Halted, Held, RecordEvent
from keepfast.engine.hooks import EventHooks, hook_of
from keepfast.engine.workers import EventLoopThread
from tests.support.events import SAMPLES, SOURCE
from tests.support.log_capture import LogCapture
from tests.support.waiting import DEADLINE_S, wait_until

HELD = [Held(*SOURCE, hold=str(number)) for number in range(20)]
DEAD = next(one for one in SAMPLES if isinstance(one, DeadLettered))


@pytest.fixture
def loop() -> Iterator[EventLoopThread]:
    thread = EventLoopThread(asyncio.new_event_loop)
    yield thread
    thread.stop(5)


def hooks_of(
    loop: EventLoopThread, *functions: Callable[..., Any], wants: type[Event] = Held, capacity: int = 10_000
) -> EventHooks:
    return EventHooks([hook_of(function, [wants]) for function in functions], loop, capacity=capacity)


def put(hooks: EventHooks, *happened: Event) -> None:
    for event in happened:
        hooks.on_event(event)


def test_each_kind_runs_away_from_the_loops_thread_one_at_a_time_in_order(loop: EventLoopThread) -> None:
    seen = list[tuple[str, Event, str]]()

    def plain(event: Held) -> None:
        seen.append(("def", event, threading.current_thread().name))

    async def coroutine(event: Held) -> None:
        await asyncio.sleep(0)
        seen.append(("async", event, threading.current_thread().name))

    hooks = hooks_of(loop, plain, coroutine)
    put(hooks, *HELD, DEAD)
    hooks.stop(DEADLINE_S)
    for kind, thread in (("def", "keepfast-hooks"), ("async", "keepfast-asyncio")):
        assert [event for one, event, _ in seen if one == kind] == HELD
        assert {name for one, _, name in seen if one == kind} == {thread}
    assert hooks.idle


def test_an_instance_and_a_partial_are_hooks_too(loop: EventLoopThread) -> None:
    seen = list[str]()

    class Reporter:
        async def __call__(self, event: Event) -> None:
            seen.append("instance")

    def report(name: str, event: Event) -> None:
        seen.append(name)

    hooks = hooks_of(loop, Reporter(), partial(report, "partial"))
    put(hooks, HELD[0])
    hooks.stop(DEADLINE_S)
    assert sorted(seen) == ["instance", "partial"]


def test_a_hook_that_raises_is_logged_and_everything_goes_on(loop: EventLoopThread) -> None:
    seen = list[Event]()
    errors = (ValueError("Bearer sk_live_4eC39HqLyjWDarjtT1zdp7dc"), SystemExit(3), KeyboardInterrupt())

    def bad(event: Held) -> None:
        raise errors[int(event.hold) % 3]

    async def bad_too(event: Held) -> None:
        raise errors[int(event.hold) % 3]

    async def good(event: Held) -> None:
        seen.append(event)

    with LogCapture() as log:
        hooks = hooks_of(loop, bad, bad_too, good)
        put(hooks, *HELD)
        hooks.stop(DEADLINE_S)
    assert seen == HELD
    assert hooks.counts.failed == 2 * len(HELD)
    lines = log.of("hook_failed")
    assert {line.fields["hook"].rsplit(".", 1)[-1] for line in lines} == {"bad", "bad_too"}
    assert len(lines) == 2, "one line in 10 s for each hook"
    assert lines[0].fields.items() >= {"of": "Held", "consumer": "charge"}.items()
    assert "sk_live" not in str(lines)


def test_a_full_queue_drops_and_counts_and_never_blocks_the_loop(loop: EventLoopThread) -> None:
    entered, go = threading.Event(), threading.Event()
    seen = list[Event]()

    def slow(event: Held) -> None:
        entered.set()
        go.wait(DEADLINE_S)
        seen.append(event)

    with LogCapture() as log:
        hooks = hooks_of(loop, slow, capacity=4)
        put(hooks, HELD[0])
        assert entered.wait(DEADLINE_S)
        put(hooks, *HELD[1:])
        go.set()
        hooks.stop(DEADLINE_S)
    assert seen == HELD[:5], "the one in flight and the four that found room"
    assert hooks.counts.dropped == len(HELD) - 5
    [line] = log.of("hook_events_dropped")
    assert line.fields["capacity"] == 4


@pytest.mark.parametrize("is_async", [False, True])
def test_stopping_waits_no_longer_than_it_may_and_counts_what_is_left(loop: EventLoopThread, is_async: bool) -> None:
    entered, go = threading.Event(), threading.Event()

    def hangs(event: Held) -> None:
        entered.set()
        go.wait(DEADLINE_S)

    async def hangs_too(event: Held) -> None:
        entered.set()
        await asyncio.sleep(DEADLINE_S)

    with LogCapture() as log:
        hooks = hooks_of(loop, hangs_too if is_async else hangs)
        put(hooks, *HELD[:3])
        assert entered.wait(DEADLINE_S)
        hooks.stop(0.2)
        put(hooks, HELD[3])
        go.set()
    assert hooks.counts.dropped == 4
    [line] = log.of("hooks_unfinished")
    assert line.fields["events"] == 3


def test_a_task_that_something_cancels_costs_one_event(loop: EventLoopThread) -> None:
    entered = threading.Event()
    seen = list[Event]()

    async def report(event: Held) -> None:
        seen.append(event)
        if event is HELD[0]:
            entered.set()
            await asyncio.sleep(DEADLINE_S)

    hooks = hooks_of(loop, report)
    put(hooks, *HELD)
    assert entered.wait(DEADLINE_S)
    running = loop.start()
    running.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(running)])
    wait_until(lambda: hooks.idle, "the rest is reported")
    assert seen == HELD


def test_errors_of_published_records_are_kept_only_for_hooks_about_them(loop: EventLoopThread) -> None:
    def report(event: Event) -> None: ...

    assert not hooks_of(loop, report, wants=Held).keeps_errors
    for wanted in (DeadLettered, RecordEvent, Event):
        assert hooks_of(loop, report, wants=wanted).keeps_errors


def test_a_base_class_stands_for_its_events_but_not_for_those_of_the_hot_path() -> None:
    def report(event: Event) -> None: ...

    about_records = hook_of(report, [RecordEvent]).wants
    assert {DeadLettered, events.RetryScheduled} <= about_records
    assert Held not in about_records
    every = hook_of(report, [Event]).wants
    assert every == {type(one) for one in SAMPLES} - {events.RunFinished, events.Committed}
    assert events.Committed in hook_of(report, [Event, events.Committed]).wants


def test_on_registers_the_function_and_leaves_it_as_it_is() -> None:
    app = App("shop")

    @app.on(DeadLettered, Halted)
    def report(event: DeadLettered | Halted) -> str:
        return event.consumer

    assert report(DEAD) == "charge"
    [hook] = app.hooks
    assert hook.wants == frozenset[type[Event]]({DeadLettered, Halted})
    assert not hook.is_async


def no_argument() -> None: ...


def two_arguments(one: object, two: object) -> None: ...


def generator(event: Event) -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("types", "function", "sentence"),
    [
        ((), generator, "@app.on takes types of events, such as @app.on(DeadLettered, Halted)."),
        (("DeadLettered",), generator, "got 'DeadLettered'"),
        ((ValueError,), generator, "got <class 'ValueError'>"),
        ((Held,), no_argument, "The hook no_argument cannot be called with one event"),
        ((Held,), two_arguments, "def two_arguments(event)"),
        ((Held,), generator, "The hook generator has a yield"),
    ],
)
def test_what_cannot_be_a_hook_is_refused_with_a_sentence(
    types: tuple[Any, ...], function: Callable[..., Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        App("shop").on(*types)(function)
    assert sentence in str(refused.value)


def test_on_without_brackets_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"@app.on takes types of events"):
        App("shop").on(no_argument)  # type: ignore[arg-type]


def test_an_event_at_the_very_end_is_reported(loop: EventLoopThread) -> None:
    seen = list[Event]()

    async def report(event: DrainFinished) -> None:
        await asyncio.sleep(0.05)
        seen.append(event)

    hooks = hooks_of(loop, report, wants=DrainFinished)
    put(hooks, DrainFinished(*SOURCE, unfinished=0))
    hooks.stop(DEADLINE_S)
    assert seen
