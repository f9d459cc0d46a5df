"""The cluster of three nodes under the tests and the proxy in front of it: what faults of either do to clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from keepfast.testing import ExistingBroker, KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from tests.support.broker_proxy import PRODUCE, BrokerProxy
from tests.support.waiting import wait_until

QUICK = {"reconnect.backoff.max.ms": 500, "log_level": 0}


@pytest.fixture
def topic(cluster: KafkaBroker, request: pytest.FixtureRequest) -> TopicFactory:
    return TopicFactory(cluster, request.node.name)


@pytest.fixture
def proxy(cluster: KafkaBroker) -> Iterator[BrokerProxy]:
    with BrokerProxy(cluster.bootstrap) as proxy:
        yield proxy


def produce(bootstrap: str, topic: str, value: bytes, **properties: int) -> None:
    outcomes: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUICK, **properties})
    producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(60) == 0
    assert outcomes == [None]


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", **QUICK})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []

    def step() -> None:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())

    wait_until(lambda: len(found) >= count, f"{count} records", between=step)
    consumer.close()
    return found


def test_records_survive_the_death_of_their_leader(cluster: KafkaBroker, topic: TopicFactory) -> None:
    name = topic()
    produce(cluster.bootstrap, name, b"before")
    leader = cluster.leader(name)
    cluster.kill(leader)
    wait_until(lambda: cluster.leader(name) not in (-1, leader), "another node leads")
    produce(cluster.bootstrap, name, b"after")
    assert read(cluster.bootstrap, name, 2) == [b"before", b"after"]
    cluster.start()
    assert sorted(cluster.admin.list_topics(timeout=30).topics[name].partitions[0].isrs) == [1, 2, 3]


def test_a_rolling_restart_replaces_every_process_and_keeps_the_records(
    cluster: KafkaBroker, topic: TopicFactory
) -> None:
    name = topic()
    produce(cluster.bootstrap, name, b"before")
    before = [node.pid for node in cluster.nodes]
    cluster.roll()
    assert all(old != node.pid for old, node in zip(before, cluster.nodes, strict=True))
    produce(cluster.bootstrap, name, b"after")
    assert read(cluster.bootstrap, name, 2) == [b"before", b"after"]


def test_a_frozen_node_loses_its_partitions_and_comes_back(cluster: KafkaBroker, topic: TopicFactory) -> None:
    name = topic()
    leader = cluster.leader(name)
    cluster.pause(leader)
    try:
        wait_until(lambda: cluster.leader(name) not in (-1, leader), "another node leads")
    finally:
        cluster.resume(leader)
    cluster.wait_ready()


def test_behind_the_proxy_clients_never_connect_to_the_brokers_themselves(
    cluster: KafkaBroker, topic: TopicFactory, proxy: BrokerProxy
) -> None:
    name = topic()
    answer = cluster.admin.list_topics(timeout=30)
    assert {f"{one.host}:{one.port}" for one in answer.brokers.values()} == set(cluster.bootstrap.split(","))
    answer = ExistingBroker(proxy.bootstrap).admin.list_topics(timeout=30)
    assert {f"{one.host}:{one.port}" for one in answer.brokers.values()} == set(proxy.bootstrap.split(","))
    produce(proxy.bootstrap, name, b"v")
    assert read(proxy.bootstrap, name, 1) == [b"v"]


def test_a_lost_reply_is_lost_once(cluster: KafkaBroker, topic: TopicFactory, proxy: BrokerProxy) -> None:
    name = topic()
    proxy.lose_reply(PRODUCE)
    produce(proxy.bootstrap, name, b"v", **{"socket.timeout.ms": 1_000})
    assert proxy.lost == [PRODUCE]
    assert read(cluster.bootstrap, name, 1) == [b"v"]


def test_connections_that_were_forgotten_stay_silent_and_new_ones_work(topic: TopicFactory, proxy: BrokerProxy) -> None:
    name = topic()
    produce(proxy.bootstrap, name, b"first")
    proxy.hold()
    proxy.forget_connections()
    proxy.release()
    produce(proxy.bootstrap, name, b"second")
    assert read(proxy.bootstrap, name, 2) == [b"first", b"second"]
