"""Connections to PostgreSQL, from a pool. It is opened by the first transaction: where there is no database, records
are retried instead of the start failing. Any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg2.pool import ThreadedConnectionPool

from institution_enhancement.tasks.config import Config

logger = logging.getLogger(__name__)

_lock = threading.Lock()
_pools: list[ThreadedConnectionPool] = []


@contextmanager
def transaction() -> Iterator[Any]:
    """A cursor; committed when the block ends, rolled back when it raises."""
    pool = _opened()
    connection: Any = pool.getconn()
    try:
        with connection, connection.cursor() as cursor:
            yield cursor
    finally:
        pool.putconn(connection, close=bool(connection.closed))


def close_pool() -> None:
    with _lock:
        while _pools:
            _pools.pop().closeall()
            logger.info("pool_closed")


def _opened() -> ThreadedConnectionPool:
    with _lock:
        if not _pools:
            config = Config.from_environment().database
            _pools.append(
                ThreadedConnectionPool(
                    config.pool_min,
                    config.pool_max,
                    host=config.host,
                    port=config.port,
                    dbname=config.name,
                    user=config.user,
                    password=config.password,
                    connect_timeout=config.timeout_seconds,
                    options=f"-c statement_timeout={config.timeout_seconds}s",
                )
            )
        return _pools[0]
