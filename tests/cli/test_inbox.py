"""`keepfast inbox` and `keepfast outbox`, on PostgreSQL."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result

from keepfast.cli import main
from keepfast.inbox.outbox import Outbox
from keepfast.inbox.relay import Relay
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client


@pytest.fixture
def empty(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a database without tables; the working folder is empty."""
    monkeypatch.chdir(tmp_path)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return postgres


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_the_tables_are_made_once_shown_and_cleaned(empty: str) -> None:
    at = ("--dsn", empty)
    missing = run("inbox", "status", *at)
    assert missing.exit_code == 2
    assert "keepfast inbox migrate" in missing.output
    assert run("inbox", "migrate", *at).output == "Created keepfast_inbox and keepfast_outbox.\n"
    assert run("inbox", "migrate", *at).output == "Nothing to do: both tables are there.\n"
    assert "The inbox is empty." in run("inbox", "status", *at).output
    with psycopg.connect(empty, autocommit=True) as connection:
        insert = "INSERT INTO keepfast_inbox SELECT 'shop.pay', 't', 0, n, now() - n * interval '1 day'"
        connection.execute(f"{insert} FROM generate_series(0, 19) AS n")
    assert "shop.pay: 20 records" in run("inbox", "status", *at).output
    assert json.loads(run("inbox", "status", "--json", *at).output)["rows"] == 20
    assert run("inbox", "prune", "--older-than-days", "9.5", *at).output == "Removed 10 rows.\n"


def test_the_statements_can_be_printed(empty: str) -> None:
    printed = run("inbox", "migrate", "--sql")
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute(printed.output.encode())
    assert run("inbox", "migrate", "--dsn", empty).output.startswith("Nothing to do")


def test_a_database_that_is_down_is_a_failed_start(empty: str) -> None:
    assert run("inbox", "status", "--dsn", "postgresql://127.0.0.1:1/x").exit_code == 3


@pytest.mark.parametrize("command", ["status", "migrate", "prune"])
def test_without_a_database_it_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("POSTGRES_HOST", "POSTGRES_URL"):
        monkeypatch.delenv(name, raising=False)
    refused = run("inbox", command)
    assert refused.exit_code == 2
    assert refused.output == (
        "Error: No database in PostgreSQL is named: set POSTGRES_HOST or POSTGRES_URL. Or name it with --dsn.\n"
    )


def test_the_app_is_an_argument_or_an_option(empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named_db.py").write_text(
        f"from keepfast import App\n\napp = App('x', postgres={{'url': {empty!r}}})\n\n"
        "@app.consumer('t')\ndef work(text: str) -> None: ...\n"
    )
    for name in ("POSTGRES_HOST", "POSTGRES_URL"):
        monkeypatch.delenv(name, raising=False)
    assert run("inbox", "migrate", "named_db:app").output == "Created keepfast_inbox and keepfast_outbox.\n"
    assert "The inbox is empty." in run("inbox", "status", "--app", "named_db:app").output
    assert "the outbox is empty" in run("outbox", "status", "named_db:app").output
    twice = run("inbox", "status", "named_db:app", "--app", "other:app")
    assert (twice.exit_code, "Name the app once" in twice.output) == (2, True)


def test_the_outbox_of_an_app_that_does_not_run_is_sent(
    empty: str, kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTGRES_URL", empty)
    monkeypatch.setenv("KAFKA_BROKERS", kafka.bootstrap)
    name = topic()
    assert run("inbox", "migrate").exit_code == 0
    with psycopg.connect(empty) as connection:
        for number in range(3):
            Outbox("keepfast").send(connection, name, {"n": number}, key="k")
    assert "3 events wait" in run("outbox", "status").output
    assert json.loads(run("outbox", "drain", "--json").output) == {"sent": 3, "left": 0, "refused": ""}
    assert [json.loads(one.value())["n"] for one in Client(kafka).read(name, 3)] == [0, 1, 2]
    assert "the outbox is empty" in run("outbox", "status").output


def test_events_that_are_left_are_no_success(empty: str, kafka: TopicAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTGRES_URL", empty)
    monkeypatch.setenv("KAFKA_BROKERS", kafka.bootstrap)
    assert run("inbox", "migrate").exit_code == 0
    with psycopg.connect(empty) as connection:
        Outbox("keepfast").send(connection, "t", b"1")
    monkeypatch.setattr(Relay, "step", lambda self: 0)
    drained = run("outbox", "drain", "--timeout", "0.1")
    assert drained.exit_code == 1
    assert "1 events wait" in drained.output
