"""PostgreSQL for handlers that are plain functions: a connection for each worker thread. Copy it along."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]


class Database:
    """Opened by the first transaction, and again after a connection broke. Any thread."""

    def __init__(self, url: str, *, timeout_s: int = 5) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._own = threading.local()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Committed when the block ends, undone when it raises."""
        connection: Connection | None = getattr(self._own, "connection", None)
        if connection is None or connection.closed:
            connection = psycopg.connect(
                self._url, connect_timeout=self._timeout_s, options=f"-c statement_timeout={self._timeout_s}s"
            )
            self._own.connection = connection
        with connection.transaction():
            yield connection
