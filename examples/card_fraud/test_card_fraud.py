"""What becomes of each kind of event, on the engine in memory. The database's part is in the story."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import psycopg
import pytest

from examples.card_fraud.events import DecisionEvent
from examples.card_fraud.service import TOPIC, Resources, app, lifespan
from examples.card_fraud.store import PostgresStore
from examples.card_fraud.story import POISON, SCHEMA, event
from examples.stage.postgres import Postgres
from examples.stage.proxy import TcpProxy
from keepfast.testing.harness import Harness, harness


class Rows:
    """A store that fails a given number of times."""

    def __init__(self, error: Exception | None = None, times: int = 0) -> None:
        self.kept: list[DecisionEvent] = []
        self._error = error
        self._times = times

    async def keep(self, event: DecisionEvent, raw: bytes) -> None:
        assert json.loads(raw)["transaction_id"] == event.transaction_id
        self._times -= 1
        if self._error is not None and self._times >= 0:
            raise self._error
        self.kept.append(event)


@pytest.fixture
def database() -> Iterator[str]:
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # its server runs as another user
        server = Postgres(Path(folder))
        server.start()
        yield server.create("card_fraud", SCHEMA.read_text())
        server.stop()


def sent(value: object, shelf: Rows) -> Harness:
    async def story() -> Harness:
        async with harness(app, resources=Resources(shelf)) as h:
            await h.send(TOPIC, value, key="tx-0001")
            return h

    return asyncio.run(story())


@pytest.mark.parametrize("kind", ["PREAUTH", "POSTAUTH"])
def test_an_event_that_is_right_is_kept(kind: str) -> None:
    shelf = Rows()
    assert sent(event(1, kind), shelf).dead == []
    assert [one.evaluation_type for one in shelf.kept] == [kind]


def test_a_database_that_does_not_answer_ends_every_event_in_its_time() -> None:
    async def story(port: int) -> None:
        one = DecisionEvent.model_validate(event(1, "PREAUTH"))
        async with PostgresStore(f"postgresql://service@127.0.0.1:{port}/x", timeout_s=0.1) as store:
            outcomes = await asyncio.gather(*(store.keep(one, b"{}") for _ in range(20)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {TimeoutError}

    with TcpProxy(("127.0.0.1", 9)) as database:
        database.hang()
        asyncio.run(story(database.port))


def test_the_server_cancels_a_statement_that_takes_too_long(database: str) -> None:
    async def stored() -> None:
        async with PostgresStore(database, timeout_s=0.2) as store:
            await store.keep(DecisionEvent.model_validate(event(1)), b"{}")

    with psycopg.connect(database) as migration:
        migration.execute("LOCK TABLE fraud_gov.transactions")
        with pytest.raises(asyncpg.QueryCanceledError):
            asyncio.run(stored())


def test_the_pool_is_closed_when_the_lifespan_ends() -> None:
    async def story() -> None:
        async with lifespan(app) as resources:
            pass
        with pytest.raises(asyncpg.InterfaceError, match="pool is closed"):
            await resources.store.keep(DecisionEvent.model_validate(event(1)), b"{}")

    asyncio.run(story())


@pytest.mark.parametrize("name", POISON)
def test_poison_is_dead_lettered_at_once_with_its_code(name: str) -> None:
    value, code = POISON[name]
    shelf = Rows()
    [letter] = sent(value, shelf).dead
    assert (letter.error_code, letter.value, letter.retry_count) == (code, value, 0)
    assert (letter.group, shelf.kept) == ("card-fraud-transaction-management.local", [])


@pytest.mark.parametrize("field", ["decision", "decision_reason"])
def test_preauth_needs_both_and_postauth_takes_neither(field: str) -> None:
    for fields in (event(1, "PREAUTH") | {field: None}, event(1, "POSTAUTH") | {field: "APPROVE"}):
        [letter] = sent(fields, Rows()).dead
        assert letter.error_code == "SCHEMA_INVALID"


def test_a_card_number_is_discarded_and_in_no_letter() -> None:
    shelf = Rows()
    h = sent(event(1, note="4111 1111 1111 1111"), shelf)
    assert (len(h.discarded), h.dead, shelf.kept) == (1, [], [])


def test_a_deadlock_is_tried_again() -> None:
    shelf = Rows(asyncpg.exceptions.DeadlockDetectedError("deadlock detected"), times=2)
    h = sent(event(1), shelf)
    assert (h.dead, len(shelf.kept), h.retries(h.processed[0])) == ([], 1, 2)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError("the database is down"),
        TimeoutError("the database hangs"),
        asyncpg.exceptions.QueryCanceledError("canceling statement due to statement timeout"),
        asyncpg.exceptions.TooManyConnectionsError("sorry, too many clients already"),
        asyncpg.exceptions.InvalidPasswordError("password authentication failed"),
        asyncpg.exceptions.ReadOnlySQLTransactionError("a standby"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_database_that_is_unavailable_for_an_hour_costs_no_letter(error: Exception) -> None:
    shelf = Rows(error, times=60)
    h = sent(event(1), shelf)
    assert (h.dead, len(shelf.kept)) == ([], 1)


@pytest.mark.parametrize(
    ("error", "code", "retries"),
    [
        (asyncpg.exceptions.DeadlockDetectedError("again and again"), "DB_TRANSIENT_ERROR", 3),
        (asyncpg.exceptions.ForeignKeyViolationError("no such currency"), "DB_CONSTRAINT_VIOLATION", 0),
        (RuntimeError("unknown"), "UNHANDLED_EXCEPTION", 0),
    ],
)
def test_what_does_not_pass_becomes_a_letter(error: Exception, code: str, retries: int) -> None:
    [letter] = sent(event(1), Rows(error, times=99)).dead
    assert (letter.error_code, letter.retry_count) == (code, retries)
