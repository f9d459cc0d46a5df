"""How a group scales: the same records with 1, 2 and 4 processes (`python -m bench.scaling`).

The handler waits, as one does for a service, and each process runs two records at most: what is measured is the
group that shares partitions out, not the processors of this machine. Records are sent when every member has its
share of the partitions; the clock runs from the fiftieth record on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from keepfast.testing import KafkaBroker

PARTITIONS, RECORDS, PROCESSES = 8, 1_600, (1, 2, 4)
WARM = 50
DEADLINE_S = 180.0
APP = """
import time
from keepfast import App

app = App("bench")

@app.consumer(concurrency=2)
def work(value: bytes) -> None:
    time.sleep(0.04)
"""


def main() -> int:
    """Prints a row for each number of processes."""
    with KafkaBroker() as broker, tempfile.TemporaryDirectory() as folder:
        Path(folder, "app.py").write_text(APP)
        print(f"{RECORDS:,} records, {PARTITIONS} partitions, handler waits 40 ms, 2 at a time in each process")
        base = None
        for processes in PROCESSES:
            topic = broker.create_topic(f"bench.scaling-{processes}.v1", partitions=PARTITIONS)
            rate = _rate(broker.bootstrap, folder, topic, processes)
            base = base or rate
            print(f"  {processes} processes: {rate:>6.0f} records/s, {rate / base:.2f} times one", flush=True)
    return 0


def _rate(bootstrap: str, folder: str, topic: str, processes: int) -> float:
    group = f"bench.work-{processes}"
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def done() -> int:
        return sum(max(0, place.offset) for place in reader.committed(places, timeout=10))

    try:
        with _running(
            {"KAFKA_BROKERS": bootstrap, "KAFKA_INPUT_TOPIC": topic, "KAFKA_CONSUMER_GROUP": group}, folder, processes
        ):
            _until(lambda: _shares(admin, group) == [PARTITIONS // processes] * processes)
            producer = Producer({"bootstrap.servers": bootstrap})
            for number in range(RECORDS):
                producer.produce(topic, b"x" * 200, partition=number % PARTITIONS)
            producer.flush()
            _until(lambda: done() >= WARM)
            begun, already = time.monotonic(), done()
            _until(lambda: done() == RECORDS)
            return (RECORDS - already) / (time.monotonic() - begun)
    finally:
        reader.close()


def _shares(admin: AdminClient, group: str) -> list[int]:
    """How many partitions each member has; none while the group is not there yet."""
    [asked] = admin.describe_consumer_groups([group]).values()
    try:
        return [len(member.assignment.topic_partitions) for member in asked.result(30).members]
    except (KafkaException, TimeoutError):
        return []


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"it did not come within {DEADLINE_S:g} s")
        time.sleep(0.02)


@contextmanager
def _running(variables: dict[str, str], folder: str, processes: int) -> Iterator[None]:
    environ = {**os.environ, **variables, "HEALTH_CHECK_ENABLED": "false"}
    command = [sys.executable, "-m", "keepfast", "run", "app:app", "--processes", str(processes)]
    process = subprocess.Popen(command, cwd=folder, env=environ, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


if __name__ == "__main__":
    sys.exit(main())
