"""Rows that repeated and late events leave as they are: for handlers that are idempotent by themselves."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final, LiteralString

from keepfast.core.errors import ConfigError

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")


def upsert(
    table: str,
    row: Mapping[str, Any],
    *,
    key: str | Collection[str],
    update: Collection[str],
    newer: str | None = None,
    numbered: bool = False,
) -> tuple[LiteralString, tuple[Any, ...]]:
    """A statement and its arguments, for `connection.execute(*upsert(…))` of psycopg: insert the row, or, if there is
    one with this `key`, change the columns in `update` alone, such as metadata. `numbered` writes parameters as asyncpg
    takes them: `$1`, `$2`, …

    `newer` is a column with the time or version of the event: a row that is newer than this one, or as new, stays as it
    is, so that neither a repeated nor a late event overwrites it; the column is updated, too. The number of rows that
    were changed (`rowcount`) says what happened. Values are arguments of the statement; names are part of it. Raises
    ConfigError for what is no name of a column.
    """
    keys = (key,) if isinstance(key, str) else tuple(key)
    changed = tuple(dict.fromkeys((*update, *((newer,) if newer is not None else ()))))
    _check(table, row, keys, changed)
    columns = ", ".join(_quoted(name) for name in row)
    values = ", ".join(f"${number}" if numbered else "%s" for number in range(1, len(row) + 1))
    sets = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in changed)
    # `stored` is the row that is there: its name does not depend on the table's schema.
    late = f" WHERE stored.{_quoted(newer)} < excluded.{_quoted(newer)}" if newer is not None else ""
    action = f"DO UPDATE SET {sets}{late}" if changed else "DO NOTHING"
    conflict = ", ".join(_quoted(name) for name in keys)
    text = f"INSERT INTO {table} AS stored ({columns}) VALUES ({values}) ON CONFLICT ({conflict}) {action}"  # noqa: S608 - names are checked
    literal: Any = text  # pyright would not take it for one, because of the names, and psycopg asks for one
    return literal, tuple(row.values())


def _check(table: str, row: Mapping[str, Any], keys: Collection[str], changed: Collection[str]) -> None:
    problems = [f"{name!r} is no name of a table or column" for name in (table, *row) if not _NAME.fullmatch(name)]
    if not keys:
        problems.append("key names no column")
    problems += [f"{name!r} is not in the row" for name in (*keys, *changed) if name not in row]
    problems += [f"{name!r} is part of the key, and cannot be updated" for name in changed if name in keys]
    if problems:
        raise ConfigError(*(f"upsert: {problem}." for problem in problems))


def _quoted(name: str) -> str:
    return f'"{name}"'
