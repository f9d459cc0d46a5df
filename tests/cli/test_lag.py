"""`keepfast lag` on a broker: records, seconds, states and letters, of an app, of a group and of all."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from keepfast.core.commit_metadata import CompletionMap, encode
from keepfast.testing import EmbeddedBroker
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.command import keepfast, running
from tests.support.waiting import wait_until

APP = """
from keepfast import App

app = App("shop")

@app.consumer({topic!r}, group={group!r}, dead_letter="{{topic}}.dlq")
def charge(payment: dict) -> None: ...

@app.consumer({topic!r}, order="queue", dead_letter="{{topic}}.dlq")
def refund(payment: dict) -> None: ...
"""
WITH_RETRY_TOPIC = """
from keepfast import App, RetryPolicy, RetryTopics

app = App("shop")

@app.consumer(
    {topic!r},
    group={group!r},
    retry=RetryPolicy(max_retries=0),
    retry_topics=RetryTopics(delays=("1m",), allow_reorder=True),
)
def charge(payment: dict) -> None:
    raise ConnectionError("not now")
"""


def fill(bootstrap: str, topic: str, partition: int, count: int, *, age_s: float) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
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
    fill(kafka.bootstrap, name, 0, 3, age_s=600)
    fill(kafka.bootstrap, name, 1, 2, age_s=60)
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


def test_finished_records_above_a_gap_and_a_position_beyond_the_end_are_shown(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    group, where = f"group-of-{name}", {"KAFKA_BROKERS": kafka.bootstrap}
    fill(kafka.bootstrap, name, 0, 9, age_s=0)
    fill(kafka.bootstrap, name, 1, 3, age_s=0)
    finished = encode(CompletionMap.from_int(2, 0b0111_0110))  # 3, 4, 6, 7 and 8
    commit(kafka, group, TopicPartition(name, 0, 2, finished), TopicPartition(name, 1, 28_978))

    done = keepfast("lag", group, "--for", "0", "--json", cwd=tmp_path, **where)
    assert done.returncode == 0, done.stderr
    by_partition = {one["partition"]: one for one in json.loads(done.stdout)["partitions"]}
    split = [(one["lag"], one["behind"], one["finished_above"]) for _, one in sorted(by_partition.items())]
    assert split == [(7, 2, 5), (0, 0, 0)]
    assert by_partition[1]["state"] == "beyond_end"

    head, first, second = keepfast("lag", group, "--for", "0", cwd=tmp_path, **where).stdout.splitlines()
    assert head.split()[5:] == ["LAG", "BEHIND", "FINISHED", "SECONDS", "STATE"]
    assert first.split()[-5:-2] == ["7", "2", "5"]
    assert (second.split()[-7:-4], second.split()[-1]) == (["28978", "3", "0"], "beyond_end")


def test_without_a_partition_to_show_it_says_why(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic(partitions=1)
    (tmp_path / "shop.py").write_text(APP.format(topic=name, group=f"{name}.charge"))
    without_commits = keepfast("lag", "shop:app", "--for", "0", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
    assert without_commits.stdout.splitlines()[1].split()[1:6] == [name, "0", "-", "0", "0"], without_commits.stderr
    kafka.delete_topic(name)
    of_app = keepfast("lag", "shop:app", "--for", "0", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
    assert of_app.stdout.splitlines()[0] == f"None of these topics exists: {name}.", of_app.stderr
    with EmbeddedBroker() as broker:
        unnamed = keepfast("lag", "--for", "0", cwd=tmp_path, KAFKA_BROKERS=broker.bootstrap)
    assert unnamed.stdout == "The embedded broker lists no groups: name the group, or MODULE:APP.\n", unnamed.stderr


def states_beside_a_record_that_waits(bootstrap: str, topic: str, folder: Path) -> set[str]:
    """The states that `keepfast lag` reports for the lagging partitions of a retry topic."""
    group, where = f"{topic}.charge", {"KAFKA_BROKERS": bootstrap}
    (folder / "shop.py").write_text(WITH_RETRY_TOPIC.format(topic=topic, group=group))

    def states(observed_s: float) -> set[str]:
        done = keepfast("lag", "shop:app", "--for", str(observed_s), "--json", cwd=folder, **where)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)["partitions"]
        return {one["state"] for one in found if one["topic"] == f"{topic}.{group}.retry.1m" and one["lag"]}

    fill(bootstrap, topic, 0, 1, age_s=0)
    with running("run", "shop:app", cwd=folder, printed=folder / "printed", **where):
        wait_until(lambda: states(0), "the record is in its retry topic")
        return states(4.1)


def test_a_record_that_waits_in_a_retry_topic_is_not_stalled(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> None:
    assert states_beside_a_record_that_waits(kafka.bootstrap, topic(partitions=1), tmp_path) == {"waiting"}


def test_a_record_that_waits_in_a_retry_topic_of_the_embedded_broker_is_not_stalled(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        for name in ("orders", "shop.orders.dlq", "orders.orders.charge.retry.1m"):
            broker.create_topic(name)
        assert states_beside_a_record_that_waits(broker.bootstrap, "orders", tmp_path) == {"waiting"}
