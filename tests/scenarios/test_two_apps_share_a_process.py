"""Embedding: two apps in one process, one on the event loop of the program, one on threads of its own."""

from __future__ import annotations

import asyncio

from keepfast import App, Reject
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client
from tests.support.log_capture import LogCapture
from tests.support.running_app import app_for
from tests.support.waiting import wait_until


def test_both_run_side_by_side_and_end_one_after_the_other(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(partitions=1), Client(kafka)
    loops: set[asyncio.AbstractEventLoop] = set()
    coroutine_saw: list[bytes] = []
    thread_saw: list[bytes] = []
    one, other = app_for(kafka, name="one"), app_for(kafka, name="other")

    @one.consumer(name, name="work")
    async def on_the_service(value: bytes) -> None:
        loops.add(asyncio.get_running_loop())
        coroutine_saw.append(value)

    @other.consumer(name, name="work")
    def on_a_thread(value: bytes) -> None:
        thread_saw.append(value)

    async def service() -> None:
        async with other:
            async with one:
                client.produce(name, [b"1", b"2"])
                both = ([b"1", b"2"],) * 2
                await asyncio.to_thread(wait_until, lambda: (coroutine_saw, thread_saw) == both, "both have it")
            client.produce(name, [b"3"])
            await asyncio.to_thread(wait_until, lambda: thread_saw[2:] == [b"3"], "the other continues")
            assert coroutine_saw == [b"1", b"2"]
        assert loops == {asyncio.get_running_loop()}

    asyncio.run(service())
    assert client.committed("one.work", name)[0] == 2
    assert client.committed("other.work", name)[0] == 3


def test_what_either_of_them_masks_is_masked_in_every_line(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name = topic(partitions=1)
    apps = [
        App(secret.lower(), kafka={"brokers": kafka.bootstrap}, masking={"patterns": [rf"{secret}-\d+"]})
        for secret in ("LEFT", "RIGHT")
    ]
    for app in apps:
        app.consumer(name, name="work")(_refuse)
    with LogCapture() as log, apps[0], apps[1]:
        Client(kafka).produce(name, [b"order"])
        wait_until(lambda: len(log.of("dead_lettering")) == 2, "both refuse it")
    assert [fields["reason"] for fields in log.fields("dead_lettering")] == ["[masked] of [masked]"] * 2


def _refuse(value: bytes) -> None:
    raise Reject("LEFT-1 of RIGHT-1")
