"""Apps with inboxes, in the harness and started: what the page about effects shows.

Annotations are evaluated here when a function is defined, because they name what is local to a test.
"""

import asyncio
import functools
import sqlite3
import sys
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import psycopg_pool
import pytest
import sqlalchemy
from sqlalchemy.dialects.postgresql import insert as upserting
from sqlalchemy.orm import Session, sessionmaker

from keepfast import App, Avro, BatchContext, ConfigError, Context, PostgresInbox, RecordIdentity, SqliteInbox
from keepfast.testing.harness import harness
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.log_capture import LogCapture
from tests.support.waiting import wait_until

CHARGED = {"type": "record", "name": "Charged", "fields": [{"name": "id", "type": "string"}]}


def in_event_loop(test: Any) -> Any:
    """A coroutine as a test."""

    @functools.wraps(test)
    def run(*arguments: Any, **more: Any) -> None:
        asyncio.run(test(*arguments, **more))

    return run


def effects(connection: Any) -> list[str]:
    return [row[0] for row in connection.execute("SELECT id FROM effects ORDER BY id")]


@dataclass
class Resources:
    pool: psycopg_pool.AsyncConnectionPool


@in_event_loop
async def test_row_and_event_are_one_fact_and_a_repetition_changes_nothing(database: str, connection: Any) -> None:
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[Resources]:
        async with psycopg_pool.AsyncConnectionPool(database, open=False) as pool:
            yield Resources(pool)

    app = App("billing", lifespan=lifespan)
    app.schema("billing.charged.v1", Avro(CHARGED))

    @app.consumer("billing.invoice.v1", order="key", inbox=PostgresInbox(outbox=True))
    async def charge(invoice: dict[str, Any], tx: psycopg.AsyncConnection, ctx: Context) -> None:
        await tx.execute("INSERT INTO effects VALUES (%s)", (invoice["id"],))
        ctx.send("billing.charged.v1", invoice, key=invoice["id"])
        if invoice["id"] == "bad":
            raise LookupError

    async with harness(app, topics=["billing.charged.v1"]) as h:
        record = await h.send("billing.invoice.v1", {"id": "a"}, key="a")
        again = await h.repeat(record)
        await h.send("billing.invoice.v1", {"id": "bad"}, key="bad")
        assert [one.offset for one in h.skipped] == [again.offset]
        assert [letter.error_type for letter in h.dead] == ["LookupError"]
        async with app.resources.pool.connection() as conn:
            await app.outbox.send(conn, "billing.charged.v1", {"id": "web"}, key="web")
            with pytest.raises(ValueError, match="does not fit its avro schema"):
                await app.outbox.send(conn, "billing.charged.v1", {"id": 5}, key="five")
        await h.settle()
        assert [one.key for one in await h.topic("billing.charged.v1")].count(b"a") == 1
        assert {one.key for one in await h.topic("billing.charged.v1")} == {b"a", b"web"}
        values = {one.key: one.value for one in await h.topic("billing.charged.v1")}
        assert values == {b"a": b"\0\0\0\0\1\2a", b"web": b"\0\0\0\0\1\6web"}, "rows are in the schema of the topic"
    assert effects(connection) == ["a"]


@in_event_loop
async def test_a_batch_of_threads_with_a_pool_of_our_own(database: str, connection: Any) -> None:
    app = App("billing")

    @app.consumer("billing.invoice.v1", inbox=PostgresInbox())
    def charge(invoices: list[dict[str, Any]], tx: psycopg.Connection, ctx: BatchContext) -> None:
        assert len(invoices) == len(ctx)
        for invoice in invoices:
            tx.execute("INSERT INTO effects VALUES (%s)", (invoice["id"],))

    async with harness(app, environ={"POSTGRES_URL": database}, partitions=1) as h:
        first = [await h.send("billing.invoice.v1", {"id": str(number)}, settle=False) for number in range(3)]
        await h.settle()
        for record in first:
            await h.repeat(record)
        assert len(h.skipped) == 3
    assert effects(connection) == ["0", "1", "2"]
    assert app.settings(environ={"POSTGRES_URL": database}).consumers["charge"].commit.mode == "interval"


@pytest.mark.parametrize("has_driver", [True, False], ids=["with psycopg", "without"])
@in_event_loop
async def test_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_driver: bool) -> None:
    if not has_driver:
        for name in ("psycopg", "psycopg_pool"):
            monkeypatch.setitem(sys.modules, name, None)
    app, path = App("scores"), tmp_path / "scores.db"
    inbox = SqliteInbox(path)

    @app.consumer("game.scored.v1", inbox=inbox)
    def count(points: int, tx: sqlite3.Connection) -> None:
        tx.execute("CREATE TABLE IF NOT EXISTS total (points INTEGER NOT NULL)")
        tx.execute("INSERT INTO total VALUES (?)", (points,))

    async with harness(app) as h:
        await h.repeat(await h.send("game.scored.v1", 5))
        assert len(h.skipped) == 1
    with sqlite3.connect(path) as reader:
        assert reader.execute("SELECT points FROM total").fetchall() == [(5,)]
    inbox.close()


