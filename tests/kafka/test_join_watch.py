"""A member that has silently stopped to join is noticed by the client's statistics, and no other is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from keepfast.core.errors import Fault
from keepfast.core.records import TopicPartition
from keepfast.kafka import Consuming, KafkaSource, source_properties
from keepfast.kafka.admin import KafkaAdmin
from keepfast.kafka.api_versions import ReportedVersions
from keepfast.kafka.config import Connection, admin_properties
from keepfast.kafka.join_watch import QUIET_S, has_given_up
from keepfast.testing.broker import KafkaBroker
from keepfast.testing.jars import CLASSIC_KAFKA_VERSION
from tests.support.broker_client import Client
from tests.support.members import GroupMember, drive, drive_for, new_group

OFTEN_S = 0.4


def statistics(cgrp: dict[str, Any] | None = None, **coordinator: Any) -> str:
    """Of a member whose coordinator does not support KIP-848, unless changed."""
    group = {"state": "up", "join_state": "init", "stateage": 4_100} | (cgrp or {})
    broker = {"source": "logical", "state": "UP", "stateage": 4_100_000, "tx": 4, "outbuf_cnt": 0, "waitresp_cnt": 0}
    requests = {"req": {"Metadata": 2, "ApiVersion": 2, "OffsetFetch": 0}}
    return json.dumps({"cgrp": group, "brokers": {"GroupCoordinator": broker | requests | coordinator}})


def test_a_member_that_has_sent_no_heartbeat_has_given_up() -> None:
    assert has_given_up(statistics())


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(statistics(waitresp_cnt=1), id="a heartbeat is unanswered"),
        pytest.param(statistics(outbuf_cnt=1), id="a heartbeat is being sent"),
        pytest.param(statistics(tx=5), id="a heartbeat was sent"),
        pytest.param(statistics(tx=5, req={"Metadata": 4, "ConsumerGroupHeartbeat": 1}), id="and is listed"),
        pytest.param(statistics(state="APIVERSION_QUERY"), id="not connected"),
        pytest.param(statistics(stateage=3_900_000), id="just connected"),
        pytest.param(statistics({"state": "wait-coord"}), id="no coordinator is known"),
        pytest.param(statistics({"stateage": 3_900}), id="a new coordinator"),
        pytest.param(statistics({"join_state": "steady"}), id="joined"),
        pytest.param("{}", id="another format"),
    ],
)
def test_a_member_that_tries_has_not(other: str) -> None:
    assert not has_given_up(other)


LIST = ["Broker API support:", "  ApiKey Heartbeat (12) Versions 0..4"]
PREVIEW, COMPLETE = (
    "  ApiKey ConsumerGroupHeartbeat (68) Versions 0..0",
    "  Feature MsgVer1: Produce (2..32767) supported",
)
SUPPORT = "  ApiKey ConsumerGroupHeartbeat (68) Versions 0..1"


@pytest.mark.parametrize(
    ("lines", "has"),
    [
        ([*LIST, SUPPORT, COMPLETE], True),
        ([*LIST, PREVIEW, COMPLETE], False),
        ([*LIST, COMPLETE], False),
        ([*LIST, PREVIEW], None),
        ([], None),
    ],
    ids=["supported", "a preview", "missing", "an unfinished list", "another log format"],
)
def test_the_versions_of_a_connection_count_when_its_list_is_complete(lines: list[str], has: bool | None) -> None:
    reported = ReportedVersions()
    for line in lines:
        reported.log(10, "%s [%s] %s", "APIVERSION", "rdkafka#producer-1", f"[thrd:b:9092/1]: b:9092/1: {line}")
    assert reported.has(68, 1) is has


def test_one_broker_without_the_request_decides_for_all() -> None:
    reported = ReportedVersions()
    for broker, versions in (("a:9092/1", SUPPORT), ("b:9092/2", PREVIEW)):
        for line in (versions, COMPLETE):
            reported.log(10, "%s [%s] %s", "APIVERSION", "rdkafka#producer-1", f"[thrd:{broker}]: {broker}: {line}")
    assert reported.has(68, 1) is False


# -- on real brokers --------------------------------------------------------------------------------------------------


def auto(bootstrap: str, group: str) -> KafkaSource:
    """As wired for brokers that did not say which protocol they support."""
    often = Connection(brokers=[bootstrap], properties={"statistics.interval.ms": round(OFTEN_S * 1000)})
    newer = source_properties(often, Consuming(group=group, group_protocol="consumer"))
    return KafkaSource(newer, classic=source_properties(often, Consuming(group=group)))


def test_an_older_broker_gets_a_classic_member_and_one_that_insists_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with KafkaBroker(version=CLASSIC_KAFKA_VERSION) as older:
        assert KafkaAdmin(admin_properties(Connection(brokers=[older.bootstrap]))).has_new_protocol(5) is False
        name = older.create_topic("orders.payment.v1", partitions=2)
        Client(older).produce(name, [b"{}"] * 10)
        with GroupMember(auto(older.bootstrap, new_group()), name) as member:
            drive([member], lambda: len(member.records) == 10)
            assert member.errors == []
        assert sum("group_protocol_classic" in record.getMessage() for record in caplog.records) == 1
        often = Connection(brokers=[older.bootstrap], properties={"statistics.interval.ms": round(OFTEN_S * 1000)})
        insists = KafkaSource(source_properties(often, Consuming(group=new_group(), group_protocol="consumer")))
        with GroupMember(insists, name) as member:
            drive([member], lambda: member.errors)
            assert {(error.fault, error.code) for error, _ in member.errors} == {(Fault.FATAL, "UNSUPPORTED_VERSION")}


def test_a_frozen_coordinator_is_never_taken_for_an_older_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with KafkaBroker() as broker:
        assert KafkaAdmin(admin_properties(Connection(brokers=[broker.bootstrap]))).has_new_protocol(5) is True
        name = broker.create_topic("orders.payment.v1")
        group = new_group()
        with GroupMember(auto(broker.bootstrap, group), name) as first:
            drive([first], lambda: first.owned)
            with GroupMember(auto(broker.bootstrap, group), name) as second:
                broker.pause()
                drive_for([second], 1.5 * QUIET_S)
                broker.resume()
                drive([first, second], lambda: first.owned or second.owned)
                Client(broker).produce(name, [b"{}"])
                drive([first, second], lambda: first.records or second.records)
                drive_for([second], 1.5 * QUIET_S)  # a member without partitions has joined, too
                assert {*first.owned, *second.owned} == {TopicPartition(name, 0)}
    assert not any("group_protocol_classic" in record.getMessage() for record in caplog.records)
