"""A person as the API tells of one, and as the database keeps it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, LiteralString, Self

import msgspec

from examples.database import Database
from keepfast import upsert

Row = tuple[object, ...]
Upsert = Callable[[Sequence[Row]], None]

_ID = re.compile(r"/people/(\d+)/?\Z")


class Person(msgspec.Struct, frozen=True):
    """The API says numbers as text, with commas, and `unknown` for what it does not know."""

    url: str
    name: str
    height: str = "unknown"
    mass: str = "unknown"
    birth_year: str = "unknown"
    edited: str = ""
    """When it was last changed; of two versions the later one holds."""

    def __post_init__(self) -> None:
        if not self.name or _ID.search(self.url) is None:
            raise ValueError("a person needs a name, and a url that ends with its number")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Raises msgspec.ValidationError."""
        return msgspec.convert(data, cls)

    @property
    def id(self) -> int:
        found = _ID.search(self.url)
        assert found is not None, "checked when it was made"
        return int(found[1])

    @property
    def row(self) -> tuple[int, str, Decimal | None, Decimal | None, str | None, str]:
        """Raises ValueError for a measure that is no number."""
        birth_year = None if self.birth_year == "unknown" else self.birth_year
        return self.id, self.name, _measure(self.height), _measure(self.mass), birth_year, self.edited


_COLUMNS: tuple[str, ...] = ("id", "name", "height_cm", "mass_kg", "birth_year", "edited", "updated_at")


def _statement(row: Row) -> tuple[LiteralString, tuple[Any, ...]]:
    """A version that is repeated, or a letter that is replayed late, changes nothing."""
    columns = dict(zip(_COLUMNS, (*row, datetime.now(UTC)), strict=True))
    return upsert("people", columns, key="id", update=_COLUMNS[1:], newer="edited")


def upsert_into(database: Database) -> Upsert:
    """All rows in one transaction."""

    def upsert_rows(rows: Sequence[Row]) -> None:
        statements = [_statement(row) for row in rows]
        texts: set[LiteralString] = {text for text, _ in statements}  # the same for all
        with database.transaction() as connection, connection.cursor() as cursor:
            for text in texts:
                cursor.executemany(text, [values for _, values in statements])

    return upsert_rows


def _measure(text: str) -> Decimal | None:
    if text in ("unknown", "n/a", "none"):
        return None
    try:
        return Decimal(text.replace(",", ""))
    except InvalidOperation as error:
        raise ValueError("a measure is no number") from error
