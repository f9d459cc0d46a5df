"""An example for every kind of annotation, which that annotation takes."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from keepfast.decode.annotation import decoder_for
from keepfast.decode.sample import sample


class Kind(enum.Enum):
    CARD = "card"


@dataclass
class Address:
    city: str


@dataclass
class Payment:
    id: str
    paid: bool
    at: dt.datetime
    to: Address
    kind: Kind
    tags: list[str] = field(default_factory=list)


class Order(msgspec.Struct):
    id: str
    price: Decimal
    way: Literal["air", "sea"]


class Shipment(TypedDict):
    id: str
    parts: dict[str, int]


class Model(pydantic.BaseModel):
    id: pydantic.UUID4
    count: int = pydantic.Field(ge=5)
    note: str | None = None
    name: str = pydantic.Field(alias="theName", examples=["Ada"])


class Picky(pydantic.BaseModel):
    code: str = pydantic.Field(pattern="^[A-Z]{3}$")


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (bytes, "hello"),
        (str, "hello"),
        (int, "1"),
        (dict[str, Any], '{"id": "a1"}'),
        (dict, '{"id": "a1"}'),
        (
            Payment,
            '{"id": "id-1", "paid": true, "at": "2026-01-31T12:00:00Z", "to": {"city": "city-1"}, "kind": "card"}',
        ),
        (Payment | None, None),
        (Order, '{"id": "id-1", "price": "1.50", "way": "air"}'),
        (Shipment, '{"id": "id-1", "parts": {}}'),
    ],
    ids=str,
)
def test_of_the_usual_types(annotation: Any, text: str | None) -> None:
    made = sample(annotation)
    assert made is not None
    if text is not None:
        assert made == text
    decoder_for(annotation)(made.encode())


def test_of_pydantic_models() -> None:
    made = sample(Model)
    assert made is not None
    assert '"count": 5, "theName": "Ada"' in made


@pytest.mark.parametrize("annotation", [Picky, object, 7, "nonsense"])
def test_what_cannot_be_guessed_is_left_out(annotation: Any) -> None:
    assert sample(annotation) is None
