"""P4: fast handlers run on the thread that drives the loop. When one of them hangs, the loop drives on elsewhere."""

from __future__ import annotations

import threading
from typing import Literal

import pytest

from keepfast import Context
from keepfast.core import sizing
from keepfast.core.policies import CommitPolicy
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord, order_violations
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until

RECORDS = 3_000
STUCK = 2_000


@pytest.fixture(autouse=True)
def _fast_on_a_busy_machine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "FAST_S", 1.0)
    monkeypatch.setattr(sizing, "LONG_INLINE_S", 60.0)


@pytest.mark.parametrize("commit", ["each", "interval"])
@pytest.mark.parametrize("order", ["partition", "key"])
def test_other_lanes_go_on_and_the_stuck_one_is_finished_once(
    kafka: TopicAdmin, topic: TopicFactory, order: Literal["partition", "key"], commit: Literal["each", "interval"]
) -> None:
    name, client = topic(partitions=2), Client(kafka)
    app, free, seen = app_for(kafka), threading.Event(), []
    count = RECORDS if commit == "interval" else RECORDS // 4
    stuck = STUCK if commit == "interval" else STUCK // 4

    @app.consumer(name, order=order, commit=CommitPolicy(mode=commit, every_s=0.2), idempotent=True)
    def work(value: bytes, ctx: Context) -> None:
        if (ctx.partition, ctx.offset) == (0, stuck):
            free.wait(DEADLINE_S)
        seen.append((ctx.partition, ctx.key, ctx.offset))

    records = [NewRecord(b"v", b"%d" % (number % 14), partition=number % 2) for number in range(2 * count)]
    client.produce(name, records)
    with RunningApp(app) as running:
        inline = running.loop.starter._inline
        assert inline is not None
        wait_until(lambda: inline.takeovers > 0, "another thread drives the loop")
        wait_until(lambda: sum(at == 1 for at, *_ in list(seen)) == count, "the other partition is handled")
        wait_until(lambda: client.committed("scenario.work", name, 1)[0] == count, "and committed")
        wait_until(
            lambda: client.committed("scenario.work", name, 0)[0] == stuck, "what was done before it is committed"
        )
        if order == "key":
            others = count - sum(1 for number in range(stuck, count) if number % 7 == stuck % 7)
            wait_until(lambda: sum(at == 0 for at, *_ in list(seen)) == others, "and what has other keys continues")
        free.set()
        wait_until(lambda: client.committed("scenario.work", name, 0)[0] == count, "the rest is handled")
    assert len(seen) == 2 * count, "nothing twice"
    lanes = [(b"%d" % at if order == "partition" else b"%d-%s" % (at, key), offset) for at, key, offset in seen]
    assert order_violations(lanes) == []


def test_on_a_single_partition_its_record_is_waited_for_and_everything_is_done_once(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client = topic(partitions=1), Client(kafka)
    app, free, seen = app_for(kafka), threading.Event(), []
    count, stuck = 400, 250

    @app.consumer(name)
    def work(value: bytes, ctx: Context) -> None:
        if ctx.offset == stuck:
            free.wait(DEADLINE_S)
        seen.append(ctx.offset)

    client.produce(name, [NewRecord(b"v", partition=0)] * count)
    with RunningApp(app) as running:
        inline = running.loop.starter._inline
        assert inline is not None
        wait_until(lambda: inline.takeovers > 0, "another thread drives the loop")
        wait_until(lambda: client.committed("scenario.work", name, 0)[0] == stuck, "what was done is committed")
        assert len(seen) == stuck
        free.set()
        wait_until(lambda: client.committed("scenario.work", name, 0)[0] == count, "the rest is handled")
        wait_until(lambda: running.loop.processed == count, "and counted")
    assert seen == list(range(count))
