"""Whatever the bytes are: a DecodeError with a code, and nothing of the payload in it."""

from __future__ import annotations

import dataclasses
import enum
import json
import traceback
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keepfast.classify.rules.codes import VALIDATION
from keepfast.core.errors import DecodeError, error_class, error_type
from keepfast.deadletters.fingerprint import normalised
from keepfast.decode import Decoder, decoder_for

SECRET = "4111111111111111"


class Status(enum.Enum):
    OPEN = "open"


class Line(pydantic.BaseModel):
    sku: str = pydantic.Field(alias="stock-unit")


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    id: str
    amount: int
    status: Status = Status.OPEN
    mode: Literal["a", "b"] = "a"
    limits: dict[str, int] = {}
    lines: list[Line] = []
    note: Any = None

    @pydantic.field_validator("note")
    @classmethod
    def judge(cls, value: Any) -> Any:
        if value == "value":
            raise ValueError(f"no good: {SECRET}")
        if value == "custom":
            raise pydantic_core_error(f"type_{SECRET}")
        if value == "other":
            raise RuntimeError(f"no good: {SECRET}")
        return value


def pydantic_core_error(kind: str) -> Exception:
    from pydantic_core import PydanticCustomError

    return PydanticCustomError(kind, "no good: {what}", {"what": SECRET})


