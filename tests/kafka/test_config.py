"""What the client is told."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from keepfast.kafka.config import (
    Connection,
    Consuming,
    Producing,
    admin_properties,
    is_incremental,
    plain_addresses,
    sink_properties,
    source_properties,
    transaction_properties,
)

HERE = Connection(brokers=["127.0.0.1:1", "127.0.0.1:2"], properties={"log_level": 0})


@pytest.mark.parametrize(
    "consuming",
    [
        Consuming(group="g"),
        Consuming(group="g", assignor="range"),
        Consuming(group="g", group_instance_id="one"),
        Consuming(group="g", group_protocol="consumer"),
        Consuming(group="g", client_queue_bytes=1024 * 1024),
        Consuming(group="g", client_queue_bytes=2_147_482_624),
    ],
)
def test_the_client_takes_what_we_tell_it(consuming: Consuming) -> None:
    Consumer(source_properties(HERE, consuming)).close()


def test_the_producer_and_the_admin_client_take_what_we_tell_them() -> None:
    Producer(sink_properties(HERE))
    Producer(sink_properties(HERE, Producing(delivery_timeout_ms=1_000, linger_ms=5)))
    AdminClient(admin_properties(HERE))


def test_the_consumer_protocol_gets_none_of_the_keys_it_refuses() -> None:
    properties = source_properties(HERE, Consuming(group="g", group_protocol="consumer"))
    assert not properties.keys() & {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}


def test_offsets_are_never_moved_by_the_client() -> None:
    user = {"enable.auto.commit": True, "enable.auto.offset.store": True, "auto.offset.reset": "latest"}
    properties = source_properties(Connection(brokers=["b:1"], properties=user), Consuming(group="g"))
    assert properties["enable.auto.commit"] is False
    assert properties["enable.auto.offset.store"] is False
    assert properties["auto.offset.reset"] == "error"


def test_topics_are_looked_at_every_30_s_for_partitions_that_were_added_or_as_the_user_says() -> None:
    name = "topic.metadata.refresh.interval.ms"
    for protocol in ("classic", "consumer"):
        assert source_properties(HERE, Consuming(group="g", group_protocol=protocol))[name] == 30_000
    user = Connection(brokers=["b:1"], properties={name: 10_000})
    assert source_properties(user, Consuming(group="g"))[name] == 10_000


def test_a_property_of_the_user_beats_a_default_of_ours() -> None:
    user = Connection(brokers=["b:1"], properties={"fetch.queue.backoff.ms": 7, "linger.ms": 3})
    assert source_properties(user, Consuming(group="g"))["fetch.queue.backoff.ms"] == 7
    assert sink_properties(user)["linger.ms"] == 3


@pytest.mark.parametrize(
    ("consuming", "expected"),
    [
        (Consuming(group="g"), 10_000),
        (Consuming(group="g", group_protocol="consumer", session_timeout_ms=0), 10_000),
        (Consuming(group="g", session_timeout_ms=6_000, heartbeat_interval_ms=1_000), 5_000),
        (Consuming(group="g", fetch_max_wait_ms=30_000), 31_000),
    ],
)
def test_a_request_of_a_consumer_is_repeated_within_its_session(consuming: Consuming, expected: int) -> None:
    properties = source_properties(HERE, consuming)
    assert properties["socket.timeout.ms"] == expected
    Consumer(properties).close()


def test_a_request_of_a_producer_is_repeated_before_its_records_fail() -> None:
    names = ("request.timeout.ms", "socket.timeout.ms", "delivery.timeout.ms")
    assert [sink_properties(HERE)[name] for name in names] == [10_000, 10_000, 30_000]
    quick = sink_properties(HERE, Producing(delivery_timeout_ms=3_000))
    assert [quick[name] for name in names] == [1_000, 1_000, 3_000]
    user = Connection(brokers=["b:1"], properties={"socket.timeout.ms": 20_000, "request.timeout.ms": 15_000})
    assert [sink_properties(user)[name] for name in names] == [15_000, 20_000, 30_000]


@pytest.mark.parametrize("timeout_ms", [None, 60_000])
def test_a_producer_of_transactions_is_made_whatever_timeout_the_user_has_chosen(timeout_ms: int | None) -> None:
    chosen = {} if timeout_ms is None else {"socket.timeout.ms": timeout_ms}
    properties = transaction_properties(
        Connection(brokers=["127.0.0.1:1"], properties=chosen | {"log_level": 0}), "g", "m"
    )
    Producer(properties)
    assert properties["socket.timeout.ms"] < properties["transaction.timeout.ms"] + 100


def test_the_sink_waits_for_all_replicas_whatever_the_user_says() -> None:
    user = Connection(brokers=["b:1"], properties={"acks": "1", "enable.idempotence": False})
    properties = sink_properties(user)
    assert (properties["acks"], properties["enable.idempotence"]) == ("all", True)


def test_memory_of_the_client_is_bounded_by_the_setting() -> None:
    properties = source_properties(HERE, Consuming(group="g", client_queue_bytes=8 * 1024 * 1024))
    assert properties["queued.max.messages.kbytes"] == 8 * 1024
    assert properties["fetch.max.bytes"] <= 8 * 1024 * 1024


def test_passwords_do_not_show() -> None:
    secret = Connection(
        brokers=["b:1"], sasl_password="hush", ssl_key_password="hush", properties={"ssl.keystore.password": "hush"}
    )
    assert "hush" not in repr(secret)


@pytest.mark.parametrize(
    ("consuming", "incremental"),
    [
        (Consuming(group="g"), True),
        (Consuming(group="g", assignor="range"), False),
        (Consuming(group="g", assignor="roundrobin"), False),
        (Consuming(group="g", group_protocol="consumer", assignor="range"), True),
    ],
)
def test_whether_partitions_come_one_by_one_follows_from_the_protocol(consuming: Consuming, incremental: bool) -> None:
    assert is_incremental(source_properties(HERE, consuming)) is incremental


def test_without_an_assignor_the_client_is_eager() -> None:
    assert is_incremental({"group.id": "g"}) is False


def test_addresses_in_a_command_have_no_login() -> None:
    assert plain_addresses(["kafka-1:9092", " [::1]:9092"]) == "kafka-1:9092,[::1]:9092"
    assert plain_addresses(["SASL_SSL://app:secret@kafka-1:9092"]) == "kafka-1:9092"
    assert plain_addresses(["app:secret@kafka-1:9092", "SSL://kafka-2:9092"]) == "kafka-1:9092,kafka-2:9092"
