"""P1, P2: an unclean election throws acknowledged records away, and others get their offsets. A group that had
processed what is gone does not skip these: the commit has the leader epoch of its log, the start is verified, and the
group continues at the beginning, also if it was down meanwhile.
"""

from __future__ import annotations

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined] # public, says its docstring

from keepfast.testing.broker import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from tests.support.broker_client import Client, NewRecord, numbered
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

GROUP = "scenario.work"


def processed_until(end: int, client: Client, name: str) -> tuple[list[bytes], list[object]]:
    """Run the app until its group is at `end`; returns the values it processed, and why its position was reset."""
    app, seen = app_for(client.broker), list[bytes]()

    @app.consumer(name)
    def work(value: bytes) -> None:
        seen.append(value)

    with RunningApp(app) as running:
        wait_until(lambda: client.committed(GROUP, name)[0] == end, "all is committed")
    return seen, [printed.fields["reason"] for printed in running.log.of("partition_reset")]


def test_a_commit_of_an_epoch_that_the_log_does_not_have_is_reset(kafka: KafkaBroker, topic: TopicFactory) -> None:
    name, client = topic(), Client(kafka)
    client.produce(name, numbered(20))
    client.commit(GROUP, name, 15, leader_epoch=7)
    app, seen = app_for(kafka), list[bytes]()

    @app.consumer(name)
    def work(value: bytes) -> None:
        seen.append(value)

    with RunningApp(app) as running:
        wait_until(lambda: client.committed(GROUP, name)[0] == 20, "the end is committed")
    assert seen == numbered(20)
    (printed,) = running.log.of("partition_reset")
    assert printed.fields.items() >= {"offset": 15, "reason": "offset_out_of_range"}.items()
    assert client.leader_epoch(GROUP, name) == 0


@pytest.mark.long
def test_records_of_the_new_leader_are_not_skipped(cluster: KafkaBroker) -> None:
    name, client = "cut", Client(cluster)
    first, second = 1, 2
    unclean = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    asked = NewTopic(name, num_partitions=1, replica_assignment=[[first, second]], config=unclean)
    cluster.admin.create_topics([asked])[name].result(30)
    cluster.create_topic(f"{name}.dlq")
    wait_until(lambda: cluster.leader(name) == first, "the topic has its leader")
    client.produce(name, [NewRecord(value) for value in numbered(30)])
    assert processed_until(30, client, name) == (numbered(30), [])
    cluster.kill(second)
    wait_until(lambda: len(cluster.admin.list_topics(name, 30).topics[name].partitions[0].isrs) == 1, "one in sync")
    client.produce(name, [NewRecord(value) for value in numbered(10, start=30)])
    assert processed_until(40, client, name) == (numbered(10, start=30), [])
    cluster.kill(first)
    cluster.restart(second)
    wait_until(lambda: cluster.leader(name) == second, "the one that lacks ten records leads")
    fresh = Client(cluster)
    fresh.produce(name, [NewRecord(value) for value in numbered(20, start=1_000)])
    left = numbered(30) + numbered(20, start=1_000)
    assert processed_until(50, fresh, name) == (left, ["offset_out_of_range"])
    cluster.start()