class Struct(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    amount: Annotated[int, msgspec.Meta(ge=1)]
    status: Status = Status.OPEN
    mode: Literal["a", "b"] = "a"
    limits: dict[str, int] = {}
    note: Any = None

    def __post_init__(self) -> None:
        if self.note == "value":
            raise ValueError(f"Expected `int`, got `{SECRET}` - at `$.{SECRET}`")
        if self.note == "other":
            raise RuntimeError(f"no good: {SECRET}")


@dataclasses.dataclass
class Data:
    id: str
    amount: int
    inner: Data | None = None


class Typed(TypedDict):
    id: str


class Tagged(msgspec.Struct, tag="tagged", tag_field="kind"):
    id: str


class Other(msgspec.Struct, tag="other", tag_field="kind"):
    id: str


ANNOTATIONS: list[Any] = [str, dict, int, float, bool, Model, Struct, Data, Typed, Tagged | Other, dict[str, Line]]
DECODERS: list[Decoder] = [decoder_for(annotation) for annotation in ANNOTATIONS]
DEEP = 100_000


def failure(annotation: Any, value: bytes) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decoder_for(annotation)(value)
    return caught.value


def of(**fields: Any) -> bytes:
    return json.dumps({"id": "x", "amount": 5, **fields}).encode()


@pytest.mark.parametrize(
    ("annotation", "value", "code", "says"),
    [
        (str, b"ab\xff", "DECODE_FAILED", "not UTF-8 (byte 2)"),
        (str, b"\xed\xa0\x80", "DECODE_FAILED", "not UTF-8"),
        (dict, b'{"a":"\xff"}', "DECODE_FAILED", "not UTF-8"),
        (dict, b"", "DECODE_FAILED", "empty, not JSON"),
        (dict, b'{"a":1', "DECODE_FAILED", "truncated JSON"),
        (dict, b'{"a":1} x', "DECODE_FAILED", "line 1 column 10: not JSON"),
        (dict, b'{\n"a":\n oops}', "DECODE_FAILED", "line 3 column 2: not JSON"),
        (Model, b'{\n"id":\n oops}', "DECODE_FAILED", "line 3 column 2: not JSON"),
        (dict, b'{"a":NaN}', "DECODE_FAILED", "line 1 column 6: not JSON"),
        (dict, b"\xef\xbb\xbf{}", "DECODE_FAILED", "line 1 column 1: not JSON"),
        (dict, b"[1]", "SCHEMA_INVALID", "must be object, not array"),
        (dict, b'{"a":1e999}', "SCHEMA_INVALID", "out of range"),
        (dict, b'{"a":' + b"9" * 10_000 + b"}", "SCHEMA_INVALID", "out of range"),
        (dict, b'{"a":' + b"[" * DEEP, "DECODE_FAILED", "nested too deeply"),
        (int, b"true", "SCHEMA_INVALID", "must be int, not bool"),
        (Data, b'{"id":"x"}', "MISSING_REQUIRED_FIELD", "field amount is required"),
        (Data, of(inner={"id": "y"}), "MISSING_REQUIRED_FIELD", "field inner.amount is required"),
        (Data, of(amount="5"), "SCHEMA_INVALID", "field amount must be int, not str"),
        (Data, b'{"id":"x","inner":' * DEEP, "DECODE_FAILED", "nested too deeply"),
        (Typed, b"{}", "MISSING_REQUIRED_FIELD", "field id is required"),
        (Tagged | Other, b'{"id":"x"}', "MISSING_REQUIRED_FIELD", "field kind is required"),
        (Tagged | Other, b'{"kind":"z","id":"x"}', "UNKNOWN_TYPE", "field kind is none of the allowed tags"),
        (Struct, of(status="gone"), "ENUM_INVALID", "field status is none of the allowed values"),
        (Struct, of(mode="z"), "ENUM_INVALID", "field mode is none of the allowed values"),
        (Struct, of(amount=0), "SCHEMA_INVALID", "field amount must be int within its limits"),
        (Struct, of(limits={"k": "v"}), "SCHEMA_INVALID", "field limits[...] must be int, not str"),
        (Struct, of(more=1), "SCHEMA_INVALID", "a field that is not declared"),
        (Struct, of(note="value"), "SCHEMA_INVALID", "rejected by its own validation (ValueError)"),
        (Struct, of(note="other"), "DECODE_FAILED", "cannot be decoded (RuntimeError)"),
        (Model, b'{"id":"x"}', "MISSING_REQUIRED_FIELD", "field amount is required"),
        (Model, of(lines=[{}]), "MISSING_REQUIRED_FIELD", "field lines[0].stock-unit is required"),
        (Model, of(status="gone"), "ENUM_INVALID", "field status must be 'open'"),
        (Model, of(mode="z"), "ENUM_INVALID", "field mode must be 'a' or 'b'"),
        (Model, of(amount="much"), "SCHEMA_INVALID", "field amount must be a valid integer, unable to parse string"),
        (Model, b'{"amount":"much"}', "SCHEMA_INVALID", "field id is required; field amount must be a valid integer"),
        (Model, of(limits={"k": "v"}), "SCHEMA_INVALID", "field limits[...] must be a valid integer"),
        (Model, of(more=1), "SCHEMA_INVALID", "field [...] is not valid: extra inputs are not permitted"),
        (Model, of(note="value"), "SCHEMA_INVALID", "field note is rejected by its own validation"),
        (Model, of(note="custom"), "SCHEMA_INVALID", "field note is rejected by its own validation"),
        (Model, of(note="other"), "DECODE_FAILED", "cannot be decoded (RuntimeError)"),
        (Model, b'{"id":"x', "DECODE_FAILED", ": line 1 column 8: not JSON"),
        (Model, b'{"id":"\xff","amount":1}', "DECODE_FAILED", "not JSON"),
        (Model, b'{"note":' + b"[" * DEEP, "DECODE_FAILED", "not JSON"),
        (Model, of(lines=[{}] * 9), "MISSING_REQUIRED_FIELD", "and 4 more"),
    ],
)
def test_a_value_that_does_not_match_is_reported_by_field_and_kind(
    annotation: Any, value: bytes, code: str, says: str
) -> None:
    error = failure(annotation, value)
    assert error.code == code
    assert says in str(error)
    assert str(error).startswith("the value does not match ")


LEAKS: list[tuple[Any, bytes]] = [
    (str, SECRET.encode() + b"\xff"),
    (dict, f'{{"{SECRET}": "{SECRET}'.encode()),
    (int, f'"{SECRET}"'.encode()),
    (dict[str, Line], json.dumps({SECRET: {"stock-unit": [SECRET]}}).encode()),
    (Tagged | Other, json.dumps({"kind": SECRET}).encode()),
    *(
        (annotation, of(**fields))
        for annotation in (Model, Struct)
        for fields in (
            {"id": [SECRET]},
            {"amount": SECRET + "x"},
            {"status": SECRET},
            {"mode": SECRET},
            {"limits": {SECRET: SECRET + "x"}},
            {SECRET: 1},
            {f"a - at `$.{SECRET}": 1},
            {f"a` - at `$.id.{SECRET}": 1},
            {f"a` - at `$[0]{SECRET}": 1},
            {"note": "value"},
            {"note": "custom", "status": SECRET},
            {"note": "other"},
        )
    ),
]


@pytest.mark.parametrize(("annotation", "value"), LEAKS, ids=range(len(LEAKS)))
def test_no_payload_is_in_the_message_or_in_the_printed_traceback(annotation: Any, value: bytes) -> None:
    error = failure(annotation, value)
    assert SECRET not in str(error)
    assert SECRET not in "".join(traceback.format_exception(error))
    assert error.__context__ is None
    assert error.__cause__ is None


@pytest.mark.parametrize(
    ("annotation", "note", "function"),
    [
        (Model, "value", "Model.judge"),
        (Model, "custom", ""),  # of which pydantic keeps no traceback
        (Model, "other", "Model.judge"),
        (Struct, "value", "Struct.__post_init__"),
        (Struct, "other", "Struct.__post_init__"),
    ],
)
def test_what_a_validator_says_is_in_the_detail_only_and_where_it_raised_in_the_trail(
    annotation: Any, note: str, function: str
) -> None:
    error = failure(annotation, of(note=note))
    assert SECRET in error.detail
    assert error.detail.startswith(f"{error}: ")
    assert SECRET not in normalised(error.detail)
    assert [place.function for place in error.trail[-1:]] == [function] * bool(function)


def test_of_several_problems_each_keeps_what_its_validator_said() -> None:
    error = failure(Model, of(note="value", amount="much"))
    assert "field amount must be a valid integer, unable to parse string as an integer; field note is" in error.detail
    assert error.detail.endswith(f'rejected by its own validation: "no good: {SECRET}"')
    assert failure(Model, of(amount="much")).detail == ""


def attempt(decode: Decoder, value: bytes) -> DecodeError | None:
    """The error, if there is one; any other exception ends the test."""
    try:
        decode(value)
    except DecodeError as error:
        return error
    return None


def nothing_but_decode_errors(value: bytes) -> None:
    for decode in DECODERS:
        error = attempt(decode, value)
        if error is not None:
            assert error.code in VALIDATION
            assert error.__context__ is None


@given(st.binary(max_size=200))
@example(b"[" * DEEP)
@example(b'{"a":' * DEEP)
@example(b"9" * DEEP)
@example(b"-")
@example(b'"\\ud800"')
@example(b"1e999999999999999999999")
@example(b"\x00" * 1000)
def test_random_bytes_bring_out_nothing_but_decode_errors(value: bytes) -> None:
    nothing_but_decode_errors(value)


FIELD_NAMES = (
    st.sampled_from(["id", "amount", "status", "mode", "limits", "lines", "note", "kind", "inner"]) | st.text()
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(FIELD_NAMES, children, max_size=6),
    max_leaves=12,
)


@given(JSON, st.integers(0, 400))
def test_random_json_whole_or_cut_brings_out_nothing_but_decode_errors(document: Any, length: int) -> None:
    value = json.dumps(document).encode()
    nothing_but_decode_errors(value)
    nothing_but_decode_errors(value[:length])


MARKER = st.text(alphabet="QXZJ", min_size=12, max_size=12)


@given(MARKER, st.sampled_from(["id", "amount", "status", "mode", "limits", "lines", "note", "kind"]), JSON)
def test_random_payloads_do_not_show_in_the_message(marker: str, field: str, filler: Any) -> None:
    shapes: list[Any] = [marker, [marker], {marker: marker}, {field: {marker: [marker]}}]
    for shape in shapes:
        value = json.dumps({"other": filler, field: shape, marker: shape}).encode()
        for decode in DECODERS:
            assert marker not in str(attempt(decode, value))


@pytest.mark.parametrize(
    ("annotation", "value", "kind"),
    [
        (Model, b'{"id":"x"}', "ValidationError"),
        (Model, b"{", "ValidationError"),
        (Struct, b'{"id":"x"}', "ValidationError"),
        (Struct, b"{", "DecodeError"),  # msgspec's
        (str, b"\xff", "UnicodeDecodeError"),
    ],
)
def test_the_type_that_is_reported_is_the_librarys(annotation: Any, value: bytes, kind: str) -> None:
    error = failure(annotation, value)
    assert error_type(error) == kind
    assert error_class(error).rpartition(".")[2] == kind
    assert error_class(error).partition(".")[0] in {"pydantic_core", "msgspec", "UnicodeDecodeError"}


def test_missing_fields_are_different_causes_and_are_named_where_messages_are_masked() -> None:
    first, second = failure(Model, b'{"id":"x"}'), failure(Model, b'{"amount":1}')
    assert normalised(str(first)) == "the value does not match Model: field amount is required"
    assert normalised(str(second)) == "the value does not match Model: field id is required"
