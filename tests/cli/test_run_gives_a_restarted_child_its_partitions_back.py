"""Static membership under the supervisor: a child that is killed or stopped costs a restart, and no rebalance; when
the supervisor stops, the names that it gave its children are given up.
"""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from keepfast.testing import ExistingBroker, KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from tests.support.command import running
from tests.support.members import static_members
from tests.support.waiting import wait_until

PARTITIONS = 4
GROUP = "till.charge"
QUICK = {"KEEPFAST_CONSUMER_UNSAFE_TIMINGS": "true", "KEEPFAST_CONSUMER_HEARTBEAT_INTERVAL_MS": "1000"}
"""A member hears of a rebalance with a heartbeat."""
SESSION_S = 60
"""The default. A member without a lasting name would be missed for so long before others take over."""

APP = """
import os
from keepfast import App, Context

app = App("till")

@app.consumer("TOPIC")
def charge(payment: bytes, ctx: Context) -> None:
    with open("journal", "a") as file:
        file.write(f"{os.getpid()} {ctx.partition} {payment.decode()}\\n")
"""


def processed(folder: Path) -> dict[str, tuple[int, int]]:
    """Record → (process, partition) that it was processed by and in."""
    journal = folder / "journal"
    lines = journal.read_text().splitlines() if journal.exists() else []
    return {value: (int(pid), int(partition)) for pid, partition, value in (line.split() for line in lines)}


def _all_processed(values: set[str], folder: Path) -> bool:
    return values <= processed(folder).keys()


def produce(bootstrap: str, topic: str, name: str) -> set[str]:
    """One record into each partition; returns their values."""
    producer = Producer({"bootstrap.servers": bootstrap})
    values = {f"{name}-{partition}" for partition in range(PARTITIONS)}
    for partition in range(PARTITIONS):
        producer.produce(topic, f"{name}-{partition}".encode(), partition=partition)
    assert producer.flush(20) == 0
    return values


@pytest.mark.timing
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_and_nothing_moves(
    tmp_path: Path, kafka: KafkaBroker | ExistingBroker, topic: TopicFactory, number: signal.Signals
) -> None:
    name = topic(partitions=PARTITIONS)
    (tmp_path / "app.py").write_text(APP.replace("TOPIC", name))
    options = ["--processes", "2", "--log-format", "json"]
    printed = tmp_path / "printed"
    environ = {"KAFKA_BROKERS": kafka.bootstrap, **QUICK}
    with running("run", "app:app", *options, cwd=tmp_path, printed=printed, **environ) as parent:
        wait_until(lambda: printed.read_text().count('"partitions_assigned"') >= 2, "both are members")
        shares = _settled(tmp_path, kafka.bootstrap, name)
        victim = shares[0]
        os.kill(victim, number)
        wait_until(lambda: '"child_ended"' in printed.read_text(), "the end of the child")
        begun = time.monotonic()
        values = produce(kafka.bootstrap, name, "after")
        wait_until(partial(_all_processed, values, tmp_path), "the records produced after the kill")
        taken_s = time.monotonic() - begun
        after = {partition: pid for value, (pid, partition) in processed(tmp_path).items() if value in values}
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(60) == 0

    assert static_members(kafka.bootstrap, GROUP) == []
    assert taken_s < SESSION_S / 2
    assert victim not in after.values()
    assert len(set(after.values())) == 2
    unmoved = {partition: pid for partition, pid in shares.items() if pid != victim}
    assert {partition: after[partition] for partition in unmoved} == unmoved


def test_a_name_that_was_configured_is_kept_for_the_next_start(
    tmp_path: Path, kafka: KafkaBroker | ExistingBroker, topic: TopicFactory
) -> None:
    name = topic(partitions=PARTITIONS)
    (tmp_path / "app.py").write_text(APP.replace("TOPIC", name))
    printed = tmp_path / "printed"
    environ = {"KAFKA_BROKERS": kafka.bootstrap, "KAFKA_CONSUMER_GROUP": name, **QUICK}
    environ["KEEPFAST_CONSUMER_GROUP_INSTANCE_ID"] = "till"
    with running("run", "app:app", "--processes", "2", cwd=tmp_path, printed=printed, **environ) as parent:
        wait_until(lambda: len(static_members(kafka.bootstrap, name)) == 2, "both are members")
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(60) == 0
    assert static_members(kafka.bootstrap, name) == ["till-0", "till-1"]


def _settled(folder: Path, bootstrap: str, topic: str) -> dict[int, int]:
    """Partition → process, once each of the two processes has two partitions."""
    for attempt in range(30):
        values = produce(bootstrap, topic, f"before{attempt}")
        wait_until(partial(_all_processed, values, folder), "the records of a round")
        shares = {partition: pid for value, (pid, partition) in processed(folder).items() if value in values}
        pids = list(shares.values())
        if sorted(pids.count(pid) for pid in set(pids)) == [2, 2]:
            return shares
    raise AssertionError(f"the partitions were never shared evenly: {shares}")
