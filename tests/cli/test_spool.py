"""`keepfast spool list|show|drain`: what Kafka did not take, and how it gets there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keepfast.core.records import Outgoing
from keepfast.deadletters.spool.files import FileStore
from keepfast.deadletters.spool.letters import spooled
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.deadletters.spool.letters import outgoing
from tests.support.broker_client import Client
from tests.support.command import keepfast

APP = """
from keepfast import App

app = App("shop", spool={{"url": "file://{folder}"}})

@app.consumer("orders.payment.v1")
def charge(payment: dict) -> None: ...
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP.format(folder=tmp_path / "spool"))
    return tmp_path


def fill(project: Path, topic: str, count: int) -> None:
    store = FileStore(str(project / "spool" / "shop"), max_bytes=10_000_000)
    store.open()
    letters = [Outgoing(topic, b"letter %d" % n, b"k", (("keepfast-x", b"%d" % n),), 0) for n in range(count)]
    store.add([spooled(one, at_ms=1_700_000_000_000 + n) for n, one in enumerate(letters)])
    store.close()


def test_letters_are_listed_and_shown_without_their_payload(project: Path) -> None:
    fill(project, "a.dlq", 3)
    listed = keepfast("spool", "list", "--app", "app:app", "--json", cwd=project)
    assert listed.returncode == 0, listed.stderr
    heads = [json.loads(line) for line in listed.stdout.splitlines()]
    assert (heads[0]["topic"], heads[0]["spooled_at"]) == ("a.dlq", "2023-11-14T22:13:20.000Z")
    assert len(heads) == 3
    shown = keepfast("spool", "show", heads[1]["ref"], "--app", "app:app", cwd=project)
    assert (shown.returncode, json.loads(shown.stdout)["topic"]) == (0, "a.dlq"), shown.stderr
    assert "letter 1" not in shown.stdout
    plain = keepfast("spool", "list", "--app", "app:app", "--limit", "2", cwd=project)
    assert (len(plain.stdout.splitlines()), "3 letters" in plain.stderr) == (2, True), plain.stderr


def test_no_value_of_a_record_is_shown_in_a_message(project: Path) -> None:
    store = FileStore(str(project / "spool" / "shop"), max_bytes=10_000_000)
    store.open()
    said, value = "no customer ADA LOVELACE at host db", b'{"customer": "Ada Lovelace"}'
    store.add([spooled(outgoing(1, value=value, error_message=said), at_ms=1_700_000_000_000)])
    store.close()
    [listed] = keepfast("spool", "list", "--app", "app:app", "--json", cwd=project).stdout.splitlines()
    shown = keepfast("spool", "show", json.loads(listed)["ref"], "--app", "app:app", cwd=project).stdout
    for letter in (json.loads(listed), json.loads(shown)):
        assert letter["error_message"] == "no customer * at host db"


def test_draining_sends_each_once_in_order_and_empties_the_spool(
    kafka: TopicAdmin, topic: TopicFactory, project: Path
) -> None:
    name = topic(suffix=".dlq")
    fill(project, name, 50)
    where = {"KAFKA_BROKERS": kafka.bootstrap}
    dry = keepfast("spool", "drain", "--app", "app:app", "--dry-run", cwd=project, **where)
    assert (dry.returncode, dry.stdout) == (0, f"50 letters to {name}\n"), dry.stderr
    done = keepfast("spool", "drain", "--app", "app:app", "--json", cwd=project, **where)
    assert (done.returncode, json.loads(done.stdout)["sent"]) == (0, 50), done.stderr
    assert [one.value() for one in Client(kafka).read(name, 50)] == [b"letter %d" % n for n in range(50)]
    again = keepfast("spool", "drain", "--app", "app:app", cwd=project, **where)
    assert (again.returncode, "Sent 0 letters; 0 left" in again.stdout) == (0, True), again.stdout + again.stderr
    assert Client(kafka).edges(name) == (0, 50)


def test_what_a_running_app_holds_is_shown_and_left_to_it(project: Path) -> None:
    fill(project, "a.dlq", 2)
    folder = project / "spool" / "shop"
    running = FileStore(str(folder), max_bytes=10_000_000)
    running.open()
    before = sorted(folder.rglob("*"))
    listed = keepfast("spool", "list", "--app", "app:app", "--json", cwd=project)
    assert listed.returncode == 0, listed.stderr
    lines = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [line["topic"] for line in lines] == ["a.dlq", "a.dlq"]
    shown = keepfast("spool", "show", lines[1]["ref"], "--app", "app:app", cwd=project)
    assert (shown.returncode, json.loads(shown.stdout)["ref"]) == (0, lines[1]["ref"]), shown.stderr
    assert sorted(folder.rglob("*")) == before, "looking leaves no part of its own behind"
    drained = keepfast("spool", "drain", "--app", "app:app", "--dry-run", "--json", cwd=project)
    assert json.loads(drained.stdout) == {"would_send": {}}, "they are the app's to send"
    running.remove(running.heads(1, lambda _: True))
    again = keepfast("spool", "list", "--app", "app:app", "--json", cwd=project)
    assert [json.loads(line)["ref"] for line in again.stdout.splitlines()] == [lines[1]["ref"]]
    running.close()


def test_without_a_spool_it_says_what_to_do(tmp_path: Path) -> None:
    done = keepfast("spool", "list", cwd=tmp_path)
    assert (done.returncode, "No spool is configured" in done.stderr) == (2, True), done.stderr


def test_filters_choose_what_is_listed_and_drained(kafka: TopicAdmin, topic: TopicFactory, project: Path) -> None:
    name = topic(suffix=".dlq")
    store = FileStore(str(project / "spool" / "shop"), max_bytes=10_000_000)
    store.open()
    kinds = ("TimeoutError", "ValueError", "TimeoutError")
    letters = [outgoing(number, topic=name, error_type=kind) for number, kind in enumerate(kinds)]
    store.add([spooled(one, at_ms=1_700_000_000_000 + n) for n, one in enumerate(letters)])
    store.close()
    chosen = ("--error-type", "TimeoutError", "--offsets", "0:1-")
    listed = keepfast("spool", "list", "--app", "app:app", "--json", *chosen, cwd=project)
    [line] = [json.loads(line) for line in listed.stdout.splitlines()]
    assert (line["error_type"], line["id"], line["consumer_group"]) == ("TimeoutError", "g/orders/0/2", "g")
    where = {"KAFKA_BROKERS": kafka.bootstrap}
    done = keepfast("spool", "drain", "--app", "app:app", "--json", *chosen, cwd=project, **where)
    assert (done.returncode, json.loads(done.stdout)["sent"]) == (0, 1), done.stderr
    assert [one.key() for one in Client(kafka).read(name, 1)] == [b"k2"]
    left = keepfast("spool", "list", "--app", "app:app", cwd=project)
    assert ["g/orders/0/0" in left.stdout, "g/orders/0/2" in left.stdout] == [True, False]
