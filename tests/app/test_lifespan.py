"""What may be a lifespan, and what becomes of one that does not do as it should."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import pytest

from keepfast import App, ConfigError, DrainTimeout, StartError
from keepfast.app.lifespan import Lifespan
from keepfast.engine.workers import EventLoopThread
from tests.support.waiting import wait_until


@pytest.fixture
def events() -> Iterator[EventLoopThread]:
    made = EventLoopThread(asyncio.new_event_loop)
    yield made
    made.stop(5.0)


def lifespan_of(function: Any, events: EventLoopThread, ended: Callable[[], None] = lambda: None) -> Lifespan:
    return Lifespan(partial(function, App("shop")), "shop", events, ended=ended)


async def a_generator(app: App) -> AsyncIterator[None]:
    yield


def a_plain_generator(app: App) -> Iterator[None]:
    yield


async def a_coroutine(app: App) -> None: ...


@asynccontextmanager
async def without_the_app() -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (a_generator, "lifespan=a_generator is a generator function; decorate it with @asynccontextmanager."),
        (a_plain_generator, "lifespan=a_plain_generator is a generator function; decorate it with @contextmanager."),
        (a_coroutine, "takes a function of the app that returns a context manager"),
        ("pool", "takes a function of the app that returns a context manager"),
        (without_the_app, "lifespan=without_the_app must take one argument, the app."),
    ],
)
def test_what_cannot_be_one_is_refused_when_the_app_is_made(function: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        App("shop", lifespan=function)
    assert sentence in str(caught.value)


def test_an_async_one_is_entered_and_left_in_one_task_of_the_event_loop(events: EventLoopThread) -> None:
    tasks: list[asyncio.Task[Any] | None] = []

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[str]:
        tasks.append(asyncio.current_task())
        async with asyncio.timeout(60):  # demands the same task at its end
            yield app.name
        tasks.append(asyncio.current_task())

    one = lifespan_of(lifespan, events)
    one.enter()
    assert one.resources == "shop"
    one.exit(5.0)
    assert len(set(tasks)) == 1
    one.exit(5.0)
    assert len(tasks) == 2, "it is left once"


def test_a_sync_one_is_entered_and_left_on_one_thread(events: EventLoopThread) -> None:
    threads: list[threading.Thread] = []

    @contextmanager
    def lifespan(app: App) -> Iterator[int]:
        threads.append(threading.current_thread())
        yield 7
        threads.append(threading.current_thread())

    one = lifespan_of(lifespan, events)
    one.enter()
    assert one.resources == 7
    one.exit(5.0)
    assert len(threads) == 2
    assert set(threads) != {threading.main_thread()}
    assert threads[0] is threads[1]


@asynccontextmanager
async def never_yields(app: App) -> AsyncIterator[None]:
    return
    yield


@contextmanager
def raises(app: App) -> Iterator[None]:
    raise OSError("no database; password=hunter2")
    yield


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (never_yields, "The lifespan of app 'shop' failed before it yielded: RuntimeError: generator didn't yield."),
        (raises, "The lifespan of app 'shop' failed before it yielded: OSError: no database; password=[masked]."),
    ],
)
def test_one_that_fails_before_it_yields_is_a_failed_start(
    events: EventLoopThread, function: Any, sentence: str
) -> None:
    one = lifespan_of(function, events)
    with pytest.raises(StartError) as caught:
        one.enter()
    assert sentence in str(caught.value)
    one.exit(5.0)


def test_what_is_no_context_manager_is_named(events: EventLoopThread) -> None:
    with pytest.raises(ConfigError, match="returned dict, no context manager"):
        lifespan_of(lambda app: {"pool": app}, events).enter()


def test_one_that_ends_early_ends_the_app(events: EventLoopThread) -> None:
    ended = threading.Event()
    fail = asyncio.Event()

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(job())
            yield

    async def job() -> None:
        await fail.wait()
        raise ZeroDivisionError

    one = lifespan_of(lifespan, events, ended.set)
    one.enter()
    assert not ended.is_set()
    events.start().call_soon_threadsafe(fail.set)
    assert ended.wait(60)
    with pytest.raises(ExceptionGroup):
        one.exit(5.0)


def test_an_exit_that_takes_too_long_is_cancelled(events: EventLoopThread) -> None:
    cancelled: list[bool] = []

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        yield
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    one = lifespan_of(lifespan, events)
    one.enter()
    with pytest.raises(DrainTimeout, match=r"was not left within 0\.1 s"):
        one.exit(0.1)
    assert cancelled == [True]


def test_one_that_is_being_entered_can_be_given_up(events: EventLoopThread) -> None:
    begun, cleaned = threading.Event(), list[bool]()

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        begun.set()
        try:
            await asyncio.sleep(600)
            yield
        finally:
            cleaned.append(True)

    one, raised = lifespan_of(lifespan, events), list[StartError]()

    def enter() -> None:
        try:
            one.enter()
        except StartError as error:
            raised.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    assert begun.wait(60)
    one.abort()
    thread.join(60)
    wait_until(lambda: cleaned == [True], "it has cleaned up")
    assert len(raised) == 1


def test_an_abort_before_its_task_has_begun_is_not_lost(events: EventLoopThread) -> None:
    @asynccontextmanager
    async def slow(app: App) -> AsyncIterator[None]:
        await asyncio.sleep(5.0)
        yield

    lifespan = lifespan_of(slow, events)
    lifespan.abort()
    with pytest.raises(StartError, match="its task was cancelled"):
        lifespan.enter()
