"""What every inbox does: PostgreSQL with threads and with coroutines, and SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import psycopg
import psycopg_pool
import pytest

from keepfast.core.inbox import RecordIdentity
from keepfast.inbox import tables
from keepfast.inbox.postgres import AsyncPostgresInbox, PlainPostgresInbox
from keepfast.inbox.sqlite import SqliteInbox


class Subject(Protocol):
    """An inbox, called by a test as by a handler's thread."""

    def begin(self, identities: Sequence[RecordIdentity]) -> tuple[Any, Collection[RecordIdentity]]: ...
    def write(self, tx: Any, text: str) -> None: ...
    def commit(self, tx: Any) -> None: ...
    def rollback(self, tx: Any) -> None: ...
    def prune(self, before: datetime) -> int: ...
    def written(self) -> list[str]: ...
    def turn(self) -> AbstractContextManager[None]: ...


class Plain:
    def __init__(self, inbox: Any, insert: str, read: Any) -> None:
        self._inbox = inbox
        self._insert = insert
        self.written = read
        self.begin, self.commit, self.rollback, self.prune = inbox.begin, inbox.commit, inbox.rollback, inbox.prune

    def turn(self) -> AbstractContextManager[None]:
        gate = getattr(self._inbox, "turn", None)
        return nullcontext() if gate is None else gate.of(None)

    def write(self, tx: Any, text: str) -> None:
        tx.execute(self._insert, (text,))


class Async:
    """Calls coroutines on an event loop of its own."""

    def __init__(self, inbox: Any, insert: str, read: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inbox = inbox
        self._insert = insert
        self._loop = loop
        self.written = read

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def turn(self) -> AbstractContextManager[None]:
        return nullcontext()

    def begin(self, identities: Sequence[RecordIdentity]) -> tuple[Any, Collection[RecordIdentity]]:
        return self._run(self._inbox.begin(identities))  # type: ignore[no-any-return]

    def write(self, tx: Any, text: str) -> None:
        self._run(tx.execute(self._insert, (text,)))

    def commit(self, tx: Any) -> None:
        self._run(self._inbox.commit(tx))

    def rollback(self, tx: Any) -> None:
        self._run(self._inbox.rollback(tx))

    def prune(self, before: datetime) -> int:
        return int(self._run(self._inbox.prune(before)))


OPTIONS: dict[str, Any] = {"app": "a", "key": None, "outbox": False, "retention_days": 14, "wake": lambda: None}


def postgres_subject(kind: str, url: str, stack: ExitStack) -> Subject:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public; CREATE TABLE effects (id text)")
        tables.migrate(connection, outbox=True)

    def read() -> list[str]:
        with psycopg.connect(url) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM effects ORDER BY id")]

    insert = "INSERT INTO effects VALUES (%s)"
    if kind == "postgres":
        pool = stack.enter_context(psycopg_pool.ConnectionPool(url, min_size=1, max_size=4))
        return Plain(PlainPostgresInbox(pool, **OPTIONS), insert, read)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    stack.callback(loop.close)
    stack.callback(thread.join)
    stack.callback(loop.call_soon_threadsafe, loop.stop)

    async def opened() -> psycopg_pool.AsyncConnectionPool:
        pool = psycopg_pool.AsyncConnectionPool(url, min_size=1, max_size=4, open=False)
        await pool.open()
        return pool

    async_pool = asyncio.run_coroutine_threadsafe(opened(), loop).result(30)
    stack.callback(lambda: asyncio.run_coroutine_threadsafe(async_pool.close(), loop).result(30))
    return Async(AsyncPostgresInbox(async_pool, **OPTIONS), insert, read, loop)


@pytest.fixture(params=["postgres", "postgres async", "sqlite"])
def inbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            path = tmp_path / "inbox.db"
            with sqlite3.connect(path) as connection:
                connection.execute("CREATE TABLE effects (id text)")

            def read() -> list[str]:
                with sqlite3.connect(path) as reader:
                    return [row[0] for row in reader.execute("SELECT id FROM effects ORDER BY id")]

            sqlite = SqliteInbox(path)
            stack.callback(sqlite.close)
            yield Plain(sqlite, "INSERT INTO effects VALUES (?)", read)
        else:
            yield postgres_subject(request.param, request.getfixturevalue("postgres"), stack)


def records(*offsets: int, group: str = "g", source: str = "t") -> list[RecordIdentity]:
    return [RecordIdentity(group, source, 0, offset) for offset in offsets]


def test_what_is_committed_is_known_and_what_is_rolled_back_is_not(inbox: Subject) -> None:
    tx, new = inbox.begin(records(1))
    assert list(new) == records(1)
    inbox.write(tx, "a")
    inbox.rollback(tx)
    assert inbox.written() == []
    tx, new = inbox.begin(records(1))
    assert list(new) == records(1)
    inbox.write(tx, "b")
    inbox.commit(tx)
    assert inbox.written() == ["b"]
    tx, new = inbox.begin(records(1))
    assert not new
    inbox.rollback(tx)


def test_of_several_the_new_ones_are_told(inbox: Subject) -> None:
    tx, _ = inbox.begin(records(1, 3))
    inbox.commit(tx)
    tx, new = inbox.begin(records(1, 2, 3, 4))
    assert sorted(new) == records(2, 4)
    inbox.commit(tx)


def test_group_topic_and_partition_count(inbox: Subject) -> None:
    tx, _ = inbox.begin(records(1))
    inbox.commit(tx)
    others = [*records(1, group="other"), *records(1, source="other"), RecordIdentity("g", "t", 1, 1)]
    tx, new = inbox.begin(sorted(others))
    assert sorted(new) == sorted(others)
    inbox.rollback(tx)


@pytest.mark.parametrize("first_commits", [True, False])
def test_a_second_owner_waits_for_the_first(inbox: Subject, first_commits: bool) -> None:
    first, _ = inbox.begin(records(1))
    found: list[Collection[RecordIdentity]] = []
    begun = threading.Event()

    def second() -> None:
        begun.set()
        tx, new = inbox.begin(records(1))
        found.append(list(new))
        inbox.rollback(tx)

    thread = threading.Thread(target=second)
    thread.start()
    begun.wait()
    thread.join(0.3)
    assert not found, "it waits on the first one's row"
    (inbox.commit if first_commits else inbox.rollback)(first)
    thread.join(30)
    assert found == [[] if first_commits else records(1)]


def test_old_identities_are_removed_and_young_ones_stay(inbox: Subject) -> None:
    tx, _ = inbox.begin(records(1, 2))
    inbox.commit(tx)
    now = datetime.now(UTC)
    assert inbox.prune(now - timedelta(hours=1)) == 0
    assert inbox.prune(now + timedelta(hours=1)) == 2
    tx, new = inbox.begin(records(1))
    assert list(new) == records(1)
    inbox.rollback(tx)


def test_more_transactions_than_connections_wait_for_their_turn(inbox: Subject) -> None:
    def work(offset: int) -> None:
        with inbox.turn():
            tx, _ = inbox.begin(records(offset))
            inbox.write(tx, f"{offset:02}")
            inbox.commit(tx)

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert inbox.written() == [f"{offset:02}" for offset in range(20)]
