"""An app that reads by a pattern names no topic: commands look them up, and none stumbles while there is none."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client
from tests.support.command import keepfast, running
from tests.support.waiting import wait_until

APP = """
from keepfast import App, Pattern

app = App("shop")

@app.consumer(Pattern(r"{stem}\\..*"), group="{stem}-group")
def audit(event: dict) -> None: ...
"""


@pytest.fixture
def stem(tmp_path: Path) -> str:
    stem = f"pattern-{uuid.uuid4().hex[:8]}"
    (tmp_path / "shop.py").write_text(APP.format(stem=stem))
    return stem


def test_with_topics_each_command_is_about_them(kafka: TopicAdmin, stem: str, tmp_path: Path) -> None:
    client, name = Client(kafka), f"{stem}.login"
    for topic in (name, f"{stem}.login.dlq"):
        kafka.create_topic(topic)
    client.produce(name, [b"{}"] * 3)
    client.commit(f"{stem}-group", name, 1)
    where = {"KAFKA_BROKERS": kafka.bootstrap}
    lag = keepfast("lag", "shop:app", "--for", "0", "--json", cwd=tmp_path, **where)
    told = json.loads(lag.stdout)
    assert ([one["topic"] for one in told["partitions"]], told["lag"]) == ([name], 2)
    assert told["dead_letters"] == {f"{stem}.login.dlq": 0}
    shown = keepfast("offsets", "show", "shop:app", "--json", cwd=tmp_path, **where)
    assert [one["committed"] for one in json.loads(shown.stdout)["partitions"]] == [1]
    assert f"{name} has 1 partition" in keepfast("doctor", "shop:app", cwd=tmp_path, **where).stdout
    letters = keepfast("dlq", "causes", "--app", "shop:app", cwd=tmp_path, **where)
    assert letters.returncode == 0, letters.stderr


def test_without_any_topic_no_command_stumbles(kafka: TopicAdmin, stem: str, tmp_path: Path) -> None:
    where = {"KAFKA_BROKERS": kafka.bootstrap}
    doctor = keepfast("doctor", "shop:app", cwd=tmp_path, **where)
    assert "No topic matches the pattern" in doctor.stdout
    lag = keepfast("lag", "shop:app", "--for", "0", "--json", cwd=tmp_path, **where)
    assert json.loads(lag.stdout)["partitions"] == []
    offsets = keepfast("offsets", "show", "shop:app", cwd=tmp_path, **where)
    assert "has committed nothing" in offsets.stderr
    for command in (["check", "shop:app"], ["explain", "ValueError", "--app", "shop:app"], ["monitoring", "shop:app"]):
        done = keepfast(*command, cwd=tmp_path)
        assert "Traceback" not in done.stderr
        assert done.stdout, done.stderr


def test_dev_waits_for_a_topic_and_reads_it(stem: str, tmp_path: Path) -> None:
    said = tmp_path / "said"
    said.touch()
    variables = {"KEEPFAST_CONSUMERS_AUDIT_TOPICS_REFRESH_S": "0.5"}
    with running("dev", "shop:app", cwd=tmp_path, printed=said, **variables) as process:
        wait_until(lambda: "waiting_for_topics" in said.read_text(), "it waits")
        assert stem in said.read_text(), "the pattern is shown"
        process.terminate()
        assert process.wait(60) == 0, said.read_text()
