"""`upsert` on a real table: what is repeated or late changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from keepfast import ConfigError, upsert


@pytest.fixture
def table(connection: Any) -> Any:
    connection.execute("CREATE TABLE people (id text PRIMARY KEY, name text, seen int, version int)")
    return connection


def put(table: Any, name: str, seen: int, version: int, **more: Any) -> int:
    row = {"id": "luke", "name": name, "seen": seen, "version": version}
    return int(table.execute(*upsert("people", row, key="id", update=["seen"], **more)).rowcount)


def rows(table: Any) -> list[Any]:
    return list(table.execute("SELECT name, seen, version FROM people"))


def test_the_first_is_inserted_and_later_ones_change_the_named_columns_alone(table: Any) -> None:
    assert put(table, "Luke", 1, 1) == 1
    assert put(table, "Other", 2, 2) == 1
    assert rows(table) == [("Luke", 2, 1)]


def test_neither_an_older_nor_a_repeated_event_overwrites_a_newer_one(table: Any) -> None:
    assert put(table, "Luke", 5, 5, newer="version") == 1
    assert put(table, "Luke", 3, 3, newer="version") == 0
    assert put(table, "Luke", 4, 5, newer="version") == 0
    assert rows(table) == [("Luke", 5, 5)]
    assert put(table, "Luke", 6, 6, newer="version") == 1
    assert rows(table) == [("Luke", 6, 6)]


def test_numbered_parameters_are_as_asyncpg_takes_them() -> None:
    statement, values = upsert("people", {"id": "luke", "seen": 1}, key="id", update=["seen"], numbered=True)
    assert "VALUES ($1, $2)" in statement
    assert values == ("luke", 1)


def test_without_columns_to_update_the_first_stays(table: Any) -> None:
    row = {"id": "luke", "name": "Luke", "seen": 1, "version": 1}
    assert table.execute(*upsert("public.people", row, key=["id"], update=[])).rowcount == 1
    assert table.execute(*upsert("public.people", row, key=["id"], update=[])).rowcount == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"table": "people; DROP TABLE x"}, "is no name"),
        ({"row": {"id": 1, 'x" = 1 --': 2}}, "is no name"),
        ({"key": "other"}, "'other' is not in the row"),
        ({"update": ["id"]}, "part of the key"),
        ({"newer": "at"}, "'at' is not in the row"),
        ({"key": []}, "key names no column"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {"table": "people", "row": {"id": 1, "name": 2}, "key": "id", "update": ["name"]}
    given |= arguments
    with pytest.raises(ConfigError, match=text):
        upsert(given.pop("table"), given.pop("row"), **given)
