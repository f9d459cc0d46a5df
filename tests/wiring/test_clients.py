"""Which group protocol a consumer is made for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keepfast.kafka import KafkaAdmin, admin_properties
from keepfast.settings import AppSpec, Settings, load
from keepfast.testing.embedded import EmbeddedBroker
from keepfast.wiring.clients import EMBEDDED_SESSION_MS, connection_of, in_two_rounds, source_of
from keepfast.wiring.cluster import ClusterFacts, preflight

TOPIC = "orders.payment.v1"


def settings_of(cwd: Path, brokers: str = "127.0.0.1:1", **charge: Any) -> Settings:
    spec = AppSpec(name="payments", consumers={"charge": {"topics": TOPIC, **charge}})
    return load(spec, environ={"KAFKA_BROKERS": brokers}, cwd=cwd)


def protocols(settings: Settings, cluster: ClusterFacts) -> tuple[str, bool]:
    """The first one to be tried, and whether classic comes after it."""
    source = source_of(settings.consumers["charge"], settings.kafka, cluster)
    return source._properties["group.protocol"], source._classic is not None


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({}, ("consumer", True)),
        ({"group_protocol": "consumer"}, ("consumer", False)),
        ({"group_protocol": "classic"}, ("classic", False)),
        ({"group_instance_id": "till"}, ("classic", False)),
        ({"session_timeout_ms": 30_000}, ("classic", False)),
        ({"heartbeat_interval_ms": 15_000}, ("classic", False)),
        ({"assignor": "range"}, ("classic", False)),
    ],
)
def test_by_its_settings(tmp_path: Path, reported: dict[str, Any], expected: tuple[str, bool]) -> None:
    assert protocols(settings_of(tmp_path, **reported), ClusterFacts({}, {}, {}, {})) == expected


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({}, False),
        ({"group_protocol": "classic"}, False),
        ({"group_instance_id": "till"}, True),
        ({"group_instance_id": "till", "assignor": "range"}, False),
        ({"group_instance_id": "till", "group_protocol": "consumer"}, False),
    ],
)
def test_whether_it_looks_for_partitions_without_an_owner(
    tmp_path: Path, reported: dict[str, Any], expected: bool
) -> None:
    assert in_two_rounds(settings_of(tmp_path, **reported).consumers["charge"]) is expected


def test_classic_with_short_sessions_on_the_embedded_broker(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC)
        broker.create_topic("orders.payment.dlq")
        settings = settings_of(tmp_path, broker.bootstrap)
        admin = KafkaAdmin(admin_properties(connection_of(settings.kafka)))
        cluster = preflight(admin, list(settings.consumers.values()), wait=False)
    assert protocols(settings, cluster) == ("classic", False)
    source = source_of(settings.consumers["charge"], settings.kafka, cluster)
    assert source._properties["session.timeout.ms"] == EMBEDDED_SESSION_MS  # a restarted app waits for it
