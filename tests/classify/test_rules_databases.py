"""Errors of a real PostgreSQL, as each driver and SQLAlchemy tell them; sqlite beside it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import psycopg
import psycopg2
import psycopg2.pool
import psycopg_pool
import pytest
import sqlalchemy as sa
from sqlalchemy.pool import QueuePool

from tests.classify.errors import caught, caught_async, refused_port, verdict
from tests.support import postgres
from tests.support.waiting import DEADLINE_S

CONFLICT = ("retryable", "DB_TRANSIENT_ERROR", False)
DB_DOWN = ("retryable", "DB_TRANSIENT_ERROR", True)
DB_TIMEOUT = ("retryable", "DB_TIMEOUT", True)
CONSTRAINT = ("non-retryable", "DB_CONSTRAINT_VIOLATION", False)
INVALID = ("non-retryable", "DB_STATEMENT_INVALID", False)
BAD_DATA = ("non-retryable", "DB_DATA_INVALID", False)

Execute = Callable[[str], object]


class Driver(Protocol):
    """One way to reach the database: each statement of `script` on one connection; the error of the last one."""

    def __call__(self, address: str, script: Sequence[str]) -> BaseException: ...


def with_psycopg(address: str, script: Sequence[str]) -> BaseException:
    def run() -> None:
        with psycopg.connect(address, autocommit=True) as connection:
            for statement in script:
                connection.execute(statement.encode())

    return caught(run)


def with_psycopg2(address: str, script: Sequence[str]) -> BaseException:
    def run() -> None:
        with closing(psycopg2.connect(address)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                for statement in script:
                    cursor.execute(statement)

    return caught(run)


def with_asyncpg(address: str, script: Sequence[str]) -> BaseException:
    async def run() -> None:
        connection = await asyncpg.connect(address)
        try:
            for statement in script:
                await connection.execute(statement)
        finally:
            await connection.close()

    return caught_async(run)


def _with_sqlalchemy(dialect: str) -> Driver:
    def driver(address: str, script: Sequence[str]) -> BaseException:
        engine = sa.create_engine(address.replace("postgresql:", f"postgresql+{dialect}:"), poolclass=sa.NullPool)

        def run() -> None:
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                for statement in script:
                    connection.execute(sa.text(statement))

        return caught(run)

    driver.__name__ = f"with_sqlalchemy_on_{dialect}"
    return driver


DRIVERS: list[Driver] = [
    with_psycopg,
    with_psycopg2,
    with_asyncpg,
    _with_sqlalchemy("psycopg"),
    _with_sqlalchemy("psycopg2"),
]


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.__name__)
def driver(request: pytest.FixtureRequest) -> Driver:
    chosen: Driver = request.param
    return chosen


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with postgres.running() as uri:
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute("CREATE TABLE account (id int PRIMARY KEY, owner varchar(5) NOT NULL, cents int)")
            connection.execute("CREATE TABLE entry (account int REFERENCES account)")
            connection.execute("INSERT INTO account VALUES (1, 'ann', 0), (2, 'bob', 0)")
            connection.execute("CREATE ROLE guest")
        yield uri


@contextmanager
def held_lock(address: str) -> Iterator[None]:
    with psycopg.connect(address) as holder:
        holder.execute("LOCK TABLE entry")
        yield
        holder.rollback()


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("INSERT INTO account VALUES (1, 'eve', 0)", CONSTRAINT),
        ("INSERT INTO account VALUES (3, NULL, 0)", CONSTRAINT),
        ("INSERT INTO entry VALUES (99)", CONSTRAINT),
        ("DO $$ BEGIN RAISE EXCEPTION 'account is closed'; END $$", CONSTRAINT),
        ("INSERT INTO account VALUES (4, 'much too long', 0)", BAD_DATA),
        ("SELECT 1 / 0", BAD_DATA),
        ("SELECT 'x'::int", BAD_DATA),
        ("SELEC 1", INVALID),
        ("SELECT * FROM nowhere", INVALID),
        ("SELECT pg_terminate_backend(pg_backend_pid())", DB_DOWN),
    ],
)
def test_one_statement(driver: Driver, address: str, statement: str, expected: tuple[str, str, bool]) -> None:
    assert verdict(driver(address, [statement])) == expected


def test_a_statement_over_its_time_limit(driver: Driver, address: str) -> None:
    assert verdict(driver(address, ["SET statement_timeout = 20", "SELECT pg_sleep(5)"])) == DB_TIMEOUT


def test_a_lock_that_is_not_had_in_time(driver: Driver, address: str) -> None:
    with held_lock(address):
        script = ["SET lock_timeout = 20", "INSERT INTO entry VALUES (1)"]
        assert verdict(driver(address, script)) == CONFLICT
        assert verdict(driver(address, ["BEGIN", "LOCK TABLE entry NOWAIT"])) == CONFLICT


def test_a_right_that_is_missing(driver: Driver, address: str) -> None:
    script = ["SET ROLE guest", "SELECT * FROM account"]
    assert verdict(driver(address, script)) == ("non-retryable", "AUTH_REFUSED", False)


def test_a_standby_that_cannot_write(driver: Driver, address: str) -> None:
    script = ["SET default_transaction_read_only = on", "INSERT INTO entry VALUES (1)"]
    assert verdict(driver(address, script)) == DB_DOWN


def test_a_transaction_that_has_failed_before(address: str) -> None:
    with psycopg.connect(address) as connection:
        caught(lambda: connection.execute("SELECT 1 / 0"))
        assert verdict(caught(lambda: connection.execute("SELECT 1"))) == CONFLICT


def test_a_serialization_failure(address: str) -> None:
    with psycopg.connect(address) as one, psycopg.connect(address) as other:
        for connection in (one, other):
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("SELECT * FROM account").fetchall()
        one.execute("UPDATE account SET cents = 1 WHERE id = 1")
        one.commit()
        error = caught(lambda: other.execute("UPDATE account SET cents = 2 WHERE id = 1"))
        assert isinstance(error, psycopg.errors.SerializationFailure)
        assert verdict(error) == CONFLICT
        other.rollback()


def test_a_deadlock(address: str) -> None:
    with psycopg2_pair(address) as (one, other):
        one("UPDATE account SET cents = 1 WHERE id = 1")
        other("UPDATE account SET cents = 2 WHERE id = 2")
        errors: list[BaseException] = []

        def cross() -> None:
            try:
                one("UPDATE account SET cents = 1 WHERE id = 2")
            except psycopg2.Error as error:
                errors.append(error)

        thread = threading.Thread(target=cross)
        thread.start()
        try:
            other("UPDATE account SET cents = 2 WHERE id = 1")
        except psycopg2.Error as error:
            errors.append(error)
        thread.join(DEADLINE_S)
    assert [error.pgcode for error in errors if isinstance(error, psycopg2.Error)] == ["40P01"]
    assert verdict(errors[0]) == CONFLICT


@contextmanager
def psycopg2_pair(address: str) -> Iterator[tuple[Execute, Execute]]:
    with closing(psycopg2.connect(address)) as one, closing(psycopg2.connect(address)) as other:
        executes: list[Execute] = []
        for connection in (one, other):
            cursor: Any = connection.cursor()
            cursor.execute("SET deadlock_timeout = 10")
            executes.append(cursor.execute)
        yield executes[0], executes[1]


def test_a_database_that_is_not_there(driver: Driver) -> None:
    with refused_port() as port:
        error = driver(f"postgresql://user@127.0.0.1:{port}/x", [])
    expected = ("retryable", "NETWORK_ERROR", True) if driver is with_asyncpg else DB_DOWN
    assert verdict(error) == expected


def test_a_login_that_is_refused(address: str) -> None:
    """asyncpg tells why; libpq's drivers say only that there is no connection, which is tried again."""
    stranger = address.replace("postgres:", "nobody:")
    assert verdict(with_asyncpg(stranger, [])) == ("non-retryable", "AUTH_REFUSED", False)
    assert verdict(with_psycopg(stranger, [])) == DB_DOWN
    assert verdict(with_psycopg2(stranger, [])) == DB_DOWN


