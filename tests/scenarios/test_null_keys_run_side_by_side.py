"""P3: null keys are unordered: with order="key" they run beside each other, also within one partition, and none of them
holds up a keyed record, or is held up by one.
"""

from __future__ import annotations

import threading

from keepfast import Context
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord, numbered
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until

AT_ONCE = 24


def test_null_keys_of_one_partition_run_at_the_same_time(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(), Client(kafka)
    app, together, met = app_for(kafka), threading.Barrier(AT_ONCE), []

    @app.consumer(name, order="key", concurrency=AT_ONCE)
    def work(value: bytes) -> None:
        together.wait(DEADLINE_S)  # breaks, and fails the record, unless so many are here at once
        met.append(value)

    client.produce(name, numbered(AT_ONCE * 3))
    with RunningApp(app) as running:
        wait_until(lambda: client.committed("scenario.work", name)[0] == AT_ONCE * 3, "all are committed")
        assert running.loop.counts.total().errors == 0
    assert sorted(met) == sorted(numbered(AT_ONCE * 3))


def test_a_stuck_null_key_blocks_no_other_and_is_not_passed_by_the_commit(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client = topic(), Client(kafka)
    app, free, seen = app_for(kafka), threading.Event(), []

    @app.consumer(name, order="key", concurrency=8)
    def work(value: bytes, ctx: Context) -> None:
        if ctx.offset == 0:
            free.wait(DEADLINE_S)
        seen.append((ctx.key, ctx.offset))

    # The stuck one first, then null keys and a key in turn.
    client.produce(name, [NewRecord(b"v", None if number % 2 == 0 else b"k") for number in range(101)])
    with RunningApp(app):
        wait_until(lambda: len(seen) == 100, "all but the stuck one are handled")
        wait_until(lambda: client.finished_above("scenario.work", name) == {*range(1, 101)}, "the map has the rest")
        assert client.committed("scenario.work", name)[0] == 0
        assert [offset for key, offset in seen if key == b"k"] == list(range(1, 101, 2))
        free.set()
        wait_until(lambda: client.is_committed("scenario.work", name, 101), "everything is committed")
    assert sorted(offset for _, offset in seen) == list(range(101))
