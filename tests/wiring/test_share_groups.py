"""The share group of a queue: its configuration on the broker, and what follows from its lock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keepfast.cli.doctor_topics import ClusterView, findings
from keepfast.core.errors import StartError
from keepfast.kafka.probe import TopicProbe
from keepfast.settings import AppSpec, ConsumerSettings, load
from keepfast.wiring.share_groups import ISOLATION, LIMIT, LOCK, RESET, differences, fitted

TOPIC = "orders.payment.v1"
AS_WANTED = {LOCK: "30000", RESET: "earliest", ISOLATION: "read_committed", LIMIT: "5"}
AS_DELIVERED = {LOCK: "30000", RESET: "latest", ISOLATION: "read_uncommitted", LIMIT: "5"}


def queue(cwd: Path, **options: Any) -> ConsumerSettings:
    spec = AppSpec(name="payments", consumers={"charge": {"topics": TOPIC, "order": "queue", **options}})
    return load(spec, environ={}, cwd=cwd).consumers["charge"]


def test_a_handler_and_its_retries_have_the_lock_less_5_seconds(tmp_path: Path) -> None:
    own = fitted(queue(tmp_path), AS_WANTED, bootstrap="kafka-1:9092")
    assert (own.lock_s, own.timeout.timeout_s, own.retry.max_elapsed_s) == (30.0, 25.0, 25.0)
    own = fitted(queue(tmp_path, timeout_s=10, retry={"max_elapsed_s": 4}), AS_WANTED, bootstrap="kafka-1:9092")
    assert (own.timeout.timeout_s, own.retry.max_elapsed_s) == (10, 4)


def test_what_the_settings_say_otherwise_is_what_is_configured(tmp_path: Path) -> None:
    assert differences(queue(tmp_path), AS_DELIVERED) == {RESET: "earliest", ISOLATION: "read_committed"}
    assert differences(queue(tmp_path, lock_s=20), AS_WANTED) == {LOCK: "20000"}


@pytest.mark.parametrize(
    ("options", "config", "part"),
    [
        ({}, AS_DELIVERED, "share.auto.offset.reset is latest"),
        ({}, AS_DELIVERED, "--bootstrap-server kafka-1:9092, or the settings"),
        ({}, {}, "the broker has no share groups"),
        ({"timeout_s": 26}, AS_WANTED, "it may be 25 at most"),
        ({"max_deliveries": 5}, AS_WANTED, "drops a record silently at its delivery 5"),
        ({}, AS_WANTED | {LOCK: "5000"}, "leaves no time"),
    ],
)
def test_what_does_not_fit_stops_the_start(
    tmp_path: Path, options: dict[str, Any], config: dict[str, str], part: str
) -> None:
    own = queue(tmp_path, **options)
    with pytest.raises(StartError, match=part):
        fitted(own, config, bootstrap="kafka-1:9092")
    view = ClusterView(
        topics={name: TopicProbe(name, 4, 1, None) for name in (TOPIC, "orders.payment.dlq")},
        share_groups={own.group: config},
        bootstrap="kafka-1:9092",
    )
    assert any(part in one.text and one.status == "problem" for one in findings(own, view, 0)), "doctor says it, too"