def test_a_password_that_was_rotated() -> None:
    """A PostgreSQL that asks for passwords is in the scenario about an unavailable database."""
    assert verdict(asyncpg.InvalidPasswordError("of a known user")) == ("retryable", "AUTH_REFUSED", True)
    assert verdict(psycopg.errors.InvalidPassword("of a known user")) == ("retryable", "AUTH_REFUSED", True)


def test_a_connection_that_was_closed(address: str) -> None:
    connection = psycopg.connect(address)
    connection.close()
    assert verdict(caught(lambda: connection.execute("SELECT 1"))) == DB_DOWN
    older = psycopg2.connect(address)
    older.close()
    assert verdict(caught(older.cursor)) == DB_DOWN


def test_a_pool_that_is_used_up(address: str) -> None:
    engine = sa.create_engine(
        address.replace("postgresql:", "postgresql+psycopg:"),
        poolclass=QueuePool,
        pool_size=1,
        max_overflow=0,
        pool_timeout=0.01,
    )
    with engine.connect():
        assert verdict(caught(engine.connect)) == DB_DOWN
    engine.dispose()
    pool = psycopg2.pool.SimpleConnectionPool(1, 1, address)
    pool.getconn()
    assert verdict(caught(pool.getconn)) == DB_DOWN
    pool.closeall()
    with psycopg_pool.ConnectionPool(address, min_size=1, max_size=1) as newer, newer.connection():
        assert verdict(caught(lambda: newer.getconn(0.01))) == DB_DOWN


