"""Which letters of a spool are meant, in every place for a spool; in PostgreSQL also by SQL of one's own."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest

from keepfast.deadletters.spool.letters import SpooledLetter, encode, spooled
from keepfast.deadletters.spool.places import store_at
from keepfast.deadletters.spool.postgres import COLUMNS, MAKE, PostgresStore
from keepfast.deadletters.spool.query import SpoolQuery, find
from tests.deadletters.spool.letters import outgoing

LETTERS: list[dict[str, Any]] = [
    {"error_type": "TimeoutError", "error_class": "TimeoutError", "group": "a", "failed_at_ms": 10_000},
    {
        "error_type": "ValidationError",
        "error_class": "pydantic_core.ValidationError",
        "group": "a",
        "original": "other",
    },
    {"error_type": "ValidationError", "error_class": "msgspec.ValidationError", "group": "b", "partition": 3},
    {"error_type": "", "error_code": "CRASHED", "group": "ü\ud800\0", "error_message": "a\0b", "failed_at_ms": 50_000},
]
QUERIES = [
    (SpoolQuery(), [0, 1, 2, 3]),
    (SpoolQuery(error_types=frozenset({"ValidationError"})), [1, 2]),
    (SpoolQuery(error_types=frozenset({"msgspec.ValidationError", "TimeoutError"})), [0, 2]),
    (SpoolQuery(codes=frozenset({"CRASHED"})), [3]),
    (SpoolQuery(groups=frozenset({"a"})), [0, 1]),
    (SpoolQuery(groups=frozenset({"a"}), error_types=frozenset({"TimeoutError"})), [0]),
    (SpoolQuery(topics=frozenset({"other"})), [1]),
    (SpoolQuery(topics=frozenset({"none"})), []),
    (SpoolQuery(offsets=((0, 0, 2),)), [0, 1]),
    (SpoolQuery(offsets=((0, 1, None), (3, 2, 3))), [1, 2, 3]),
    (SpoolQuery(since_ms=10_001), [1, 2, 3]),  # those without a time of failure count by when they were spooled
    (SpoolQuery(since_ms=10_000, until_ms=20_002), [0, 1]),
]


def letters() -> list[SpooledLetter]:
    return [spooled(outgoing(number, **fields), at_ms=20_000 + number) for number, fields in enumerate(LETTERS)]


@pytest.mark.parametrize("place", ["file", "memory", "postgresql"])
def test_letters_are_found_by_what_they_say(place: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = {"file": f"file://{tmp_path}/spool", "memory": "memory://"}.get(place) or request.getfixturevalue("postgres")
    store = store_at(url, app=f"app-{uuid.uuid4().hex[:6]}", max_bytes=100_000)
    store.open()
    store.add(letters())
    for query, wanted in QUERIES:
        assert [head.at_ms - 20_000 for head in find(store, query, 10)] == wanted, query
        assert [head.at_ms - 20_000 for head in find(store, query, 1)] == wanted[:1], query
    store.close()


def test_the_table_is_queried_by_columns(postgres: str) -> None:
    app = f"app-{uuid.uuid4().hex[:6]}"
    store = PostgresStore(postgres, app=app, max_bytes=100_000)
    store.open()
    store.add(letters())
    with psycopg.connect(postgres) as connection:
        found = connection.execute(
            "SELECT error_type, consumer_group, original_topic, original_partition, original_offset,"
            " extract(epoch FROM spooled_at)::float, extract(epoch FROM failed_at)::float FROM keepfast_spool"
            " WHERE app = %s AND error_type = 'TimeoutError'",
            (app,),
        ).fetchall()
        assert found == [("TimeoutError", "a", "orders", 0, 0, 20.0, 10.0)]
    store.close()


def test_a_table_of_an_older_version_gets_the_columns_and_its_letters_are_found(postgres: str) -> None:
    """Before them it had the bytes only."""
    schema, app = f"s{uuid.uuid4().hex[:8]}", "shop"
    older = f"{postgres}{'&' if '?' in postgres else '?'}options=-csearch_path%3D{schema}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"SET search_path TO {schema}")
        connection.execute(MAKE)
        for one in letters():
            connection.execute(
                "INSERT INTO keepfast_spool (app, identity, topic, at_ms, letter) VALUES (%s, %s, %s, %s, %s)",
                (app, one.identity, one.topic, one.at_ms, encode(one)),
            )
        connection.execute(
            "INSERT INTO keepfast_spool (app, identity, topic, at_ms, letter) VALUES (%s, 'x', 't', 1, 'not a letter')",
            (app,),
        )
        store = PostgresStore(older, app=app, max_bytes=100_000)
        store.open()
        assert [head.at_ms for head in store.find(SpoolQuery(groups=frozenset({"a"})), 10)] == [20_000, 20_001]
        assert len(store.heads(10, lambda _: True)) == 5
        store.close()
        names = {
            row[0]
            for row in connection.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = %s", (schema,)
            )
        }
        assert set(COLUMNS) <= names
