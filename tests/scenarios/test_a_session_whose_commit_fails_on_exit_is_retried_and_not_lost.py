"""A provider opens a transaction and commits it after the handler: a COMMIT that fails is a failed attempt, because a
record is finished after its exits; and a record that timed out commits nothing any more.

Annotations are evaluated here when a function is defined, because they name what is local to a test.
"""

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import Annotated, Any

import psycopg
import pytest

from keepfast import Context, Provide, RetryPolicy
from keepfast.core.errors import Abandoned
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until

REFUSALS = 2
SCHEMA = f"""
CREATE TABLE charges (id text PRIMARY KEY, attempt int);
CREATE SEQUENCE commits;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF nextval('commits') <= {REFUSALS} THEN
    RAISE EXCEPTION 'the COMMIT is refused' USING ERRCODE = '40001';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON charges DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION refuse();
"""
"""The first COMMITs with a row fail, as in a conflict of transactions; a sequence is not rolled back."""
INSERT = "INSERT INTO charges VALUES (%s, %s)"


@pytest.fixture
def database(postgres: str) -> str:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute(SCHEMA)
    return postgres


def rows(database: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database) as connection:
        return connection.execute("SELECT id, attempt FROM charges ORDER BY id").fetchall()


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_every_record_has_its_row_whatever_became_of_the_first_commits(
    kafka: TopicAdmin, topic: TopicFactory, database: str, is_async: bool
) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)

    def session() -> Iterator[psycopg.Connection]:
        with closing(psycopg.connect(database)) as connection, connection.transaction():
            yield connection

    async def session_async() -> AsyncIterator[psycopg.AsyncConnection]:
        connection = await psycopg.AsyncConnection.connect(database)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()

    def charge(value: bytes, db: Annotated[psycopg.Connection, Provide(session)], ctx: Context) -> None:
        db.execute(INSERT, (value.decode(), ctx.attempt))

    async def charge_async(
        value: bytes, db: Annotated[psycopg.AsyncConnection, Provide(session_async)], ctx: Context
    ) -> None:
        await db.execute(INSERT, (value.decode(), ctx.attempt))

    retry = RetryPolicy(initial_delay_ms=20, max_delay_ms=20)
    app.consumer(name, name="work", retry=retry)(charge_async if is_async else charge)
    client.produce(name, [NewRecord(value) for value in (b"a", b"b", b"c")])
    with RunningApp(app):
        wait_until(lambda: client.is_committed("scenario.work", name, 3), "all are committed")
    assert rows(database) == [("a", 1 + REFUSALS), ("b", 1), ("c", 1)]


def test_a_handler_that_ends_after_its_timeout_commits_nothing(
    kafka: TopicAdmin, topic: TopicFactory, database: str
) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    hangs, left = threading.Event(), list[str]()
    with psycopg.connect(database) as connection:
        connection.execute("SELECT setval('commits', %s)", (REFUSALS,))  # none is refused

    def session() -> Iterator[psycopg.Connection]:
        with closing(psycopg.connect(database)) as connection, connection.transaction():
            try:
                yield connection
            except Abandoned:
                left.append("abandoned")
                raise

    @app.consumer(name, name="work", timeout_s=0.3)
    def charge(value: bytes, db: Annotated[psycopg.Connection, Provide(session)]) -> None:
        db.execute(INSERT, (value.decode(), 1))
        assert hangs.wait(DEADLINE_S)

    client.produce(name, [NewRecord(b"a")])
    with RunningApp(app):
        wait_until(lambda: client.is_committed("scenario.work", name, 1), "it is dead-lettered")
        hangs.set()
        wait_until(lambda: left == ["abandoned"], "the session is left")
    assert rows(database) == []