class SessionInbox:
    transaction = Session

    def __init__(self, sessions: sessionmaker[Session], table: sqlalchemy.Table) -> None:
        self._sessions = sessions
        self._table = table

    def begin(self, identities: Sequence[RecordIdentity]) -> tuple[Session, Collection[RecordIdentity]]:
        session, table = self._sessions(), self._table
        names = [column.name for column in table.primary_key]
        rows = [dict(zip(names, one, strict=True)) for one in identities]
        try:
            insert = upserting(table).values(rows).on_conflict_do_nothing().returning(*table.primary_key)
            return session, [RecordIdentity._make(row) for row in session.execute(insert)]
        except BaseException:
            session.close()
            raise

    def commit(self, tx: Session) -> None:
        with tx:
            tx.commit()

    def rollback(self, tx: Session) -> None:
        tx.close()

    def prune(self, before: datetime) -> int:
        with self._sessions.begin() as session:
            return int(session.execute(sqlalchemy.delete(self._table).where(self._table.c.done_at < before)).rowcount)  # type: ignore[attr-defined]


@in_event_loop
async def test_an_inbox_of_the_users_own_with_sessions_of_sqlalchemy(database: str, connection: Any) -> None:
    engine = sqlalchemy.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    table = sqlalchemy.Table("keepfast_inbox", sqlalchemy.MetaData(), autoload_with=engine)
    app = App("orm")

    @app.consumer("t.v1", inbox=SessionInbox(sessionmaker(engine), table))
    def store(value: str, session: Session) -> None:
        session.execute(sqlalchemy.text("INSERT INTO effects VALUES (:id)"), {"id": value})

    async with harness(app) as h:
        await h.repeat(await h.send("t.v1", "a"))
        assert len(h.skipped) == 1
    engine.dispose()
    assert effects(connection) == ["a"]


def test_without_an_outbox_nothing_would_send() -> None:
    with pytest.raises(ConfigError, match=r"inbox=PostgresInbox\(outbox=True\)"):
        _ = App("plain").outbox


@in_event_loop
async def test_a_started_app_sends_its_outbox_and_shows_it(
    kafka: TopicAdmin, topic: TopicFactory, database: str, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTGRES_URL", database)
    source, output, client = topic(), topic(), Client(kafka)
    app = App("billing", kafka={"brokers": kafka.bootstrap})

    @app.consumer(source, inbox=PostgresInbox(outbox=True))
    async def charge(value: bytes, tx: psycopg.AsyncConnection, ctx: Context) -> None:
        await tx.execute("INSERT INTO effects VALUES (%s)", (value.decode(),))
        ctx.send(output, value, key=ctx.key)

    async with app:
        await asyncio.to_thread(client.produce, source, [NewRecord(b"%d" % number, key=b"k") for number in range(5)])
        events = await asyncio.to_thread(client.read, output, 5)
        assert [one.value() for one in events] == [b"%d" % number for number in range(5)]
        served = app._instance.served  # type: ignore[union-attr]
        await asyncio.to_thread(
            wait_until, lambda: (state := served.state().outbox) is not None and state.sent == 5, "all are sent"
        )
        names = {family.name for family in served.families()}
        assert {"keepfast_outbox_rows", "keepfast_outbox_age_seconds", "keepfast_skipped_records"} <= names
        assert not [reason for reason in app.health().reasons if reason.code.startswith("outbox")]
    assert effects(connection) == ["0", "1", "2", "3", "4"]


def test_a_start_warns_of_writes_beside_the_transaction_and_of_a_topic_that_keeps_longer(
    kafka: TopicAdmin, topic: TopicFactory, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTGRES_URL", database)
    long, short = topic(config={"retention.ms": "-1"}), topic(config={"retention.ms": "3600000"})
    app = App("billing", kafka={"brokers": kafka.bootstrap}, health={"enabled": False})

    @app.consumer(long, inbox=PostgresInbox())
    def beside(value: bytes) -> None: ...

    @app.consumer(short, inbox=PostgresInbox())
    def around(value: bytes, tx: psycopg.Connection) -> None: ...

    log = LogCapture()
    log.attach()
    try:
        with app:
            pass
    finally:
        log.detach()
    assert [entry["consumer"] for entry in log.fields("inbox_without_transaction")] == ["beside"]
    assert [(entry["consumer"], entry["topic"]) for entry in log.fields("inbox_forgets_too_early")] == [
        ("beside", long)
    ]


def test_an_outbox_that_lags_is_refused_or_cannot_be_read_is_a_reason_in_health() -> None:
    from keepfast.http.health import HealthFacts, health_of
    from keepfast.telemetry.state import OutboxState

    def codes(**state: Any) -> list[str]:
        facts = HealthFacts(app="a", uptime_s=1, consumers={}, outbox=OutboxState(**state))
        return [reason.code for reason in health_of(facts).reasons]

    assert codes(rows=5, age_s=3.0) == []
    assert codes(rows=5, age_s=61.0) == ["outbox_late"]
    assert codes(refused="too large") == ["outbox_refused"]
    assert codes(unreachable="gone") == ["outbox_unreachable"]
