"""PostgresInbox: its pools, and transactions that must not pretend."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import psycopg_pool
import pytest

from keepfast import PostgresInbox
from keepfast.core.errors import ConfigError, StartError
from keepfast.core.inbox import RecordIdentity
from keepfast.inbox import tables
from keepfast.inbox.postgres import PlainPostgresInbox, PostgresPools, conninfo_of
from keepfast.settings import AppSpec, Settings, load
from tests.support.postgres import serving

ONE = [RecordIdentity("g", "t", 0, 1)]


@pytest.fixture
def pool(database: str) -> Iterator[psycopg_pool.ConnectionPool]:
    with psycopg_pool.ConnectionPool(database, min_size=1, max_size=3) as pool:
        yield pool


def bound(pool: Any, **options: Any) -> PlainPostgresInbox:
    given = {"app": "a", "key": None, "outbox": False, "retention_days": 14, "wake": lambda: None}
    return PlainPostgresInbox(pool, **{**given, **options})


def settings_of(environ: dict[str, str], tmp_path: Any) -> Settings:
    return load(AppSpec(name="a", consumers={"c": {"topics": "t"}}), environ=environ, cwd=tmp_path)


def test_a_handler_that_goes_on_after_a_failed_statement_commits_nothing(pool: Any, connection: Any) -> None:
    inbox = bound(pool)
    tx, _ = inbox.begin(ONE)
    with pytest.raises(psycopg.errors.UndefinedTable):
        tx.execute("INSERT INTO nowhere VALUES (1)")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction, match="the handler went on"):
        inbox.commit(tx)
    assert connection.execute("SELECT count(*) FROM keepfast_inbox").fetchone() == (0,)


def test_a_handler_cannot_commit_by_itself(pool: Any, connection: Any) -> None:
    inbox = bound(pool)
    tx, _ = inbox.begin(ONE)
    with pytest.raises(psycopg.ProgrammingError):
        tx.commit()
    inbox.rollback(tx)
    assert connection.execute("SELECT count(*) FROM keepfast_inbox").fetchone() == (0,)


def test_a_handler_may_use_savepoints(pool: Any, connection: Any) -> None:
    inbox = bound(pool)
    tx, _ = inbox.begin(ONE)
    with pytest.raises(psycopg.errors.UndefinedTable), tx.transaction():
        tx.execute("INSERT INTO nowhere VALUES (1)")
    tx.execute("INSERT INTO effects VALUES ('kept')")
    inbox.commit(tx)
    assert connection.execute("SELECT id FROM effects").fetchall() == [("kept",)]


@pytest.mark.parametrize("autocommit", [False, True])
def test_connections_always_return_to_the_pool(database: str, autocommit: bool) -> None:
    options = {"autocommit": autocommit, "row_factory": psycopg.rows.dict_row}
    with psycopg_pool.ConnectionPool(database, min_size=1, max_size=1, timeout=5, kwargs=options) as pool:
        inbox = bound(pool)
        for number in range(6):
            tx, new = inbox.begin([RecordIdentity("g", "t", 0, number), RecordIdentity("g", "t", 0, number + 100)])
            assert len(new) == 2
            (inbox.commit if number % 2 else inbox.rollback)(tx)
        tx, _ = inbox.begin(ONE)
        block = tx.transaction()
        block.__enter__()  # a handler that leaves a block open
        inbox.rollback(tx)
        tx, _ = inbox.begin(ONE)
        tx.close()
        with pytest.raises(psycopg.OperationalError):
            inbox.commit(tx)
        tx, _ = inbox.begin(ONE)
        inbox.commit(tx)


def test_connections_that_died_with_the_server_are_replaced_before_a_record_fails() -> None:
    with serving() as server, psycopg_pool.ConnectionPool(server.url, min_size=3, max_size=3) as pool:
        with psycopg.connect(server.url, autocommit=True) as connection:
            tables.migrate(connection, outbox=False)
        pool.wait()
        server.restart()
        inbox = bound(pool)
        for number in range(3):
            tx, _ = inbox.begin([RecordIdentity("g", "t", 0, number)])
            inbox.commit(tx)


def test_the_pool_of_the_resources_is_used_and_may_be_named(pool: Any, database: str, tmp_path: Any) -> None:
    pools = PostgresPools(settings_of({}, tmp_path).postgres, "a")
    found = PostgresInbox().bind(resources=None, candidates=[object(), pool], pools=pools, is_async=False)
    assert found.pool is pool
    resources = SimpleNamespace(mine=pool)
    named = PostgresInbox(pool=lambda given: given.mine)
    assert named.bind(resources=resources, candidates=[], pools=pools, is_async=False).pool is pool
    other = psycopg_pool.ConnectionPool(database, open=False)
    with pytest.raises(ConfigError, match="have 2 pools of type ConnectionPool; name one"):
        PostgresInbox().bind(resources=None, candidates=[pool, other], pools=pools, is_async=False)
    with pytest.raises(ConfigError, match="returned ConnectionPool; this handler needs AsyncConnectionPool"):
        named.bind(resources=resources, candidates=[], pools=pools, is_async=True)


def test_without_a_pool_the_settings_say_where_the_database_is(tmp_path: Any) -> None:
    environ = {
        "POSTGRES_HOST": "db",
        "POSTGRES_PORT": "6432",
        "POSTGRES_DB": "shop",
        "POSTGRES_USER": "me",
        "POSTGRES_PASSWORD": "s3cret word",
        "POSTGRES_POOL_MIN": "1",
        "POSTGRES_POOL_MAX": "7",
    }
    settings = settings_of(environ, tmp_path)
    assert "s3cret" not in repr(settings)
    found = psycopg.conninfo.conninfo_to_dict(conninfo_of(settings.postgres))
    assert found == {"host": "db", "port": "6432", "dbname": "shop", "user": "me", "password": "s3cret word"}
    pool = PostgresPools(settings.postgres, "a").of(is_async=False)
    assert (pool.min_size, pool.max_size) == (1, 7)
    assert settings_of({}, tmp_path).postgres.pool_max == 10


def test_without_any_database_it_says_what_to_set(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match=r"PostgresInbox .* type AsyncConnectionPool .* set POSTGRES_HOST or"):
        PostgresPools(settings_of({}, tmp_path).postgres, "a").of(is_async=True)


def test_a_role_that_may_not_create_tables_is_told_the_command(database: str, connection: Any) -> None:
    connection.execute("DROP TABLE keepfast_inbox")
    connection.execute("DROP ROLE IF EXISTS reader")
    connection.execute("CREATE ROLE reader LOGIN")
    with psycopg.connect(database, user="reader", autocommit=True) as poor:
        with pytest.raises(StartError, match="keepfast inbox migrate"):
            tables.ensure(poor, outbox=True)
        connection.execute("GRANT USAGE, CREATE ON SCHEMA public TO reader")
        tables.ensure(poor, outbox=True)
    connection.execute("DROP OWNED BY reader; DROP ROLE reader")
