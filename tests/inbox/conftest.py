"""A database with the tables of inbox and outbox."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from keepfast.inbox import tables


@pytest.fixture
def database(postgres: str) -> str:
    """Its address; the tables are there and empty, and one named `effects`."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        tables.migrate(connection, outbox=True)
        connection.execute("CREATE TABLE effects (id text)")
    return postgres


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    """Beside what is tested, in autocommit."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection
