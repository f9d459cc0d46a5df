"""Older brokers, of which most clusters in the world are: an app with the default settings consumes, dead-letters,
retries in topics, replays and drains there. What such a broker cannot do is reported at the start.

Kafka 2.8 runs with ZooKeeper, 3.3 with the first KRaft for production; 3.9 is the last line before Kafka 4.
"""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepfast.testing.broker import KafkaBroker
from keepfast.testing.jars import CLASSIC_KAFKA_VERSION
from tests.support.broker_client import Client
from tests.support.command import keepfast, running
from tests.support.waiting import wait_until

APP = """
import pathlib

from keepfast import App, Context, Reject, RetryPolicy, RetryTopics

app = App("shop")
journal, mended = pathlib.Path("journal"), pathlib.Path("mended")

@app.consumer(
    "{stem}.orders.v1",
    group="{stem}",
    {options}
    retry=RetryPolicy(max_retries=0),
    retry_topics=RetryTopics(delays=("1s",), allow_reorder=True),
)
def charge(order: dict, ctx: Context) -> None:
    if order["kind"] == "bad" and not mended.exists():
        raise Reject("not an order")
    if order["kind"] == "late" and ctx.attempt == 1:
        raise ConnectionError("not now")
    with journal.open("a") as lines:
        lines.write(f"{{order['n']}}\\n")
"""
QUEUE = """
from keepfast import App

app = App("shop")

@app.consumer("{stem}.orders.v1", group="{stem}", order="queue")
def charge(order: dict) -> None: ...
"""
KINDS = {"good": range(30), "late": range(30, 33), "bad": range(33, 36)}
ALL = sorted(n for numbers in KINDS.values() for n in numbers)


@pytest.fixture(
    scope="module",
    params=[
        CLASSIC_KAFKA_VERSION,
        pytest.param("3.3.2", marks=pytest.mark.brokers),
        pytest.param("2.8.2", marks=pytest.mark.brokers),
    ],
)
def broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    with KafkaBroker(version=request.param) as broker:
        broker.create_topic("keepfast.desk")  # an app that has run before it was created notices it some seconds later
        yield broker


class Shop:
    """The app in a folder, with topics and a group of its own."""

    def __init__(self, broker: KafkaBroker, folder: Path, app: str, options: str = "") -> None:
        stem = f"shop-{uuid.uuid4().hex[:8]}"
        self.folder, self.client = folder, Client(broker)
        self.source, self.letters = f"{stem}.orders.v1", f"{stem}.orders.dlq"
        self.where = {"KAFKA_BROKERS": broker.bootstrap}
        self.printed = folder / "printed"
        (folder / "shop.py").write_text(app.format(stem=stem, options=options))
        for name in (self.source, self.letters):
            broker.create_topic(name, partitions=3)

    def run(self, *command: str, code: int = 0) -> str:
        done = keepfast(*command, cwd=self.folder, **self.where)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def processed(self) -> list[int]:
        journal = self.folder / "journal"
        return sorted(int(line) for line in journal.read_text().split()) if journal.exists() else []

    def lag(self) -> Any:
        return json.loads(self.run("lag", "shop:app", "--for", "0", "--json"))

    def findings(self, *statuses: str, code: int = 0) -> list[str]:
        printed = self.run("doctor", "shop:app", "--json", code=code)
        return [one["text"] for one in json.loads(printed)["findings"] if one["status"] in statuses]


@pytest.mark.parametrize("options", ["", "exactly_once=True,"], ids=["default", "exactly_once"])
def test_it_consumes_retries_dead_letters_replays_and_drains(broker: KafkaBroker, tmp_path: Path, options: str) -> None:
    shop = Shop(broker, tmp_path, APP, options)
    assert shop.findings("problem", "unknown") == []
    [chosen] = [text for text in shop.findings("ok") if "protocol" in text]
    assert chosen.startswith("charge joins its group with the classic protocol: the brokers do not support KIP-848")

    orders = [json.dumps({"kind": kind, "n": n}).encode() for kind, numbers in KINDS.items() for n in numbers]
    shop.client.produce(shop.source, orders)
    with running("run", "shop:app", cwd=tmp_path, printed=shop.printed, **shop.where) as process:
        wait_until(lambda: shop.processed() == [*KINDS["good"], *KINDS["late"]], "all but the letters")
        wait_until(lambda: shop.lag()["lag"] == 0, "all is committed")
        if not options:  # else markers of transactions count, too
            assert shop.lag()["dead_letters"] == {shop.letters: len(KINDS["bad"])}
        (tmp_path / "mended").touch()
        shop.run("dlq", "replay", shop.letters, "--all", "--yes", "--to", "topic", "--why", "mended")
        wait_until(lambda: shop.processed() == ALL, "the replay")
        wait_until(lambda: shop.lag()["lag"] == 0, "the replay is committed")
        assert shop.findings("problem", "unknown") == []
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0, shop.printed.read_text()
    assert shop.processed() == ALL, "each once"
    [line] = [line for line in shop.printed.read_text().splitlines() if "group_protocol" in line]
    assert "classic" in line
    assert "do not support KIP-848" in line


def test_a_consumer_that_insists_on_kip_848_does_not_start(broker: KafkaBroker, tmp_path: Path) -> None:
    shop = Shop(broker, tmp_path, APP, 'group_protocol="consumer",')
    assert "which these brokers do not support" in shop.run("run", "shop:app", code=3)
    assert "group_protocol=consumer, which the brokers do not support" in shop.findings("problem", code=3)[0]


def test_a_queue_does_not_start(broker: KafkaBroker, tmp_path: Path) -> None:
    shop = Shop(broker, tmp_path, QUEUE)
    assert "the broker has no share groups" in shop.run("run", "shop:app", code=3)
    assert "the broker has no share groups" in shop.findings("problem", code=3)[0]
