"""Anything in the process may cancel the coroutines that handlers run on: a time limit that is not taken back, or a
library that cancels all tasks. The record in flight has failed then; idle workers are replaced, and no lane stalls.
"""

from __future__ import annotations

import asyncio

import pytest

from keepfast import RetryPolicy
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

GROUP = "scenario.work"
RECORDS = 20


def cancel_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel()


def wait_for(calls: list[bytes], count: int) -> None:
    wait_until(lambda: len(calls) == count, f"the handler is called {count} times")


@pytest.mark.parametrize("concurrency", [1, 8])
def test_workers_that_are_cancelled_while_they_are_idle_take_the_next_record(
    kafka: TopicAdmin, topic: TopicFactory, concurrency: int
) -> None:
    name, client, app = topic(partitions=2), Client(kafka), app_for(kafka)
    seen: list[bytes] = []

    @app.consumer(name, name="work", concurrency=concurrency)
    async def work(value: bytes) -> None:
        seen.append(value)

    with RunningApp(app) as running:
        running.wait_assigned(2)
        for number in range(RECORDS):
            client.produce(name, [b"%d" % number])
            wait_for(seen, number + 1)
            wait_until(lambda: not running.loop.in_flight, "the workers are idle")
            running.in_event_loop(cancel_all)
        wait_until(
            lambda: sum(client.committed(GROUP, name, one)[0] or 0 for one in (0, 1)) == RECORDS, "all committed"
        )
    assert seen == [b"%d" % number for number in range(RECORDS)], "each once"


def test_a_record_whose_worker_is_cancelled_has_failed_and_is_tried_again(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    attempts: list[bytes] = []

    @app.consumer(name, name="work", retry=RetryPolicy(initial_delay_ms=10))
    async def work(value: bytes) -> None:
        attempts.append(value)
        if attempts.count(value) == 1:
            await asyncio.sleep(60)

    client.produce(name, [b"0", b"1"])
    with RunningApp(app) as running:
        for number in (1, 3):
            wait_for(attempts, number)
            running.in_event_loop(cancel_all)
        wait_until(lambda: client.committed(GROUP, name)[0] == 2, "both are handled")
        assert [printed.fields["error_type"] for printed in running.log.of("retry_scheduled")] == ["CancelledError"] * 2
    assert attempts == [b"0", b"0", b"1", b"1"]
