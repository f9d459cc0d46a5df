"""A final failure of a batch is the fault of some of its records only: they are found, or named, and dead-lettered; all
others are done, and with a handler that is one transaction a call each of them exactly once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest

from keepfast import App, BatchContext, BatchPolicy, Reject
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support import postgres
from tests.support.broker_client import Client
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

COUNT, BAD = 500, (17, 250, 499)
WHOLE = BatchPolicy(size=COUNT, wait_s=5.0)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres.running() as address:
        yield address


def records() -> list[bytes]:
    return [b'{"id":%d,"amount":%d}' % (number, -1 if number in BAD else 1) for number in range(COUNT)]


def run_to_the_end(app: App, client: Client, name: str) -> list[int]:
    """Until everything is committed; returns the ids of the records in the letters."""
    client.produce(name, records())
    with RunningApp(app):
        wait_until(lambda: client.committed("scenario.store", name)[0] == COUNT, "all are committed")
    letters = [json.loads(letter.value()) for letter in client.read(f"{name}.dlq", len(BAD))]
    assert client.edges(f"{name}.dlq") == (0, len(BAD)), "no letter twice"
    return sorted(letter["original_message"]["id"] for letter in letters)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_with_one_transaction_a_call_the_bad_ones_are_found_by_halves(
    kafka: TopicAdmin, topic: TopicFactory, database: str, asynchronous: bool
) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    table, calls = f"stored_{'async' if asynchronous else 'sync'}", []
    with psycopg.connect(database) as connection:
        # No key: what is done twice shows.
        connection.execute(f"create table {table} (id int not null, amount int check (amount > 0))")
    insert = f"insert into {table} values (%s, %s)"
    options = {"idempotent": True, "atomic": True, "batch": WHOLE, "dead_letter": f"{name}.dlq"}

    def store(payments: list[dict[str, int]]) -> None:
        calls.append(len(payments))
        with psycopg.connect(database) as connection, connection.cursor() as cursor:
            cursor.executemany(insert, [(payment["id"], payment["amount"]) for payment in payments])

    async def store_async(payments: list[dict[str, int]]) -> None:
        calls.append(len(payments))
        async with await psycopg.AsyncConnection.connect(database) as connection, connection.cursor() as cursor:
            await cursor.executemany(insert, [(payment["id"], payment["amount"]) for payment in payments])

    app.consumer(name, name="store", **options)(store_async if asynchronous else store)  # type: ignore[arg-type]
    assert run_to_the_end(app, client, name) == list(BAD)
    with psycopg.connect(database) as connection:
        rows = connection.execute(f"select id from {table} order by id").fetchall()
    assert [row[0] for row in rows] == [number for number in range(COUNT) if number not in BAD]
    assert calls[0] == COUNT
    assert len(calls) <= 3 * 12


def test_records_that_the_handler_names_are_dead_lettered_and_the_others_done_in_one_more_call(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    calls: list[int] = []
    stored: list[tuple[int, int]] = []

    @app.consumer(name, order="none", idempotent=True, batch=WHOLE, dead_letter=f"{name}.dlq")
    def store(payments: list[dict[str, int]], ctx: BatchContext) -> None:
        calls.append(len(payments))
        bad = [index for index, payment in enumerate(payments) if payment["amount"] < 0]
        if bad:
            raise Reject("negative amount", code="SCHEMA_INVALID", index=bad)
        stored.extend((one.offset, payment["id"]) for one, payment in zip(ctx, payments, strict=True))

    assert run_to_the_end(app, client, name) == list(BAD)
    assert calls == [COUNT, COUNT - len(BAD)]
    assert stored == [(number, number) for number in range(COUNT) if number not in BAD]
    assert {json.loads(letter.value())["error_code"] for letter in client.read(f"{name}.dlq", 3)} == {"SCHEMA_INVALID"}