def test_asyncpg_and_a_value_of_the_wrong_type(address: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(address)
        try:
            await connection.execute("SELECT $1::int", "x")
        finally:
            await connection.close()

    assert verdict(caught_async(run)) == BAD_DATA


def test_a_row_that_is_not_there(address: str) -> None:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        error = caught(lambda: connection.execute(sa.text("SELECT 1 WHERE 1 = 2")).one())
    engine.dispose()
    assert verdict(error) == ("non-retryable", "NOT_FOUND", False)


def test_sqlite(tmp_path: Path) -> None:
    file = tmp_path / "data.db"
    with closing(sqlite3.connect(file)) as one, closing(sqlite3.connect(file, timeout=0)) as other:
        one.execute("CREATE TABLE account (id int PRIMARY KEY)")
        one.execute("BEGIN EXCLUSIVE")
        assert verdict(caught(lambda: other.execute("SELECT * FROM account"))) == CONFLICT
        one.execute("INSERT INTO account VALUES (1)")
        assert verdict(caught(lambda: one.execute("INSERT INTO account VALUES (1)"))) == CONSTRAINT
        assert verdict(caught(lambda: one.execute("SELECT ?", ()))) == INVALID
        assert verdict(caught(lambda: one.execute("SELECT * FROM nothing"))) == INVALID
        one.create_function("fails", 0, lambda: 1 / 0)
        assert verdict(caught(lambda: one.execute("SELECT fails()"))) == CONFLICT, "the same code, and another error"
        one.execute("PRAGMA query_only = ON")
        assert verdict(caught(lambda: one.execute("DELETE FROM account"))) == DB_DOWN


def test_sqlite_without_space(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "data.db")) as one:
        one.execute("CREATE TABLE account (name text)")
        one.execute("PRAGMA max_page_count = 2")
        assert verdict(caught(lambda: one.execute("INSERT INTO account VALUES (?)", ("x" * 100_000,)))) == DB_DOWN
    assert verdict(caught(lambda: sqlite3.connect(tmp_path / "missing" / "data.db"))) == DB_DOWN


def test_sqlite_behind_sqlalchemy(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/data.db")
    with engine.connect() as connection:
        assert verdict(caught(lambda: connection.execute(sa.text("SELECT * FROM nothing")))) == INVALID
    engine.dispose()
