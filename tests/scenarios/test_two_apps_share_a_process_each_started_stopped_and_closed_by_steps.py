"""Embedding: two apps in one process, without signals; the coroutines of one run on an event loop that is given."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

from keepfast import App
from keepfast.app.assembly import assemble_app, specs_of
from keepfast.core.errors import SinkError
from keepfast.core.exit_codes import EXIT_DEADLINE
from keepfast.core.records import Outgoing, Receipt
from keepfast.engine.workers import GivenEventLoop, HandlerLoop
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from keepfast.wiring.assembly import Assembly
from tests.support.broker_client import Client
from tests.support.running_app import app_for
from tests.support.waiting import wait_until


def assembled(app: App, events: HandlerLoop | None = None, left: list[int] | None = None) -> Assembly:
    settings = app.settings(environ={}, cwd=Path("/nonexistent"))
    leave = os._exit if left is None else left.append
    return assemble_app(specs_of(app.chosen(), settings), settings, wait=False, events=events, leave=leave)


def test_both_run_side_by_side_and_end_one_after_the_other(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(partitions=1), Client(kafka)
    loops: set[asyncio.AbstractEventLoop] = set()
    coroutine_saw: list[bytes] = []
    thread_saw: list[bytes] = []

    async def on_the_service(value: bytes) -> None:
        loops.add(asyncio.get_running_loop())
        coroutine_saw.append(value)

    def on_a_thread(value: bytes) -> None:
        thread_saw.append(value)

    async def service() -> None:
        one, other = app_for(kafka, name="one"), app_for(kafka, name="other")
        one.consumer(name, name="work")(on_the_service)
        other.consumer(name, name="work")(on_a_thread)
        events = GivenEventLoop()
        first, second = await asyncio.gather(
            asyncio.to_thread(assembled, one, events), asyncio.to_thread(assembled, other)
        )
        for assembly in (first, second):
            assembly.start()
        client.produce(name, [b"1", b"2"])
        await asyncio.to_thread(wait_until, lambda: (coroutine_saw, thread_saw) == ([b"1", b"2"],) * 2, "both have it")
        first.stop()
        assert await asyncio.to_thread(first.wait) == 0
        await asyncio.to_thread(first.close, first.lifecycle.left_s())
        client.produce(name, [b"3"])
        await asyncio.to_thread(wait_until, lambda: thread_saw[2:] == [b"3"], "the other goes on")
        assert coroutine_saw == [b"1", b"2"]
        second.stop()
        assert await asyncio.to_thread(second.wait) == 0
        await asyncio.to_thread(second.close, second.lifecycle.left_s())
        assert loops == {asyncio.get_running_loop()}

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    asyncio.run(service())
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert client.committed("one.work", name)[0] == 2
    assert client.committed("other.work", name)[0] == 3


def test_a_drain_past_its_deadline_leaves_the_process_alone(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(partitions=1), Client(kafka)
    begun, go = threading.Event(), threading.Event()

    def hang(value: bytes) -> None:
        begun.set()
        go.wait(60)

    app, left = app_for(kafka, shutdown_s=0.5), list[int]()
    app.consumer(name, name="work")(hang)
    assembly = assembled(app, left=left)
    assembly.start()
    client.produce(name, [b"1"])
    assert begun.wait(60)
    assembly.stop()
    assert assembly.wait() == EXIT_DEADLINE
    assembly.close(assembly.lifecycle.left_s())
    go.set()
    assert client.committed("scenario.work", name)[0] in (None, 0), "what was not finished is not committed"
    assert left in ([], [EXIT_DEADLINE]), "the loop gave up just before the deadline, or was left there"


def ignore(value: bytes) -> None: ...


def test_without_consumers_there_is_the_producer_alone(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, answers = topic(partitions=1), Client(kafka), list[Receipt | SinkError]()
    app = app_for(kafka)
    app.consumer(name, name="work")(ignore)
    settings = app.settings(environ={}, cwd=Path("/nonexistent"))
    assembly = assemble_app([], settings, wait=False)
    assembly.start()
    assembly.clients.sink.send(Outgoing(name, b"sent"), answers.append)
    assembly.close(10.0)
    assert answers == [Receipt(name, 0, 0)]
    assert [record.value() for record in client.read(name, 1)] == [b"sent"]
