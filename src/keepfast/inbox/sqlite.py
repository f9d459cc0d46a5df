"""An inbox in a file of SQLite, for services on one host."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from keepfast.core.errors import ConfigError
from keepfast.core.inbox import RETENTION_DAYS, RecordIdentity
from keepfast.sqlite import connect

if TYPE_CHECKING:
    from keepfast.engine.context import RawRecord

MAKE = """
CREATE TABLE IF NOT EXISTS keepfast_inbox (
    consumer_group TEXT NOT NULL,
    source TEXT NOT NULL,
    partition INTEGER NOT NULL,
    record_offset INTEGER NOT NULL,
    done_at REAL NOT NULL,
    PRIMARY KEY (consumer_group, source, partition, record_offset)
) WITHOUT ROWID
"""
INSERT = "INSERT INTO keepfast_inbox VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
BETWEEN = (
    "FROM keepfast_inbox WHERE consumer_group = ? AND source = ? AND partition = ? AND record_offset >= ?"
    " AND record_offset < ?"
)
PRUNE = (
    "DELETE FROM keepfast_inbox WHERE (consumer_group, source, partition, record_offset) IN"
    " (SELECT consumer_group, source, partition, record_offset FROM keepfast_inbox WHERE done_at < ? LIMIT ?)"
)
PRUNE_ROWS = 10_000


class Turns:
    """One thread after another, in the order in which they came. The end of a turn may be another thread's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the rest
        self._taken = False
        self._waiting: deque[threading.Lock] = deque()

    def take(self) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()

    def end(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False


class SqliteInbox:
    """Processed records are noted in a database of SQLite, in the transaction of the handler's own writes: the
    parameter `tx: sqlite3.Connection` of a `def` handler. The handler must neither commit nor roll back.

    SQLite lets one transaction write at a time, so records are processed one after another: threads of a process wait
    for their turn, and processes for 30 s at most, then the attempt fails with `database is locked`. For `async def`
    handlers, and for several hosts, use `PostgresInbox`. `key` and `retention_days` are as there. Implements
    `core.inbox.Inbox`; any thread.
    """

    transaction = sqlite3.Connection

    def __init__(
        self,
        path: str | Path,
        *,
        key: Callable[[RawRecord], str | bytes] | None = None,
        retention_days: float = RETENTION_DAYS,
    ) -> None:
        self.path = Path(path)
        self.key = key
        self.retention_days = retention_days
        self._turns = Turns()  # SQLite would let those who wait try again at random, and fail in the end
        self._lock = threading.Lock()  # guards the list
        self._idle: list[sqlite3.Connection] = []

    def begin(self, identities: Sequence[RecordIdentity]) -> tuple[sqlite3.Connection, Collection[RecordIdentity]]:
        self._turns.take()
        try:
            return self._begin(identities)
        except BaseException:
            self._turns.end()
            raise

    def _begin(self, identities: Sequence[RecordIdentity]) -> tuple[sqlite3.Connection, Collection[RecordIdentity]]:
        connection, now = self._connection(), time.time()
        try:
            connection.execute("BEGIN IMMEDIATE")
            new = [one for one in identities if connection.execute(INSERT, (*one, now)).rowcount]
        except BaseException:
            connection.close()
            raise
        return connection, new

    def commit(self, tx: sqlite3.Connection) -> None:
        try:
            tx.execute("COMMIT")
        except BaseException:
            self._drop(tx)
            raise
        self._release(tx)

    def rollback(self, tx: sqlite3.Connection) -> None:
        try:
            tx.execute("ROLLBACK")
        except sqlite3.Error:
            self._drop(tx)
        else:
            self._release(tx)

    def prune(self, before: datetime) -> int:
        connection, _ = self.begin(())
        try:
            found = connection.execute(PRUNE, (before.timestamp(), PRUNE_ROWS))
        except BaseException:
            self.rollback(connection)
            raise
        self.commit(connection)
        return found.rowcount

    @contextmanager
    def counting(self) -> Iterator[Callable[..., int]]:
        """As `tables.done_between`, in one transaction. Raises ConfigError if there is no such file."""
        if not self.path.exists():
            raise ConfigError(f"There is no inbox {self.path} here; run this where its consumer runs.")
        connection, _ = self.begin(())

        def done_between(first: RecordIdentity, end: int, *, remove: bool = False) -> int:
            found = connection.execute(f"{'DELETE' if remove else 'SELECT count(*)'} {BETWEEN}", (*first, end))
            return int(found.rowcount if remove else found.fetchone()[0])

        try:
            yield done_between
        except BaseException:
            self.rollback(connection)
            raise
        self.commit(connection)

    def close(self) -> None:
        """Close connections that are not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _connection(self) -> sqlite3.Connection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        connection = connect(self.path)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(MAKE)
        return connection

    def _release(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            self._idle.append(connection)
        self._turns.end()

    def _drop(self, connection: sqlite3.Connection) -> None:
        """What it had begun is rolled back."""
        connection.close()
        self._turns.end()
