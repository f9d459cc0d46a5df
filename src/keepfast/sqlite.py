"""Databases of SQLite that several threads and processes use."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

BUSY_TIMEOUT_S = 30.0
"""For a transaction of another connection."""
POLL_INTERVAL_S = 0.01


def connect(path: Path | None) -> sqlite3.Connection:
    """A connection in WAL mode, without transactions of its own; any thread may use it. None: in memory."""
    connection = sqlite3.connect(
        path or ":memory:", timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    try:
        _use_wal(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """SQLite does not wait here for other connections that write or do the same."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(POLL_INTERVAL_S)
        else:
            return
