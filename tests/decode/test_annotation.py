"""Which decoder an annotation chooses, and what it makes of good values and of null."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict

import msgspec
import pydantic
import pytest
from pydantic.dataclasses import dataclass as pydantic_dataclass

from keepfast.core.errors import ConfigError, DecodeError, Discard, RetryLater
from keepfast.decode import decoder_for


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Order:
    id: str
    amount: int
    colour: Colour = Colour.RED


class OrderStruct(msgspec.Struct):
    id: str
    amount: int


class OrderDict(TypedDict):
    id: str
    amount: int


class OrderModel(pydantic.BaseModel):
    id: str
    amount: int


@pydantic_dataclass
class OrderPydanticDataclass:
    id: str
    amount: int


@dataclasses.dataclass
class Basket:
    orders: list[OrderModel]


class Opened(msgspec.Struct, tag="opened"):
    id: str


class Closed(msgspec.Struct, tag="closed"):
    id: str


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


OrderId = NewType("OrderId", str)

GOOD = b'{"id":"a1","amount":5}'


@pytest.mark.parametrize(
    ("annotation", "value", "decoded"),
    [
        (bytes, b"\xff\x00", b"\xff\x00"),
        (str, "grün".encode(), "grün"),
        (OrderId, b"a1", "a1"),
        (Annotated[str, "a remark"], b"a1", "a1"),
        (dict, GOOD, {"id": "a1", "amount": 5}),
        (dict[str, Any], GOOD, {"id": "a1", "amount": 5}),
        (Mapping[str, Any], GOOD, {"id": "a1", "amount": 5}),
        (dict[str, int], b'{"a":1}', {"a": 1}),
        (int, b"12", 12),
        (float, b"1.5", 1.5),
        (bool, b"true", True),
        (Order, GOOD, Order(id="a1", amount=5)),
        (OrderStruct, GOOD, OrderStruct(id="a1", amount=5)),
        (OrderDict, GOOD, {"id": "a1", "amount": 5}),
        (OrderModel, GOOD, OrderModel(id="a1", amount=5)),
        (OrderPydanticDataclass, GOOD, OrderPydanticDataclass(id="a1", amount=5)),
        (Basket, b'{"orders":[' + GOOD + b"]}", Basket([OrderModel(id="a1", amount=5)])),
        (dict[str, OrderModel], b'{"x":' + GOOD + b"}", {"x": OrderModel(id="a1", amount=5)}),
        (Opened | Closed, b'{"type":"closed","id":"c"}', Closed("c")),
        (Annotated[Cat | Dog, pydantic.Field(discriminator="kind")], b'{"kind":"dog"}', Dog(kind="dog")),
        (Annotated[Cat | Dog | None, pydantic.Field(discriminator="kind")], b'{"kind":"dog"}', Dog(kind="dog")),
        (Annotated[int, msgspec.Meta(ge=3)], b"3", 3),
    ],
)
def test_an_annotation_chooses_its_decoder(annotation: Any, value: bytes, decoded: Any) -> None:
    assert decoder_for(annotation)(value) == decoded


OPTIONALS: list[Any] = [
    bytes | None,
    str | None,
    dict[str, Any] | None,
    Order | None,
    OrderStruct | None,
    OrderModel | None,
    Optional[OrderModel],  # noqa: UP045  the older spelling must work too
    Opened | Closed | None,
    Annotated[Cat | Dog | None, pydantic.Field(discriminator="kind")],
    Annotated[OrderModel | None, "a remark"],
]


@pytest.mark.parametrize("annotation", OPTIONALS, ids=str)
@pytest.mark.parametrize("tombstones", ["dead-letter", "discard"])
def test_or_none_receives_tombstones(annotation: Any, tombstones: Any) -> None:
    assert decoder_for(annotation, tombstones=tombstones)(None) is None


@pytest.mark.parametrize("annotation", [bytes, str, dict, int, Order, OrderStruct, OrderDict, OrderModel], ids=str)
def test_an_unexpected_tombstone_is_a_decode_error_or_is_discarded(annotation: Any) -> None:
    with pytest.raises(DecodeError) as dead_lettered:
        decoder_for(annotation)(None)
    assert dead_lettered.value.code == "TOMBSTONE"
    assert "| None" in str(dead_lettered.value)
    with pytest.raises(Discard):
        decoder_for(annotation, tombstones="discard")(None)


def test_the_json_text_null_is_not_a_tombstone() -> None:
    with pytest.raises(DecodeError) as refused:
        decoder_for(OrderModel | None)(b"null")
    assert refused.value.code == "SCHEMA_INVALID"


def test_an_empty_value_is_not_a_tombstone() -> None:
    assert decoder_for(bytes)(b"") == b""
    assert decoder_for(str)(b"") == ""
    with pytest.raises(DecodeError):
        decoder_for(dict)(b"")


def test_duplicate_keys_are_taken_and_the_last_wins() -> None:
    twice = b'{"id":"a","amount":1,"amount":2}'
    assert decoder_for(Order)(twice).amount == 2
    assert decoder_for(OrderModel)(twice).amount in (1, 2)  # the first in pydantic 2.7, the last later
    assert decoder_for(dict)(twice)["amount"] == 2


def test_a_model_that_overrides_its_own_decoding_is_asked() -> None:
    class Wrapped(pydantic.BaseModel):
        id: str

        @classmethod
        def model_validate_json(cls, json_data: str | bytes | bytearray, **_options: Any) -> Wrapped:
            return cls(id=f"from {len(json_data)} bytes")

    assert decoder_for(Wrapped)(b"whatever").id == "from 8 bytes"


def test_a_signal_of_a_validator_reaches_the_engine_as_it_is() -> None:
    class Early(pydantic.BaseModel):
        id: str

        @pydantic.field_validator("id")
        @classmethod
        def not_yet(cls, value: str) -> str:
            raise RetryLater("the directory is not loaded", after_s=3)

    with pytest.raises(RetryLater):
        decoder_for(Early)(b'{"id":"a"}')


class NotDecodable:
    """No data class of any kind."""


class HoldsForeign(msgspec.Struct):
    thing: NotDecodable


class HoldsModel(msgspec.Struct):
    thing: OrderModel


@dataclasses.dataclass
class HoldsInitVar:
    id: str
    secret: dataclasses.InitVar[str]


class Unresolved(pydantic.BaseModel):
    later: NeverDefined  # type: ignore[name-defined]  # noqa: F821


@dataclasses.dataclass
class UnresolvedDataclass:
    later: NeverDefined  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (inspect.Parameter.empty, "no annotation; write `bytes`"),
        (Any, "accepted are"),
        (object, "accepted are"),
        (None, "accepted are"),
        (type(None), "accepted are"),
        (NotDecodable, "accepted are"),
        (Colour, "accepted are"),
        (bytearray, "accepted are"),
        (set[int], "accepted are"),
        (tuple[int, ...], "accepted are"),
        (str | bytes, "accepted are"),
        (str | Order, "accepted are"),
        (dict[str, Any] | Order, "accepted are"),
        (int | bool | None, "accepted are"),
        (msgspec.Struct, "accepted are"),
        (pydantic.BaseModel, "accepted are"),
        (Literal["a"], "accepted are"),
        (list, "batch"),
        (list[Order], "batch"),
        (list[OrderModel] | None, "batch"),
        (Sequence[Order], "batch"),
        (Annotated[list[Order], "a remark"], "batch"),
        ("Order", "not resolved"),
        (Order | OrderDict, "more than one"),
        (OrderStruct | Opened, "not supported"),
        (HoldsForeign, "NotDecodable"),
        (HoldsModel, "OrderModel"),
        (HoldsInitVar, "InitVar"),
        (Unresolved, "NeverDefined"),
        (UnresolvedDataclass, "NeverDefined"),
    ],
    ids=str,
)
def test_what_cannot_be_decoded_is_refused_at_start_with_what_to_do(annotation: Any, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        decoder_for(annotation, where="handler charge(), parameter 'payment'")
    assert says in str(refused.value)
    assert str(refused.value).startswith("handler charge(), parameter 'payment': ")


def test_an_unknown_choice_for_tombstones_is_refused() -> None:
    with pytest.raises(ConfigError, match="'dead-letter' or 'discard'"):
        decoder_for(bytes, tombstones="keep")  # type: ignore[arg-type]


def test_pydantic_is_not_imported_for_those_who_do_not_use_it() -> None:
    program = (
        "import sys, dataclasses\n"
        "from keepfast.decode import decoder_for\n"
        "D = dataclasses.make_dataclass('D', [('a', int)])\n"
        "assert decoder_for(D)(b'{\"a\":1}').a == 1\n"
        "try: decoder_for(D)(b'nothing')\n"
        "except Exception as error: assert error.code == 'DECODE_FAILED'\n"
        "sys.exit('pydantic' in sys.modules or 'pydantic_core' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
