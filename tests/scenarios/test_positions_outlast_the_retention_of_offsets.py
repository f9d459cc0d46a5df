"""P1, P2: Kafka forgets an offset some time after it was committed, under KIP-848 also that of a partition that was
owned and quiet all that time. Members commit their positions again, so that a group which is stopped for a moment finds
them all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from keepfast.testing import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

GROUP = "scenario.work"
RETENTION_S = 60.0
"""The least that the brokers take."""


@pytest.fixture
def forgetful() -> Iterator[KafkaBroker]:
    config = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
    with KafkaBroker(config=config) as broker:
        yield broker


def test_the_retention_is_read_from_the_brokers(kafka: KafkaBroker, topic: TopicFactory) -> None:
    app, name = app_for(kafka), topic()

    @app.consumer(name)
    def work(value: bytes) -> None: ...

    with RunningApp(app) as running:
        assert running.loop.plan.renewed_every_s == 24 * 3600, "a quarter of seven days, at most a day"


@pytest.mark.long
def test_a_quiet_partition_keeps_its_position_through_a_stop_of_all_members(forgetful: KafkaBroker) -> None:
    """The broker looks every second what is older than its retention, once the group has no members."""
    client, name = Client(forgetful), forgetful.create_topic("quiet", partitions=2)
    app = app_for(forgetful)

    @app.consumer(name, group_protocol="consumer")
    def work(value: bytes) -> None: ...

    def committed() -> list[int | None]:
        return [client.committed(GROUP, name, partition)[0] for partition in (0, 1)]

    client.produce(name, [NewRecord(b"v", partition=0)] * 5)
    with RunningApp(app) as running:
        assert running.loop.plan.renewed_every_s == RETENTION_S / 4
        wait_until(lambda: committed() == [5, 0], "the records are committed, and the start of the empty partition")
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() > begun + RETENTION_S + 5, "these commits are too old")
    stopped = time.monotonic()
    wait_until(lambda: time.monotonic() > stopped + 5 or committed() != [5, 0], "the broker has looked")
    assert committed() == [5, 0]
