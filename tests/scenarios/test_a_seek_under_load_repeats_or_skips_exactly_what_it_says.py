"""An operator moves a partition while its consumer is at work: exactly the records between are repeated or skipped, in
order, other partitions are not touched, and a restart goes on at the new position.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from typing import Literal

import pytest

from keepfast import Context
from keepfast.core.errors import ControlRefused, LifecycleError
from keepfast.core.policies import Order
from keepfast.core.records import TopicPartition
from keepfast.desk.desk import Desk, DeskOptions
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.members import connection
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until

RECORDS = 2500
PROTOCOLS = ("classic", "consumer")
Protocol = Literal["classic", "consumer"]


class Calls:
    """Which offsets the handler was called with, by partition, in the order in which it ended."""

    def __init__(self) -> None:
        self.offsets: dict[int, list[int]] = {0: [], 1: []}
        self.keys: dict[int, bytes | None] = {}
        self._lock = threading.Lock()

    def add(self, ctx: Context) -> None:
        with self._lock:
            self.offsets[ctx.partition].append(ctx.offset)
            if ctx.partition == 0:
                self.keys[ctx.offset] = ctx.key

    def has_all(self, partition: int, count: int) -> bool:
        return bool(self.offsets[partition]) and len(set(self.offsets[partition])) == count


def produce(client: Client, name: str) -> None:
    for partition in (0, 1):
        client.produce(
            name, (NewRecord(b"%d" % one, b"k%d" % (one % 37), partition=partition) for one in range(RECORDS))
        )


@pytest.mark.parametrize("group_protocol", PROTOCOLS)
def test_a_seek_back_by_1000_repeats_these_in_order(
    kafka: TopicAdmin, topic: TopicFactory, group_protocol: Protocol
) -> None:
    name, client, app, calls = topic(partitions=2), Client(kafka), app_for(kafka), Calls()

    @app.consumer(name, order="partition", group_protocol=group_protocol)
    def work(value: bytes, ctx: Context) -> None:
        time.sleep(0.0002)
        calls.add(ctx)

    produce(client, name)
    with RunningApp(app) as running:
        wait_until(lambda: len(calls.offsets[0]) > 1500, "it is at work")
        [own] = [one for one in running.local.positions("work") if one.partition == 0]
        done = running.local.seek("work", name, 0, own.position - 1000)
        assert done.committed
        assert done.repeats == done.position - done.to >= 1000
        wait_until(lambda: calls.offsets[0][-1] == RECORDS - 1, "the rest is processed")
        wait_until(lambda: calls.has_all(1, RECORDS), "so is the other partition")
    assert calls.offsets[0] == [*range(done.position), *range(done.to, RECORDS)]
    assert calls.offsets[1] == list(range(RECORDS)), "it was not touched"
    assert client.is_committed("scenario.work", name, RECORDS)


@pytest.mark.parametrize("group_protocol", PROTOCOLS)
def test_a_seek_forward_skips_what_lies_between(
    kafka: TopicAdmin, topic: TopicFactory, group_protocol: Protocol
) -> None:
    name, client, app, calls = topic(partitions=2), Client(kafka), app_for(kafka), Calls()

    @app.consumer(name, order="partition", group_protocol=group_protocol)
    def work(value: bytes, ctx: Context) -> None:
        time.sleep(0.0005)
        calls.add(ctx)

    produce(client, name)
    with RunningApp(app) as running:
        wait_until(lambda: len(calls.offsets[0]) > 200, "it is at work")
        done = running.local.seek("work", name, 0, RECORDS - 500)
        assert done.skips == done.to - done.position > 0
        wait_until(lambda: calls.offsets[0][-1] == RECORDS - 1, "the rest is processed")
        wait_until(lambda: calls.has_all(1, RECORDS), "so is the other partition")
    assert calls.offsets[0] == [*range(done.position), *range(done.to, RECORDS)]
    assert calls.offsets[1] == list(range(RECORDS))


@pytest.mark.parametrize("order", ["key", "none"])
def test_with_many_workers_the_same_records_are_repeated_and_keys_stay_in_order(
    kafka: TopicAdmin, topic: TopicFactory, order: Order
) -> None:
    name, client, app, calls = topic(partitions=2), Client(kafka), app_for(kafka), Calls()

    @app.consumer(name, order=order, concurrency=16)
    def work(value: bytes, ctx: Context) -> None:
        time.sleep(0.002)
        calls.add(ctx)

    produce(client, name)
    with RunningApp(app) as running:
        wait_until(lambda: len(calls.offsets[0]) > 1500, "it is at work")
        [own] = [one for one in running.local.positions("work") if one.partition == 0]
        done = running.local.seek("work", name, 0, max(0, own.position - 1000))
        wait_until(lambda: calls.has_all(0, RECORDS) and calls.has_all(1, RECORDS), "all is processed")
        wait_until(lambda: client.is_committed("scenario.work", name, RECORDS), "and committed")
    times = Counter(calls.offsets[0])
    repeated = sorted(offset for offset, count in times.items() if count > 1)
    assert set(times.values()) <= {1, 2}
    assert len(repeated) == done.repeats
    assert repeated[: done.position - done.to] == list(range(done.to, done.position)), "all of these, and some above"
    if order == "key":
        for key in set(calls.keys.values()):
            own_offsets = [offset for offset in calls.offsets[0] if calls.keys[offset] == key]
            breaks = sum(second <= first for first, second in pairwise(own_offsets))
            assert breaks <= 1, f"{key!r} went back once: {own_offsets}"


def test_a_restart_goes_on_where_the_seek_has_put_it(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, calls = topic(), Client(kafka), Calls()

    def started() -> RunningApp:
        app = app_for(kafka)

        @app.consumer(name, order="partition")
        def work(value: bytes, ctx: Context) -> None:
            calls.add(ctx)

        return RunningApp(app)

    client.produce(name, [b"v"] * 100)
    with started() as running:
        wait_until(lambda: len(calls.offsets[0]) == 100, "all are processed")
        running.local.pause("work", name, 0)
        assert running.local.seek("work", name, 0, 40).committed
        assert client.is_committed("scenario.work", name, 40)
    assert len(calls.offsets[0]) == 100, "it was paused"
    with started():
        wait_until(lambda: len(calls.offsets[0]) == 160, "the others come again")
    assert calls.offsets[0][100:] == list(range(40, 100))


def test_a_seek_to_a_time_finds_the_first_record_that_is_not_older(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app, calls = topic(), Client(kafka), app_for(kafka), Calls()

    @app.consumer(name)
    def work(value: bytes, ctx: Context) -> None:
        calls.add(ctx)

    client.produce(name, [b"before"] * 7)
    time.sleep(0.05)
    between = datetime.now(UTC)
    time.sleep(0.05)
    client.produce(name, [b"after"] * 5)
    with RunningApp(app) as running:
        wait_until(lambda: len(calls.offsets[0]) == 12, "all are processed")
        assert running.local.seek("work", name, 0, between).to == 7
        with pytest.raises(ControlRefused, match="time zone"):
            running.local.seek("work", name, 0, datetime(2026, 1, 1))  # noqa: DTZ001 - that is what is refused


@pytest.mark.parametrize("group_protocol", PROTOCOLS)
def test_a_partition_of_another_process_is_refused_with_its_owner(
    kafka: TopicAdmin, topic: TopicFactory, group_protocol: Protocol
) -> None:
    name = topic(partitions=2)

    def started(client_id: str) -> RunningApp:
        app = app_for(kafka, client_id=client_id)

        @app.consumer(name, group_protocol=group_protocol)
        def work(value: bytes) -> None: ...

        return RunningApp(app)

    with started("first") as one, started("second") as two:
        wait_until(lambda: (len(one.loop.ownership), len(two.loop.ownership)) == (1, 1), "each has one")
        [mine] = one.local.positions("work")
        [theirs] = two.local.positions("work")
        place = TopicPartition(name, theirs.partition)
        deadline = time.monotonic() + DEADLINE_S
        while True:  # the coordinator may still be finishing the rebalance
            with pytest.raises(ControlRefused) as caught:
                one.local.seek("work", *place, "beginning")
            if "It belongs to" in str(caught.value) or time.monotonic() > deadline:
                break
        assert str(caught.value).startswith(
            f"{place} is not assigned to this process. It belongs to second on 127.0.0.1"
        )
        assert one.local.seek("work", name, mine.partition, "beginning").done


def test_a_started_app_is_controlled_from_code(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app, calls = topic(), Client(kafka), app_for(kafka), Calls()
    place = TopicPartition(name, 0)

    @app.consumer(name, order="partition")
    def work(value: bytes, ctx: Context) -> None:
        calls.add(ctx)

    async def on_an_event_loop() -> None:
        app.seek("work", name, 0, to=0)

    with pytest.raises(LifecycleError, match="not started"):
        app.pause("work")
    client.produce(name, [b"v"] * 20)
    with app:
        wait_until(lambda: len(calls.offsets[0]) == 20, "all are processed")
        wait_until(lambda: app.lag("work") == {place: 0}, "nothing is left")
        assert app.position("work") == {place: 20}
        app.pause("work", name, 0)
        done = app.seek("work", name, 0, to="beginning")
        assert (done.position, done.to, done.repeats, done.committed) == (20, 0, 20, True)
        assert app.position("work") == {place: 0}
        wait_until(lambda: app.lag("work") == {place: 20}, "all of it is to be done again")
        app.resume("work", name, 0)
        wait_until(lambda: len(calls.offsets[0]) == 40, "all are processed again")
        with pytest.raises(LifecycleError, match="to_thread"):
            asyncio.run(on_an_event_loop())
        with pytest.raises(ControlRefused, match="There is no consumer 'wrok' here; there is work"):
            app.pause("wrok")
        with pytest.raises(ControlRefused, match="outside the log"):
            app.seek("work", name, 0, to=21)
    assert calls.offsets[0] == [*range(20), *range(20)]
    with closing(Desk(connection(kafka.bootstrap), DeskOptions(topics=(), by="test"))) as desk:
        entries = [one for one in reversed(desk.audit(10_000)) if name in one.what]
    words = [f"pause work {name} 0", f"seek work {name} 0 beginning", f"resume work {name} 0"]
    assert sorted((one.what, one.by, one.via) for one in entries) == sorted((one, app.name, "code") for one in words)
    assert all(one.result for one in entries)
