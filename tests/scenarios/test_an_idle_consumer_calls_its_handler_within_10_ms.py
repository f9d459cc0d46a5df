"""From a record being produced to its handler being called, on an idle consumer: median below 10 ms."""

from __future__ import annotations

import statistics
import time

import pytest

from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

SAMPLES = 50


@pytest.mark.timing
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_the_median_of_50_is_below_10_ms(kafka: TopicAdmin, topic: TopicFactory, kind: str) -> None:
    name, client = topic(), Client(kafka)
    app, called_at = app_for(kafka), list[float]()

    def work(value: bytes) -> None:
        called_at.append(time.perf_counter())

    async def work_async(value: bytes) -> None:
        called_at.append(time.perf_counter())

    app.consumer(name, name="work")(work_async if kind == "async def" else work)
    latencies_ms = []
    with RunningApp(app) as running:
        running.wait_assigned()
        client.produce(name, [b"warm up"])
        loop = running.loop
        for sample in range(1, SAMPLES + 1):
            wait_until(lambda n=sample: len(called_at) == n and loop.processed == n, "handled")  # type: ignore[misc]
            wait_until(lambda: not loop.in_flight and not loop.committer.under_way, "idle again")
            produced_at = time.perf_counter()
            client.produce(name, [b"v"])
            wait_until(lambda n=sample: len(called_at) > n, "the handler is called")  # type: ignore[misc]
            latencies_ms.append((called_at[-1] - produced_at) * 1000)
    assert statistics.median(latencies_ms) < 10, sorted(latencies_ms)
