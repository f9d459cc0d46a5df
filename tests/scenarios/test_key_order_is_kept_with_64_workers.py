"""P3: with order="key", records of one key run one after another in offset order, while other keys run beside them."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import defaultdict

import pytest

from keepfast import Context
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord, order_violations
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

RECORDS, KEYS = 5_000, 200


class Watch:
    """Sees every start and end; counts how many run at once, and keys that run twice at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[bytes | None, int] = defaultdict(int)
        self.started: list[tuple[bytes | None, int]] = []
        self.overlaps: list[bytes | None] = []
        self.most_at_once = 0
        self.done = 0

    def start(self, ctx: Context) -> None:
        with self._lock:
            self._running[ctx.key] += 1
            if self._running[ctx.key] > 1:
                self.overlaps.append(ctx.key)
            self.started.append((ctx.key, ctx.offset + ctx.partition * 1_000_000))
            self.most_at_once = max(self.most_at_once, sum(self._running.values()))

    def end(self, ctx: Context) -> None:
        with self._lock:
            self._running[ctx.key] -= 1
            self.done += 1


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_5_000_records_of_200_keys_keep_their_order(kafka: TopicAdmin, topic: TopicFactory, kind: str) -> None:
    name, client, watch, dice = topic(partitions=4), Client(kafka), Watch(), random.Random(7)
    app = app_for(kafka)

    def work(value: bytes, ctx: Context) -> None:
        watch.start(ctx)
        time.sleep(random.random() * 0.003)
        watch.end(ctx)

    async def work_async(value: bytes, ctx: Context) -> None:
        watch.start(ctx)
        await asyncio.sleep(random.random() * 0.003)
        watch.end(ctx)

    is_async = kind == "async def"
    app.consumer(name, name="work", order="key", concurrency=256 if is_async else 64)(work_async if is_async else work)
    places = client.produce(name, [NewRecord(b"v", b"key-%d" % dice.randrange(KEYS)) for _ in range(RECORDS)])
    with RunningApp(app) as running:
        wait_until(lambda: watch.done >= RECORDS, "all records are handled")
        ends = {p: max(offset for partition, offset in places if partition == p) + 1 for p in range(4)}
        wait_until(
            lambda: [client.committed("scenario.work", name, p)[0] for p in ends] == list(ends.values()), "commit"
        )
        assert running.loop.counts.total().errors == 0
    assert watch.overlaps == []
    assert order_violations(watch.started) == []
    assert len(set(watch.started)) == len(watch.started) == RECORDS
    assert watch.most_at_once > 20
