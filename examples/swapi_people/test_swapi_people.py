"""The flow's retries and the consumer's batches, without a broker. The database's part is in the story."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import httpx
import psycopg
import pytest

from examples.swapi_people import consumer
from examples.swapi_people.flow import fetch, people
from examples.swapi_people.people import Person, Row
from examples.swapi_people.service import TOPIC, make_app
from examples.swapi_people.story import POISON, person
from keepfast import ConfigError
from keepfast.runner import RetryConfig
from keepfast.testing.harness import Harness, harness

QUICK = RetryConfig(max_retries=3, initial_retry_delay_ms=1000, retry_jitter=False)


def client(*answers: httpx.Response | Exception) -> httpx.Client:
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return httpx.Client(transport=httpx.MockTransport(answer), base_url="http://swapi")


def page(*numbers: int, more: str | None = None) -> httpx.Response:
    return httpx.Response(200, json={"next": more, "results": [person(number) for number in numbers]})


def test_a_page_is_asked_for_again_with_growing_delays() -> None:
    waits: list[float] = []
    limited = httpx.Response(429, headers={"Retry-After": "7"})
    trouble: list[httpx.Response | Exception] = [httpx.Response(503), limited, httpx.ReadTimeout("slow")]
    found = fetch(client(*trouble, page(1)), "/people/?page=1", QUICK, waits.append)
    assert ([one["name"] for one in found["results"]], waits) == (["Person 1"], [1, 7, 4])


@pytest.mark.parametrize(("answers", "waited"), [([httpx.Response(404)], 0), ([httpx.Response(503)] * 4, 3)])
def test_what_does_not_pass_ends_the_flow(answers: list[httpx.Response], waited: int) -> None:
    waits: list[float] = []
    with pytest.raises(httpx.HTTPStatusError):
        fetch(client(*answers), "/people/?page=1", QUICK, waits.append)
    assert len(waits) == waited


def test_all_pages_are_read() -> None:
    pages = client(page(1, 2, more="http://swapi/people/?page=2"), page(3))
    assert [one["name"] for one in people(pages, QUICK)] == ["Person 1", "Person 2", "Person 3"]


@pytest.mark.parametrize(("given", "kept"), [("77", "77"), ("1,358", "1358"), ("unknown", None)])
def test_measures_are_read_as_the_api_writes_them(given: str, kept: str | None) -> None:
    mass = Person("http://swapi/people/4/", "Person", mass=given).row[3]
    assert (None if mass is None else str(mass)) == kept


class Table:
    """Refuses what a CHECK would refuse, and then keeps nothing of the batch."""

    def __init__(self) -> None:
        self.rows: dict[object, Row] = {}

    def upsert(self, rows: Sequence[Row]) -> None:
        if any(row[2] == -4 for row in rows):
            raise psycopg.errors.CheckViolation("height")
        self.rows |= {row[0]: row for row in rows}


def loaded(table: Table, *values: bytes) -> Harness:
    async def story() -> Harness:
        async with harness(make_app(table.upsert), partitions=1) as h:
            for value in values:
                await h.send(TOPIC, value, settle=False)
            await h.settle()
            return h

    return asyncio.run(story())


def test_only_the_bad_ones_of_a_batch_are_dead_lettered() -> None:
    table = Table()
    numbers = [*range(1, 12), 57, 101, 13, *range(14, 20)]
    h = loaded(table, *(json.dumps(person(number)).encode() for number in numbers), *POISON.values())
    assert set(table.rows) == set(numbers) - {13, 57, 101}
    assert {(letter.value, letter.error_code) for letter in h.dead} == {
        (json.dumps(person(13)).encode(), "DB_CONSTRAINT_VIOLATION"),
        (json.dumps(person(57)).encode(), "VALUE_INVALID"),
        (json.dumps(person(101)).encode(), "SCHEMA_INVALID"),
        (POISON["cut short"], "DECODE_FAILED"),
        (POISON["a list"], "SCHEMA_INVALID"),
        (POISON["no url"], "MISSING_REQUIRED_FIELD"),
    }


def test_the_runner_ends_each_record_as_the_batches_do(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table()
    monkeypatch.setattr(consumer, "upsert", table.upsert)

    async def story() -> Harness:
        async with harness(consumer.runner, partitions=1) as h:
            for value in [*(json.dumps(person(number)).encode() for number in (1, 13, 57, 101, 2)), *POISON.values()]:
                await h.send(TOPIC, value, settle=False)
            await h.settle()
            return h

    h = asyncio.run(story())
    assert set(table.rows) == {1, 2}
    assert [(letter.error_type, letter.retry_count) for letter in h.dead][:3] == [
        ("CheckViolation", 0),
        ("ValueError", 0),
        ("ValidationError", 0),
    ]
    assert len(h.dead) == 3 + len(POISON)


def test_the_pool_of_the_runner_is_closed_however_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEPFAST_SHUTDOWN_TIMEOUT_S", "soon")
    with pytest.raises(ConfigError, match="soon"):
        consumer.main()
    with pytest.raises(psycopg.OperationalError, match="cannot be reused"):  # it was open, and is closed
        consumer.database.open()


def test_the_same_people_again_change_nothing() -> None:
    table = Table()
    values = [json.dumps(person(number)).encode() for number in (1, 2, 3)]
    h = loaded(table, *values, *values)
    assert (len(table.rows), len(h.processed), h.dead) == (3, 6, [])
