"""An inbox in SQLite, and the desk's index: opened while other connections write, and used by one thread at a time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from keepfast import sqlite
from keepfast.core.inbox import RecordIdentity
from keepfast.desk.database import Database
from keepfast.inbox.sqlite import SqliteInbox
from tests.support.waiting import happens, wait_until

Work = Callable[[Path], object]


def begin_and_commit(path: Path) -> None:
    inbox = SqliteInbox(path)
    tx, new = inbox.begin([RecordIdentity("g", "t", 0, 1)])
    assert new
    inbox.commit(tx)
    inbox.close()


def read_the_index(path: Path) -> None:
    database = Database(path)
    assert database.rows("SELECT * FROM cases") == []
    database.close()


@pytest.fixture
def writer(tmp_path: Path) -> sqlite3.Connection:
    """A transaction in a new file, before its mode was changed."""
    connection = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    connection.execute("CREATE TABLE other (id TEXT)")
    connection.execute("BEGIN IMMEDIATE")
    return connection


@pytest.mark.parametrize("work", [begin_and_commit, read_the_index])
def test_a_transaction_under_way_is_waited_for(writer: sqlite3.Connection, tmp_path: Path, work: Work) -> None:
    failures, done = list[BaseException](), threading.Event()

    def run() -> None:
        try:
            work(tmp_path / "a.db")
        except BaseException as error:  # noqa: BLE001 - reported by the test's thread
            failures.append(error)
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert not done.wait(0.3), f"it waits; {failures}"
    writer.execute("COMMIT")
    thread.join()
    assert failures == []
    writer.close()


def test_it_does_not_wait_longer_than_for_any_transaction(
    writer: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.05)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        sqlite.connect(tmp_path / "a.db")
    writer.close()


def test_other_errors_are_raised_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"not a database" * 100)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        sqlite.connect(tmp_path / "a.db")


# -- whose turn it is


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[SqliteInbox]:
    made = SqliteInbox(tmp_path / "inbox.db")
    yield made
    made.close()


def record(offset: int) -> RecordIdentity:
    return RecordIdentity("g", "t", 0, offset)


def test_threads_wait_for_their_turn_however_long_it_takes_and_in_order(
    inbox: SqliteInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.rollback(inbox.begin(())[0])  # the table is made
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.05)
    first, _ = inbox.begin([record(0)])
    begun = list[int]()

    def work(offset: int) -> None:
        tx, _ = inbox.begin([record(offset)])
        begun.append(offset)
        inbox.commit(tx)

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(1, 9)]
    for number, thread in enumerate(threads, start=1):
        thread.start()
        wait_until(lambda number=number: len(inbox._turns._waiting) == number, "it waits")  # type: ignore[misc]
    assert not happens(lambda: begun, within_s=0.2), "four times as long as SQLite waits"
    inbox.commit(first)
    for thread in threads:
        thread.join()
    assert begun == list(range(1, 9))
    with inbox.counting() as count:
        assert count(record(0), 9) == 9


def close_connection(inbox: SqliteInbox) -> None:
    tx, _ = inbox.begin([record(1)])
    tx.close()
    with suppress(sqlite3.ProgrammingError):
        inbox.commit(tx)


def roll_back_closed(inbox: SqliteInbox) -> None:
    tx, _ = inbox.begin([record(1)])
    tx.close()
    inbox.rollback(tx)


def begin_on_nothing(inbox: SqliteInbox) -> None:
    inbox.path = inbox.path / "no such folder" / "inbox.db"
    with suppress(sqlite3.OperationalError):
        inbox.begin([record(1)])
    inbox.path = inbox.path.parents[1]


def prune(inbox: SqliteInbox) -> None:
    inbox.prune(datetime.now(UTC))


@pytest.mark.parametrize("use", [close_connection, roll_back_closed, begin_on_nothing, prune])
def test_a_turn_ends_whatever_happens_in_it(inbox: SqliteInbox, use: Callable[[SqliteInbox], None]) -> None:
    use(inbox)
    assert not inbox._turns._taken
    tx, new = inbox.begin([record(1)])
    assert new
    inbox.commit(tx)
