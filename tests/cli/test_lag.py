"""`keepfast lag` on a broker: records, seconds, states and letters, of an app, of a group and of all."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.command import keepfast

APP = """
from keepfast import App

app = App("shop")

@app.consumer({topic!r}, group={group!r}, dead_letter="{{topic}}.dlq")
def charge(payment: dict) -> None: ...

@app.consumer({topic!r}, order="queue", dead_letter="{{topic}}.dlq")
def refund(payment: dict) -> None: ...
"""


def fill(kafka: TopicAdmin, topic: str, partition: int, count: int, *, age_s: float) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for _ in range(count):
        producer.produce(topic, b"{}", partition=partition, timestamp=int((time.time() - age_s) * 1000))
    assert producer.flush(20) == 0


def commit(kafka: TopicAdmin, group: str, *places: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    consumer.commit(offsets=list(places), asynchronous=False)
    consumer.close()


def test_lag_in_records_and_seconds_states_and_letters(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic(partitions=3)
    group = f"group-of-{name}"
    fill(kafka, name, 0, 3, age_s=600)
    fill(kafka, name, 1, 2, age_s=60)
    commit(kafka, group, TopicPartition(name, 0, 1), TopicPartition(name, 1, 2))
    (tmp_path / "shop.py").write_text(APP.format(topic=name, group=group))
    where = {"KAFKA_BROKERS": kafka.bootstrap}

    done = keepfast("lag", "shop:app", "--for", "0", "--json", cwd=tmp_path, **where)
    assert done.returncode == 0, done.stderr
    assert "refund is a queue: the client has no request for its lag" in done.stderr
    reported = json.loads(done.stdout)
    by_partition: dict[int, Any] = {one["partition"]: one for one in reported["partitions"]}
    assert [by_partition[number]["lag"] for number in range(3)] == [2, 0, 0]
    assert 600 <= by_partition[0]["lag_s"] < 700
    assert by_partition[1]["lag_s"] == 0
    assert [by_partition[number]["state"] for number in range(3)] == ["stopped", "ok", "ok"]
    assert by_partition[2]["committed"] is None
    assert (reported["lag"], reported["dead_letters"]) == (2, {f"{name}.dlq": None})

    table = keepfast("lag", group, "--for", "0", cwd=tmp_path, **where)
    assert table.returncode == 0, table.stderr
    head, first, second = table.stdout.splitlines()
    assert head.split() == ["GROUP", "TOPIC", "PART", "COMMITTED", "END", "LAG", "SECONDS", "STATE"]
    assert first.split()[:6] == [group, name, "0", "1", "3", "2"]
    assert first.split()[-1] == "stopped"
    assert second.split()[2:6] == ["1", "2", "2", "0"], "of a group that is no app, what it has committed"

    every = keepfast("lag", "--for", "0", "--json", cwd=tmp_path, **where)
    assert group in {one["group"] for one in json.loads(every.stdout)["partitions"]}

    unknown = keepfast("lag", "nobody", cwd=tmp_path, **where)
    assert unknown.returncode == 2
    assert "There is no group 'nobody'" in unknown.stderr
