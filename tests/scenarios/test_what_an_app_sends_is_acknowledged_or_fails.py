"""`app.send`: from anywhere in the process, also from one that consumes nothing."""

from __future__ import annotations

import asyncio
import threading

import pytest

from keepfast import App, LifecycleError, Receipt, SinkError
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client
from tests.support.running_app import app_for


def test_a_process_that_consumes_nothing_sends(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(partitions=2), Client(kafka)
    app = App("web", kafka={"brokers": kafka.bootstrap})  # without any consumer
    with pytest.raises(LifecycleError, match=r"app\.start\(\)"):
        app.send(name, b"too early")

    async def program() -> None:
        await app.start_async(consume=False)
        waiting = asyncio.create_task(app.wait())
        receipt = await app.send(name, {"id": "a"}, key="k", headers={"type": "login"}, partition=1)
        assert receipt == Receipt(name, 1, 0)
        assert app.health().ready
        assert not waiting.done(), "it waits for the end, not for consumers"
        await app.stop_async()
        await waiting

    asyncio.run(program())
    [record] = client.read(name, 1, partitions=2)
    assert (record.value(), record.key(), record.headers()) == (b'{"id":"a"}', b"k", [("type", b"login")])


def test_any_thread_and_any_event_loop_can_wait_and_the_rest_is_flushed(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app = topic(partitions=1), Client(kafka), app_for(kafka)
    answers: list[Receipt] = []

    async def elsewhere() -> Receipt:
        return await app.send(name, b"1")

    app.start(consume=False)
    thread = threading.Thread(target=lambda: answers.append(asyncio.run(elsewhere())))
    thread.start()
    thread.join(60)
    assert app.send(name, b"2").result(60).offset == 1
    left = [app.send(name, str(number).encode()) for number in range(3, 500)]
    app.stop()
    assert [future.done() for future in left] == [True] * len(left)
    assert [future.result(0).offset for future in left] == list(range(2, 499))
    assert answers == [Receipt(name, 0, 0)]
    assert len(client.read(name, 499)) == 499


def test_a_send_that_fails_raises_where_it_is_awaited(kafka: TopicAdmin, topic: TopicFactory) -> None:
    app = app_for(kafka)
    app.start(consume=False)
    try:
        with pytest.raises(SinkError):
            app.send(topic(partitions=1), b"1", partition=77).result(60)
        with pytest.raises(ValueError, match="reserved"):
            app.send("orders.payment.v1", b"1", headers={"keepfast-letter-id": "x"})
    finally:
        app.stop()
