"""Static membership under the supervisor: a kill -9 costs a restart, not a session timeout and no rebalance."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from holdfast.testing import ExistingBroker, KafkaBroker
from holdfast.testing.pytest_plugin import TopicFactory
from tests.cli.command import running, until

PARTITIONS = 4
SESSION_S = 60
"""The default. A member without a lasting name would be missed for so long before others take over."""

APP = """
import os
from holdfast import App, Context

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


def test_and_nothing_moves(tmp_path: Path, kafka: KafkaBroker | ExistingBroker, topic: TopicFactory) -> None:
    name = topic(partitions=PARTITIONS)
    (tmp_path / "app.py").write_text(APP.replace("TOPIC", name))
    options = ["--processes", "2", "--log-format", "json"]
    said = tmp_path / "said"
    with running("run", "app:app", *options, cwd=tmp_path, said=said, KAFKA_BROKERS=kafka.bootstrap) as parent:
        until(lambda: said.read_text().count('"assigned"') >= 2, "both are members")
        shares = _settled(tmp_path, kafka.bootstrap, name)
        victim = shares[0]
        os.kill(victim, signal.SIGKILL)
        begun = time.monotonic()
        values = produce(kafka.bootstrap, name, "after")
        until(partial(_all_processed, values, tmp_path), "the records produced after the kill")
        taken_s = time.monotonic() - begun
        after = {partition: pid for value, (pid, partition) in processed(tmp_path).items() if value in values}
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(60) == 0

    assert taken_s < SESSION_S / 2
    assert victim not in after.values()
    assert len(set(after.values())) == 2
    unmoved = {partition: pid for partition, pid in shares.items() if pid != victim}
    assert {partition: after[partition] for partition in unmoved} == unmoved


def _settled(folder: Path, bootstrap: str, topic: str) -> dict[int, int]:
    """Partition → process, once each of the two processes has two partitions."""
    for attempt in range(30):
        values = produce(bootstrap, topic, f"before{attempt}")
        until(partial(_all_processed, values, folder), "the records of a round")
        shares = {partition: pid for value, (pid, partition) in processed(folder).items() if value in values}
        pids = list(shares.values())
        if sorted(pids.count(pid) for pid in set(pids)) == [2, 2]:
            return shares
    raise AssertionError(f"the partitions were never shared evenly: {shares}")
