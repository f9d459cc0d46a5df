"""Commands that move a group, on the embedded broker: what it cannot do is refused, and nothing is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition

from keepfast import App
from keepfast.cli import main
from keepfast.testing import EmbeddedBroker
from tests.support.command import keepfast
from tests.support.running_app import RunningApp
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.web import web_of

TOPIC, LETTERS, GROUP = "orders.payment.v1", "orders.payment.dlq", "shop.charge"
REFUSAL = "The embedded broker cannot find offsets by time: name an offset."
APP = f"""
from keepfast import App

app = App("shop")

@app.consumer({TOPIC!r}, group={GROUP!r})
def charge(payment: dict) -> None: ...
"""


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """Five records in partition 0, none of them committed."""
    with EmbeddedBroker() as running:
        for name in (TOPIC, LETTERS):
            running.create_topic(name)
        producer = Producer({"bootstrap.servers": running.bootstrap, "log_level": 0})
        for _ in range(5):
            producer.produce(TOPIC, b"{}", partition=0)
        assert producer.flush(DEADLINE_S) == 0
        producer.close()
        yield running


def committed(broker: EmbeddedBroker) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "log_level": 0})
    [found] = consumer.committed([TopicPartition(TOPIC, 0)], timeout=DEADLINE_S)
    consumer.close()
    return int(found.offset)


def test_a_reset_to_a_time_is_refused_and_skips_nothing(broker: EmbeddedBroker, tmp_path: Path) -> None:
    asked = ("offsets", "reset", GROUP, "--topic", TOPIC, "--yes", "--to")
    refused = keepfast(*asked, "2h", cwd=tmp_path, KAFKA_BROKERS=broker.bootstrap)
    assert (refused.returncode, REFUSAL in refused.stderr) == (3, True), refused.stdout + refused.stderr
    assert committed(broker) < 0
    done = keepfast(*asked, "2", cwd=tmp_path, KAFKA_BROKERS=broker.bootstrap)
    assert done.returncode == 0, done.stderr
    assert committed(broker) == 2


def test_a_replay_since_a_time_is_refused(broker: EmbeddedBroker, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    asked = ("replay-from", "shop:app", "charge", "--dry-run")
    refused = keepfast(*asked, "--since", "2h", cwd=tmp_path, KAFKA_BROKERS=broker.bootstrap)
    assert (refused.returncode, REFUSAL in refused.stderr) == (3, True), refused.stdout + refused.stderr
    planned = keepfast(*asked, "--offsets", "0:2-", cwd=tmp_path, KAFKA_BROKERS=broker.bootstrap)
    assert (planned.returncode, "Up to 3 records" in planned.stdout) == (0, True), planned.stderr


def test_a_seek_to_a_time_is_refused(broker: EmbeddedBroker) -> None:
    app = App("shop", kafka={"brokers": broker.bootstrap})
    seen: list[bytes] = []

    @app.consumer(TOPIC, group=GROUP)
    def charge(value: bytes) -> None:
        seen.append(value)

    with RunningApp(app) as running, web_of(running, token="t") as web:
        wait_until(lambda: len(seen) == 5, "all are processed")
        words = ["ctl", "seek", "charge", TOPIC, "0", "--to", "2h", "--yes", "--url", web.url]
        refused = CliRunner().invoke(main, words, env={"KEEPFAST_CONTROL_TOKEN": "t"})
        assert (refused.exit_code, f"{REFUSAL} Nothing was changed." in refused.output) == (1, True), refused.output
        assert "try again" not in refused.output


def test_a_reset_of_a_group_that_has_had_members_is_refused_with_another_way(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    app = App("shop", kafka={"brokers": broker.bootstrap})
    seen: list[bytes] = []

    @app.consumer(TOPIC, group=GROUP)
    def charge(value: bytes) -> None:
        seen.append(value)

    def refused() -> str:
        done = keepfast("offsets", "reset", GROUP, "--to", "0", "--yes", cwd=tmp_path, KAFKA_BROKERS=broker.bootstrap)
        assert done.returncode == 3, done.stdout + done.stderr
        return done.stderr

    with RunningApp(app):
        wait_until(lambda: committed(broker) == 5, "all are processed")
        assert "resets no group that has members, or had some since it started" in refused()
    assert "While the app runs, `keepfast ctl seek` moves the offsets" in refused()
