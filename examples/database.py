"""PostgreSQL for handlers that are plain functions: a pool for the lifespan of an app or a runner. Copy it along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

import psycopg
from psycopg_pool import ConnectionPool

from keepfast import App

Connection = psycopg.Connection[tuple[Any, ...]]
Lifespan = Callable[[App], AbstractContextManager[Any]]


class Database:
    """Open while it is entered, or from `open` to `close`. No connection is made before the first transaction: where
    there is no database, records are retried instead of the start failing. Any thread.
    """

    def __init__(self, url: str, *, connections: int = 10, timeout_s: int = 5) -> None:
        self.pool: ConnectionPool[Connection] = ConnectionPool(
            url,
            min_size=0,
            max_size=connections,
            timeout=timeout_s,
            open=False,
            kwargs={"connect_timeout": timeout_s, "options": f"-c statement_timeout={timeout_s}s"},
        )

    def open(self) -> None:
        self.pool.open()

    def close(self) -> None:
        self.pool.close(timeout=2)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Committed when the block ends, rolled back when it raises."""
        with self.pool.connection() as connection:
            yield connection
