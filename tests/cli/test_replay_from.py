"""`keepfast replay-from`: a range goes through the consumer again, all of it and nothing else, and its own group does
not notice.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from keepfast.core.records import TopicPartition
from keepfast.desk import Desk, DeskOptions
from keepfast.groups.ranges import OffsetRange, by_offsets, by_time
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.command import KEEPFAST, environment, keepfast
from tests.support.members import connection
from tests.support.waiting import wait_until

APP = """
import os
import sqlite3
import time
from typing import Any

from keepfast import App, Context, DeadLetterPolicy, SqliteInbox

app = App("payments")


def handle(order: dict[str, Any], ctx: Context) -> None:
    if order.get("bad"):
        raise ValueError("bad")
    time.sleep(float(os.environ.get("SLOW_S", "0")))
    with open("seen", "a") as seen:
        seen.write(f"{ctx.partition}:{ctx.offset}\\n")


@app.consumer(
    os.environ["SOURCE"],
    group=os.environ["GROUP"],
    dead_letter=DeadLetterPolicy(topic=os.environ["LETTERS"]),
    unknown_errors="dead-letter",
    concurrency=1,
)
def charge(order: dict[str, Any], ctx: Context) -> None:
    handle(order, ctx)


@app.consumer(os.environ["SOURCE"], group=os.environ["GROUP"] + ".store", inbox=SqliteInbox("store.db"))
def store(order: dict[str, Any], ctx: Context) -> None:
    handle(order, ctx)
"""


class Scene:
    def __init__(self, kafka: TopicAdmin, topic: TopicFactory, folder: Path) -> None:
        self.kafka, self.client, self.folder = kafka, Client(kafka), folder
        self.source = topic(partitions=2)
        self.letters, self.desk_topic = topic(partitions=1, suffix=".dlq"), topic(partitions=1, suffix=".desk")
        self.group = f"{self.source}.charge"
        self.environ = {
            "KAFKA_BROKERS": kafka.bootstrap,
            "KEEPFAST_DESK_TOPIC": self.desk_topic,
            "XDG_CACHE_HOME": str(folder),
            "SOURCE": self.source,
            "GROUP": self.group,
            "LETTERS": self.letters,
        }
        (folder / "app.py").write_text(APP)

    def produce(self, count: int, *, partition: int, **fields: Any) -> None:
        value = json.dumps(fields).encode()
        self.client.produce(self.source, [NewRecord(value, b"k", partition=partition) for _ in range(count)])

    def run(self, *arguments: str, code: int = 0) -> Any:
        done = keepfast("replay-from", "app:app", *arguments, "--json", cwd=self.folder, **self.environ)
        assert done.returncode == code, done.stdout + done.stderr
        self.errors = done.stderr
        return json.loads(done.stdout)

    @property
    def seen(self) -> list[str]:
        path = self.folder / "seen"
        return sorted(path.read_text().split()) if path.exists() else []


def test_a_range_is_processed_again_and_the_group_does_not_notice(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> None:
    scene = Scene(kafka, topic, tmp_path)
    scene.produce(6, partition=0)
    scene.produce(1, partition=0, bad=True)
    scene.produce(2, partition=0)  # behind the range
    scene.produce(5, partition=1)
    scene.client.commit(scene.group, scene.source, 7, partition=0)
    ranges = ("charge", "--offsets", "0:2-6", "--offsets", "1:4-")
    planned = scene.run(*ranges, "--dry-run")
    assert [(one["partition"], one["from"], one["end"]) for one in planned["ranges"]] == [(0, 2, 7), (1, 4, 5)]
    assert scene.seen == []

    done = scene.run(*ranges, "--yes", "--why", "INC-1", code=1)  # one is dead-lettered
    assert scene.seen == ["0:2", "0:3", "0:4", "0:5", "1:4"]
    assert (done["done"], done["processed"], done["dead_lettered"]) == (True, 5, 1)
    logged = [json.loads(line) for line in scene.errors.splitlines() if "dead_lettering" in line]
    assert [(line["level"], line["event"]) for line in logged] == [("warning", "dead_lettering")], scene.errors
    assert scene.client.committed(scene.group, scene.source, 0)[0] == 7
    assert scene.client.committed(scene.group, scene.source, 1)[0] is None
    assert scene.client.committed(done["side_group"], scene.source, 0)[0] is None  # it is deleted

    desk = Desk(connection(kafka.bootstrap), DeskOptions(topics=(scene.letters,), by="t", desk_topic=scene.desk_topic))
    desk.refresh()
    [case] = desk.cases().cases
    assert (case.group, case.offset) == (scene.group, 6)  # a case of the consumer's own group
    entries = [(one.action, one.why, one.result) for one in reversed(desk.audit())]
    desk.close()
    assert entries == [
        ("replay-from", "INC-1", "done: 5 processed, 1 dead-lettered"),
    ]


@pytest.mark.long
def test_an_inbox_skips_what_it_has_unless_told_otherwise(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> None:
    scene = Scene(kafka, topic, tmp_path)
    scene.produce(4, partition=1)
    first = scene.run("store", "--since", "1h", "--yes")
    again = scene.run("store", "--since", "1h", "--yes")
    assert [(one["processed"], one["skipped"]) for one in (first, again)] == [(4, 0), (0, 4)]
    forced = scene.run("store", "--since", "1h", "--yes", "--reprocess")
    assert (forced["processed"], forced["skipped"]) == (4, 0)
    assert scene.seen == sorted([f"1:{n}" for n in range(4)] * 2)


@pytest.mark.long
def test_it_can_be_stopped_and_continued(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> None:
    scene = Scene(kafka, topic, tmp_path)
    scene.produce(40, partition=0)
    process = subprocess.Popen(
        [*KEEPFAST, "replay-from", "app:app", "charge", "--offsets", "0:0-39", "--yes"],
        cwd=tmp_path,
        env=environment(**scene.environ, SLOW_S="0.3"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: len(scene.seen) >= 3, "some are processed", timeout_s=60)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    words = errors.split("To continue: keepfast replay-from app:app ")[1].split()
    done = scene.run(*words, "--yes")
    assert done["done"]
    assert scene.seen == sorted(f"0:{n}" for n in range(40))  # each once


def test_ranges_are_what_there_is_of_what_was_asked_for() -> None:
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    spans = {a: (10, 20), b: (0, 5)}
    assert by_time(spans, {a: 12, b: 5}, None) == [OffsetRange(a, 12, 20)]
    assert by_time(spans, {a: 12, b: 1}, {a: 15}) == [OffsetRange(a, 12, 15), OffsetRange(b, 1, 5)]
    assert by_offsets(spans, [(a, 0, 12), (b, 7, None)]) == [OffsetRange(a, 10, 12)]
