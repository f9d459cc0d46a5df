"""A database of SQLite is opened while another connection writes to it: the first time, too, when its mode changes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast import sqlite
from keepfast.core.inbox import RecordIdentity
from keepfast.desk.database import Database
from keepfast.inbox.sqlite import SqliteInbox

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
