"""Embedding: an app inside a program that owns its event loop, its signals and its process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from keepfast import App, ConsumerFailed, DrainTimeout, Halt, LifecycleError, StartError
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client
from tests.support.log_capture import LogCapture
from tests.support.running_app import app_for
from tests.support.waiting import wait_until

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def host_signals() -> Iterator[list[int]]:
    """Handlers of the host's own; what they got."""
    got: list[int] = []
    before = [signal.signal(number, lambda number, _: got.append(number)) for number in SIGNALS]
    try:
        yield got
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)


def test_the_end_of_the_block_drains_and_the_hosts_signals_are_its_own(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app = topic(partitions=1), Client(kafka), app_for(kafka)
    loops: list[asyncio.AbstractEventLoop] = []
    begun, ended = list[bytes](), list[bytes]()

    @app.consumer(name, name="work")
    async def work(value: bytes) -> None:
        begun.append(value)
        loops.append(asyncio.get_running_loop())
        await go.wait()
        ended.append(value)

    go = asyncio.Event()

    async def program() -> None:
        async with app:
            installed = [signal.getsignal(number) for number in SIGNALS]
            client.produce(name, [b"1", b"2"])
            while not begun:
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
            while not got:
                await asyncio.sleep(0.01)
            reasons = [reason.code for reason in app.health().reasons]
            assert "draining" not in reasons, "a signal is the host's business"
            asyncio.get_running_loop().call_later(0.3, go.set)  # while the end of the block waits for it
        assert installed == [signal.getsignal(number) for number in SIGNALS]
        assert loops == [asyncio.get_running_loop()]

    with host_signals() as got:
        handlers = [signal.getsignal(number) for number in SIGNALS]
        asyncio.run(program())
        assert [signal.getsignal(number) for number in SIGNALS] == handlers
    assert got == [signal.SIGTERM]
    assert (begun, ended) == ([b"1"], [b"1"]), "what was in flight is finished, and nothing else is started"
    assert client.committed("scenario.work", name)[0] == 1


def test_on_threads_it_is_the_same_and_it_can_start_again(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app = topic(partitions=1), Client(kafka), app_for(kafka)
    saw: list[tuple[bytes, bool]] = []

    @app.consumer(name, name="work")
    async def work(value: bytes) -> None:
        saw.append((value, threading.current_thread() is threading.main_thread()))

    for number in (b"1", b"2"):
        with app:
            with pytest.raises(LifecycleError, match="started already"):
                app.start()
            client.produce(name, [number])
            wait_until(lambda number=number: saw[-1:] == [(number, False)], f"{number!r} is handled")  # type: ignore[misc]
        assert not app.health().ready
        with pytest.raises(LifecycleError, match="not started"):
            app.stop()
    assert client.committed("scenario.work", name)[0] == 2


def test_a_consumer_that_fails_makes_wait_and_the_block_raise(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app = topic(partitions=1), Client(kafka), app_for(kafka)

    @app.consumer(name, name="work")
    async def work(value: bytes) -> None:
        raise Halt("the contract has changed")

    async def program() -> None:
        async with app:
            client.produce(name, [b"1"])
            with pytest.raises(ConsumerFailed, match="the contract has changed") as caught:
                await app.wait()
            assert (caught.value.consumer, caught.value.kind) == ("work", "halted")
            assert app.health().status == "failing"
            receipt = await app.send(name, b"2")  # the producer is not concerned
            assert receipt.offset == 1

    with pytest.raises(ConsumerFailed, match="the contract has changed"):
        asyncio.run(program())
    assert client.committed("scenario.work", name)[0] in (None, 0)


def test_the_error_of_the_block_goes_before_the_one_of_the_consumer(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, app = topic(partitions=1), app_for(kafka)

    @app.consumer(name, name="work")
    def work(value: bytes) -> None:
        raise Halt("no more")

    def program() -> None:
        with app:
            Client(kafka).produce(name, [b"1"])
            with pytest.raises(ConsumerFailed):
                app.join(60)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()


def test_a_drain_past_its_deadline_raises_and_the_process_lives_on(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app = topic(partitions=1), Client(kafka), app_for(kafka, shutdown_s=0.5)
    begun, go = threading.Event(), threading.Event()

    @app.consumer(name, name="work")
    def hang(value: bytes) -> None:
        begun.set()
        go.wait(60)

    app.start()
    client.produce(name, [b"1"])
    assert begun.wait(60)
    with pytest.raises(DrainTimeout, match="did not stop within") as caught:
        app.stop()
    go.set()
    assert caught.value.unfinished >= 1
    assert client.committed("scenario.work", name)[0] in (None, 0), "what was not finished is not committed"


def test_a_start_without_a_broker_does_not_block_the_event_loop_and_can_be_cancelled() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        app = App("scenario", kafka={"brokers": f"127.0.0.1:{closed.getsockname()[1]}"})
    app.consumer("orders.payment.v1", name="work")(_ignore)

    async def program() -> None:
        start = asyncio.create_task(app.start_async())
        turns = 0
        while not log.of("waiting_for_broker"):  # after 5 s
            await asyncio.sleep(0.01)
            turns += 1
        assert turns > 20, "the event loop has turned all the time"
        assert not start.done()
        assert [reason.code for reason in app.health().reasons] == ["starting"]
        with pytest.raises(LifecycleError, match="is being started"):
            app.send("orders.payment.v1", b"1")
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        with pytest.raises(LifecycleError, match="not started"):
            await app.stop_async()

    with LogCapture() as log:
        asyncio.run(program())


def test_run_works_on_any_thread(kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEALTH_CHECK_PORT", "0")
    name, app, codes = topic(partitions=1), app_for(kafka), list[int]()

    @app.consumer(name, name="work")
    def work(value: bytes) -> None:
        raise Halt("enough")

    thread = threading.Thread(target=lambda: codes.append(app.run()))
    thread.start()
    Client(kafka).produce(name, [b"1"])
    thread.join(60)
    assert codes == [4]


def test_in_a_coroutine_what_would_block_is_refused() -> None:
    app = App("scenario")
    app.consumer("orders.payment.v1", name="work")(_ignore)

    async def program() -> None:
        for blocking, instead in (
            (app.start, "start_async"),
            (app.stop, "stop_async"),
            (app.run, "async with app"),
        ):
            with pytest.raises(LifecycleError, match=instead):
                blocking()

    asyncio.run(program())


def test_a_topic_that_is_missing_leaves_nothing_behind(kafka: TopicAdmin) -> None:
    app = app_for(kafka)
    app.consumer("there.is.no.such.topic", name="work")(_ignore)
    before = {thread.name for thread in threading.enumerate()}
    for _ in range(2):
        with pytest.raises(StartError, match=r"there\.is\.no\.such\.topic"):
            app.start()
    wait_until(lambda: {thread.name for thread in threading.enumerate()} <= before, "all threads of it have ended")


def _ignore(value: bytes) -> None: ...


def test_a_handler_or_another_thread_can_end_app_run(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, seen = topic(partitions=1), Client(kafka), list[bytes]()
    app = app_for(kafka)

    @app.consumer(name, name="work")
    async def work(value: bytes) -> None:
        seen.append(value)
        if value == b"1":
            await app.stop_async()

    def run() -> None:
        codes.append(app.run())

    codes: list[int] = []
    client.produce(name, [b"1"])
    by_handler = threading.Thread(target=run, daemon=True)
    by_handler.start()
    wait_until(lambda: not by_handler.is_alive(), "the handler has ended it")
    assert client.committed("scenario.work", name)[0] == 1, "its record was finished"
    by_thread = threading.Thread(target=run, daemon=True)
    by_thread.start()
    client.produce(name, [b"2"])
    wait_until(lambda: b"2" in seen, "it runs")
    app.stop()
    wait_until(lambda: not by_thread.is_alive(), "another thread has ended it")
    assert (codes, seen) == ([0, 0], [b"1", b"2"])
