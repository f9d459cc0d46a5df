"""`keepfast dlq try`: today's handler runs once, and neither Kafka nor the inbox's database has anything of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keepfast.desk import CaseState, Desk, DeskOptions
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.cli.letters_filed import file_letters
from tests.support.broker_client import Client
from tests.support.command import keepfast
from tests.support.letters import letter
from tests.support.members import connection

APP = """
import os
import sqlite3
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from keepfast import App, Context, SqliteInbox

SOURCE, OUT = os.environ["SOURCE"], os.environ["OUT"]


class Rates:
    def __init__(self) -> None:
        self.nok = 11


@asynccontextmanager
async def lifespan(app):
    Path("entered").write_text("entered")
    yield Rates()
    Path("left").write_text("left")


app = App("payments", lifespan=lifespan)


@app.consumer(SOURCE, group="payments.charge", inbox=SqliteInbox("payments.db"))
def charge(order: dict[str, Any], tx: sqlite3.Connection, ctx: Context, rates: Rates) -> None:
    print("charging")
    tx.execute("INSERT INTO charges VALUES (?)", (order["id"],))
    ctx.send(OUT, {"id": order["id"], "cents": order["cents"] * rates.nok})
    Path("effect").write_text(ctx.topic)
    order["currency"]
"""


class Scene:
    def __init__(self, kafka: TopicAdmin, topic: TopicFactory, folder: Path) -> None:
        self.kafka, self.client, self.folder = kafka, Client(kafka), folder
        self.source, self.out = topic(partitions=1), topic(partitions=1)
        self.dlq, self.desk_topic = topic(partitions=1, suffix=".dlq"), topic(partitions=1, suffix=".desk")
        self.environ = {
            "KAFKA_BROKERS": kafka.bootstrap,
            "KEEPFAST_DESK_TOPIC": self.desk_topic,
            "XDG_CACHE_HOME": str(folder),
            "SOURCE": self.source,
            "OUT": self.out,
        }
        (folder / "app.py").write_text(APP)
        with sqlite3.connect(folder / "payments.db") as made:
            made.execute("CREATE TABLE charges (id TEXT)")

    def letter(self, value: dict[str, Any]) -> None:
        known = {"topic": self.source, "partition": 0, "value": json.dumps(value).encode()}
        file_letters(self.kafka, self.dlq, [letter(**known)])

    def run(self, offset: int, *arguments: str, code: int) -> str:
        options = ("--app", "app:app", *arguments)
        done = keepfast("dlq", "try", self.dlq, f"0:{offset}", *options, cwd=self.folder, **self.environ)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def desk(self) -> Iterator[Desk]:
        options = DeskOptions(topics=(self.dlq,), by="test", desk_topic=self.desk_topic)
        desk = Desk(connection(self.kafka.bootstrap), options)
        desk.refresh()
        yield desk
        desk.close()

    def untouched(self) -> bool:
        """Neither outputs nor offsets, and nothing in the database."""
        with sqlite3.connect(self.folder / "payments.db") as database:
            rows = [database.execute(f"SELECT count(*) FROM {table}") for table in ("charges", "keepfast_inbox")]
            stored = [row.fetchone()[0] for row in rows]
        committed = self.client.committed("payments.charge", self.source)[0]
        return stored == [0, 0] and committed is None and self.client.edges(self.out) == (0, 0)


def test_todays_handler_runs_without_effects_on_kafka_and_on_its_inbox(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> None:
    scene = Scene(kafka, topic, tmp_path)
    scene.letter({"id": "a1", "cents": 7, "currency": "NOK"})
    scene.letter({"id": "a2", "cents": 8})
    assert "Run charge on" in scene.run(0, "--dry-run", code=0)
    assert not (scene.folder / "entered").exists()

    through = json.loads(scene.run(0, "--yes", "--json", code=0))
    assert (through["outcome"], through["consumer"], through["rolled_back"]) == ("succeeded", "charge", True)
    assert [(one["topic"], one["value"]) for one in through["sent"]] == [
        (scene.out, {"id": "<text of 2>", "cents": "<number>"})
    ]
    failed = scene.run(1, "--yes", code=1)
    assert "It fails again, for another cause than before: KeyError" in failed
    assert "Dead-lettered at once" in failed
    assert "Nothing was sent or committed. The transaction of its inbox was rolled back." in failed
    assert "charging" not in failed  # what the handler prints is not the answer
    assert scene.untouched()
    assert (scene.folder / "effect").read_text() == scene.source  # other effects are real
    assert (scene.folder / "left").exists()
    with scene.desk() as desk:
        assert desk.summary().counts == {CaseState.OPEN: 2}
        assert [(one.action, one.result) for one in reversed(desk.audit())] == [
            ("try", "succeeded"),
            ("try", "failed: KeyError"),
        ]
