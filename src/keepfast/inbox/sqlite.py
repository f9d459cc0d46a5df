"""An inbox in a file of SQLite, for services on one host."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from keepfast.core.errors import ConfigError, StartError
from keepfast.core.inbox import RETENTION_DAYS, RecordIdentity
from keepfast.core.serial_gate import SerialGate
from keepfast.sqlite import BUSY_TIMEOUT_S, connect

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
INTERRUPT_AFTER_S = 0.5
SERIALIZED = 3
"""The level of `sqlite3.threadsafety` at which threads may use a connection at the same time. Mostly it is."""
_gates: WeakValueDictionary[Path, SerialGate] = WeakValueDictionary()
"""Of each file that inboxes of this process write to."""


class SqliteInbox:
    """Processed records are noted in a database of SQLite, in the transaction of the handler's own writes: the
    parameter `tx: sqlite3.Connection` of a `def` handler. The handler must neither commit nor roll back.

    SQLite lets one transaction write at a time, so records are processed one after another: those of a process in
    turn, and the wait for it is not part of `timeout_s`. The transaction of a handler that is abandoned is rolled back
    at once, and what the handler does with it afterwards fails. One that waits for another process fails after 30 s
    with `database is locked`. For `async def` handlers, and for several hosts, use `PostgresInbox`. `key` and
    `retention_days` are as there. Implements `core.inbox.Inbox`; any thread.
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
        self.serial_gate = _gates.setdefault(self.path.resolve(), SerialGate())  # SQLite lets others overtake
        self._lock = threading.Lock()  # guards the list
        self._idle: list[sqlite3.Connection] = []

    def prepare(self) -> None:
        """Make the file and its table if they are missing. Raises StartError if they cannot be used."""
        try:
            self._release(self._connection())
        except sqlite3.Error as error:
            raise StartError(
                f"The inbox {self.path} cannot be used: {error}. It must be a database of SQLite, or not exist yet,"
                " and this process must be able to write to its folder."
            ) from error

    def begin(self, identities: Sequence[RecordIdentity]) -> tuple[sqlite3.Connection, Collection[RecordIdentity]]:
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
            tx.close()
            raise
        self._release(tx)

    def rollback(self, tx: sqlite3.Connection) -> None:
        try:
            tx.execute("ROLLBACK")
        except sqlite3.Error:
            tx.close()
        else:
            self._release(tx)

    def abort(self, tx: sqlite3.Connection) -> None:
        """Not by closing it, which is unsafe while the handler's thread is in one of its statements. One that runs is
        interrupted if it takes long: while a cursor is open, that would spoil these statements, too.
        """
        if sqlite3.threadsafety < SERIALIZED:
            return
        interrupt = threading.Timer(INTERRUPT_AFTER_S, tx.interrupt)
        interrupt.daemon = True
        interrupt.start()
        with suppress(sqlite3.Error):  # the interrupted statement may have rolled it back
            tx.execute("PRAGMA query_only = ON")
            tx.execute("ROLLBACK")  # never without the line above: later statements would count at once
        interrupt.cancel()

    def prune(self, before: datetime) -> int:
        with self.serial_gate.of(None, timeout_s=BUSY_TIMEOUT_S), self._transaction() as tx:
            return tx.execute(PRUNE, (before.timestamp(), PRUNE_ROWS)).rowcount

    @contextmanager
    def counting(self) -> Iterator[Callable[..., int]]:
        """As `tables.done_between`, in one transaction. Raises ConfigError if there is no such file."""
        if not self.path.exists():
            raise ConfigError(f"There is no inbox {self.path} here; run this where its consumer runs.")

        def done_between(first: RecordIdentity, end: int, *, remove: bool = False) -> int:
            found = tx.execute(f"{'DELETE' if remove else 'SELECT count(*)'} {BETWEEN}", (*first, end))
            return int(found.rowcount if remove else found.fetchone()[0])

        with self._transaction() as tx:
            yield done_between

    def close(self) -> None:
        """Close connections that are not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        tx, _ = self.begin(())
        try:
            yield tx
        except BaseException:
            self.rollback(tx)
            raise
        self.commit(tx)

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
