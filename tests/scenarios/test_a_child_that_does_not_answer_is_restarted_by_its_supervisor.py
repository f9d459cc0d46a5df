"""`--processes 2`: a child that is frozen is named, killed and restarted, and its partitions go on without a loss."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.command import running
from tests.support.waiting import wait_until
from tests.support.web import Web

APP = """
import os
from keepfast import App, Context

app = App("shop")
journal = os.open("journal", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

@app.consumer("{topic}", domain="orders", entity="payment", group="{topic}.group")
def charge(value: bytes, ctx: Context) -> None:
    os.write(journal, f"{{os.getpid()}} {{ctx.partition}} {{value.decode()}}\\n".encode())
"""
pytestmark = pytest.mark.long


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_a_frozen_child_is_killed_and_its_partitions_go_on(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> None:
    name, port = topic(partitions=2), free_port()
    (tmp_path / "app.py").write_text(APP.format(topic=name))
    variables = {
        "KAFKA_BROKERS": kafka.bootstrap,
        "HEALTH_CHECK_ENABLED": "true",
        "HEALTH_CHECK_PORT": str(port),
        "KEEPFAST_HEALTH_RESTART_AFTER_S": "10",
        "TMPDIR": str(tmp_path),
    }
    web, printed = Web(f"http://127.0.0.1:{port}"), tmp_path / "printed"

    def events(event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in printed.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def partitions_of(process: str) -> int:
        try:
            consumer = web.get("/api/state").json["consumers"].get(f"charge@{process}", {"partitions": ()})
        except OSError:
            return 0
        return len(consumer["partitions"])

    def handled() -> list[tuple[str, str, str]]:
        lines = (tmp_path / "journal").read_text().splitlines()
        return [(pid, partition, value) for pid, partition, value in (line.split() for line in lines)]

    def send(first: int) -> set[str]:
        values = [str(number) for number in range(first, first + 10)]
        Client(kafka).produce(name, [NewRecord(value.encode(), partition=int(value) % 2) for value in values])
        return set(values)

    options = ("--processes", "2", "--log-format", "json")
    with running("run", "app:app", *options, cwd=tmp_path, printed=printed, **variables) as parent:
        wait_until(lambda: (partitions_of("0"), partitions_of("1")) == (1, 1), "each child has a partition")
        sent = send(0)
        wait_until(lambda: {value for _, _, value in handled()} == sent, "all are processed")
        state = web.get("/api/state").json
        frozen, other = state["processes"]["1"]["pid"], state["processes"]["0"]["pid"]
        os.kill(frozen, signal.SIGSTOP)
        sent |= send(10)
        wait_until(lambda: events("child_not_live"), "it is missed")
        wait_until(lambda: {value for _, _, value in handled()} == sent, "the next child processes the rest")
        parent.send_signal(signal.SIGTERM)
        assert parent.wait() == 0
    assert events("child_not_live")[0]["pid"] == frozen
    assert [(one["process"], one["ending"]) for one in events("child_ended")] == [(1, "SIGKILL")]
    assert len(handled()) == len(sent), "none is repeated: none was in flight"
    [partition] = {partition for pid, partition, _ in handled() if pid == str(other)}
    assert {pid for pid, where, _ in handled() if where != partition} == {
        str(frozen),
        str(events("child_started")[-1]["pid"]),
    }, "it has its partition back"
