"""Which decoder a record gets: by topic, by type header, by content type, or the user's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, Field

from keepfast.core.errors import ConfigError, DecodeError, Discard, Halt, Reject, RetryLater, Signal
from keepfast.core.records import TopicPartition
from keepfast.decode.choice import Decoding, choose
from tests.support.messages import message


@dataclass
class Login:
    user: str


class Logout(BaseModel):
    user: str
    forced: bool = False


class Packed:
    """Nothing that keepfast can decode by itself."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packed) and other.data == self.data

    __hash__ = None  # type: ignore[assignment]


def decoded(
    annotation: Any,
    value: bytes | None,
    *,
    topic: str = "a.v1",
    headers: list[tuple[str, bytes | None]] | None = None,
    tombstones: Any = "dead-letter",
    **options: Any,
) -> Any:
    chosen = choose(annotation, Decoding(**options), tombstones=tombstones, where="handler work(), parameter 'value'")
    one = message(0, place=TopicPartition(topic, 0), value=value, headers=headers or [])
    return chosen.decode(one) if chosen.by_record else chosen.decode(value)


USER = b'{"user":"ada"}'
MODELS = {"a.v1": Login, "b.v1": Logout}
TYPES = {"login": Login, "logout": Logout}


# -- a function of the user's


def test_a_decoder_of_ones_own_gets_the_bytes_and_what_it_returns_is_the_value() -> None:
    assert decoded(Packed, b"\x01", decoder=Packed) == Packed(b"\x01")
    assert decoded(Packed | None, None, decoder=Packed) is None
    assert decoded(bytes, b"ab", decoder=bytes.upper) == b"AB", "also where the annotation is bytes"


def test_a_null_value_never_gets_to_it() -> None:
    with pytest.raises(DecodeError) as caught:
        decoded(Packed, None, decoder=Packed)
    assert caught.value.code == "TOMBSTONE"
    with pytest.raises(Discard):
        decoded(Packed, None, decoder=Packed, tombstones="discard")


def test_what_it_raises_makes_the_record_undecodable_with_type_and_message() -> None:
    def unpack(data: bytes) -> Packed:
        raise LookupError("schema 7 is unknown")

    with pytest.raises(DecodeError, match=r"the decoder unpack\(\) raised LookupError: schema 7 is unknown") as caught:
        decoded(Packed, b"x", decoder=unpack)
    assert caught.value.code == "DECODE_FAILED"
    assert isinstance(caught.value.__cause__, LookupError), "so the letter's stack shows where"


def test_errors_of_validation_libraries_that_quote_the_payload_are_put_into_our_words() -> None:
    for unpack in (Logout.model_validate_json, lambda data: msgspec.json.decode(data, type=Login)):
        with pytest.raises(DecodeError) as caught:
            decoded(Packed, b'{"user":4111}', decoder=unpack)
        assert caught.value.code == "SCHEMA_INVALID"
        assert "4111" not in str(caught.value)
        assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize(
    "signal", [RetryLater(after_s=1), Reject("no"), Discard("old"), Halt("stop"), DecodeError("mine", code="MINE")]
)
def test_signals_and_a_decode_error_of_its_own_go_through(signal: Signal | DecodeError) -> None:
    def unpack(data: bytes) -> Packed:
        raise signal

    with pytest.raises(type(signal)) as caught:
        decoded(Packed, b"x", decoder=unpack)
    assert caught.value is signal


def test_a_decoder_that_is_registered_for_a_type_is_used_wherever_the_type_is() -> None:
    registered = {Packed: Packed}
    assert decoded(Packed, b"x", registered=registered) == Packed(b"x")
    assert decoded(Packed | None, None, registered=registered) is None
    assert decoded(Login, USER, registered=registered) == Login("ada")
    models = {"a.v1": Packed, "b.v1": Login}
    assert decoded(Packed | Login, b"x", topic="a.v1", models=models, registered=registered) == Packed(b"x")
    assert decoded(Packed | Login, USER, topic="b.v1", models=models, registered=registered) == Login("ada")
    other: Any = {Packed: lambda data: 1 / 0}
    assert decoded(Packed, b"x", decoder=Packed, registered=other) == Packed(b"x"), "the consumer's own goes first"


# -- by content type


def typed(name: str, value: str) -> list[tuple[str, bytes | None]]:
    return [(name, value.encode())]


def test_a_decoder_by_content_type() -> None:
    own = {"application/x-packed": lambda data: Login(data.decode()), "application/json": None}
    for header in (
        typed("content-type", "application/x-packed"),
        typed("Content-Type", "Application/X-Packed; v=2"),
        typed("contentType", '"application/x-packed"'),
    ):
        assert decoded(Login, b"ada", headers=header, decoder=own) == Login("ada")
    assert decoded(Login, USER, headers=typed("content-type", "application/json"), decoder=own) == Login("ada")
    assert decoded(Login, USER, decoder=own) == Login("ada"), "without a content type as the annotation says"
    assert decoded(Login | None, None, decoder=own) is None
    with pytest.raises(DecodeError, match="only application/x-packed, application/json") as caught:
        decoded(Login, USER, headers=typed("content-type", "text/secret"), decoder=own)
    assert caught.value.code == "CONTENT_TYPE_UNKNOWN"
    assert "secret" not in str(caught.value)


def test_a_star_is_for_every_other_content_type_and_for_none() -> None:
    own = {"application/json": lambda data: Packed(b"json"), "*": Packed}
    assert decoded(Packed, b"x", headers=typed("content-type", "text/plain"), decoder=own) == Packed(b"x")
    assert decoded(Packed, b"x", decoder=own) == Packed(b"x")
    assert decoded(Packed, b"x", headers=typed("content-type", "application/json"), decoder=own) == Packed(b"json")
    rest = {"application/x-packed": Packed, "*": None}
    assert decoded(Login, USER, headers=typed("content-type", "text/plain"), decoder=rest) == Login("ada")


def test_content_types_go_with_types_by_topic() -> None:
    own = {"application/x-login": lambda data: Login(data.decode())}
    header = typed("content-type", "application/x-login")
    assert decoded(Login | Logout, b"ada", topic="b.v1", models=MODELS, decoder=own, headers=header) == Login("ada")
    assert decoded(Login | Logout, USER, topic="b.v1", models=MODELS, decoder=own) == Logout(user="ada")


# -- by topic, by type header


def test_each_topic_is_decoded_into_its_type() -> None:
    assert decoded(Login | Logout, USER, topic="a.v1", models=MODELS) == Login("ada")
    assert decoded(Login | Logout, USER, topic="b.v1", models=MODELS) == Logout(user="ada")
    raw = {"a.v1": bytes, "b.v1": dict[str, Any]}
    assert decoded(bytes | dict[str, Any], USER, topic="a.v1", models=raw) == USER
    assert decoded(bytes | dict[str, Any], USER, topic="b.v1", models=raw) == {"user": "ada"}


def test_a_tombstone_is_taken_if_the_annotation_takes_it() -> None:
    for topic in MODELS:
        assert decoded(Login | Logout | None, None, topic=topic, models=MODELS) is None
        with pytest.raises(DecodeError):
            decoded(Login | Logout, None, topic=topic, models=MODELS)
    assert decoded(Login | Logout | None, None, types=TYPES) is None
    with pytest.raises(Discard):
        decoded(Login | Logout, None, types=TYPES, tombstones="discard")


def test_the_type_header_names_the_type() -> None:
    for name in ("type", "ce_type"):
        options: dict[str, Any] = {"types": TYPES, "type_header": name}
        assert decoded(Login | Logout, USER, headers=[(name, b"login")], **options) == Login("ada")
        assert decoded(Login | Logout, USER, headers=[(name, b"logout")], **options) == Logout(user="ada")


def test_a_type_header_that_names_no_type_is_final_or_discarded_and_not_shown() -> None:
    header: list[tuple[str, bytes | None]] = [("type", b"secret")]
    with pytest.raises(DecodeError, match="names none of the types login, logout") as caught:
        decoded(Login | Logout, USER, headers=header, types=TYPES)
    assert caught.value.code == "UNKNOWN_TYPE"
    with pytest.raises(Discard, match="names none of the types login, logout") as dropped:
        decoded(Login | Logout, USER, headers=header, types=TYPES, unknown_types="discard")
    assert "secret" not in f"{caught.value}{dropped.value}"


@pytest.mark.parametrize("headers", [[], [("type", None)]])
def test_a_record_without_a_type_header_is_never_discarded(headers: Any) -> None:
    with pytest.raises(DecodeError) as caught:
        decoded(Login | Logout, USER, headers=headers, types=TYPES, unknown_types="discard")
    assert caught.value.code == "MISSING_REQUIRED_FIELD"


# -- tagged unions


class Paid(msgspec.Struct, tag=True, tag_field="type"):
    id: int


class Refunded(msgspec.Struct, tag=True, tag_field="type"):
    id: int
    of: Paid | None = None


class Created(BaseModel):
    type: Literal["created"]
    id: int


class Deleted(BaseModel):
    type: Literal["deleted"]
    id: int
    first: Annotated[Created | None, Field()] = None


class Item(BaseModel):
    one: Annotated[Created | Deleted, Field(discriminator="type")]


STRUCTS: Any = Paid | Refunded
MODELS_BY_TAG: Any = Annotated[Created | Deleted, Field(discriminator="type")]


@pytest.mark.parametrize(
    ("annotation", "tag", "expected"),
    [
        (STRUCTS, "Paid", Paid(1)),
        (STRUCTS, "Refunded", Refunded(1)),
        (MODELS_BY_TAG, "created", Created(type="created", id=1)),
        (MODELS_BY_TAG, "deleted", Deleted(type="deleted", id=1)),
    ],
)
def test_tagged_unions_are_decoded_by_their_tag(annotation: Any, tag: str, expected: Any) -> None:
    assert decoded(annotation, json.dumps({"type": tag, "id": 1}).encode()) == expected


@pytest.mark.parametrize("annotation", [STRUCTS, MODELS_BY_TAG, STRUCTS | None, MODELS_BY_TAG | None])
def test_a_tag_that_no_type_has_is_an_unknown_type(annotation: Any) -> None:
    value = b'{"type":"secret","id":1}'
    with pytest.raises(DecodeError) as caught:
        decoded(annotation, value)
    assert caught.value.code == "UNKNOWN_TYPE"
    with pytest.raises(Discard) as dropped:
        decoded(annotation, value, unknown_types="discard")
    assert "secret" not in f"{caught.value}{dropped.value}"


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (STRUCTS, {"id": 1}),
        (STRUCTS, {"type": "Paid"}),
        (STRUCTS, {"type": "Paid", "id": "x"}),
        (STRUCTS, {"type": "Refunded", "id": 1, "of": {"type": "secret", "id": 1}}),
        (MODELS_BY_TAG, {"id": 1}),
        (MODELS_BY_TAG, {"type": "created"}),
        (MODELS_BY_TAG, {"type": "deleted", "id": 1, "first": {"type": "secret", "id": 1}}),
        (Item, {"one": {"type": "secret", "id": 1}}),
    ],
)
def test_whatever_else_is_wrong_is_never_discarded_as_an_unknown_type(annotation: Any, value: Any) -> None:
    with pytest.raises(DecodeError) as caught:
        decoded(annotation, json.dumps(value).encode(), unknown_types="discard")
    assert caught.value.code != "UNKNOWN_TYPE"


# -- what cannot be


async def unpack_async(data: bytes) -> Packed:
    return Packed(data)


@pytest.mark.parametrize(
    ("annotation", "options", "sentence"),
    [
        (
            Login,
            {"models": MODELS},
            "records of the topic b.v1 become Logout, which the annotation does not take; write",
        ),
        (Login | Logout | str, {"models": MODELS}, "no record becomes str, which the annotation takes; write Login |"),
        (Login, {"types": TYPES}, "records of the type logout become Logout, which the annotation does not take"),
        (Login | Logout, {"models": MODELS, "types": TYPES}, "topics have a type each, so types= has no effect"),
        (Login | Logout, {"models": MODELS, "decoder": Packed}, "decoder= decodes every record, so the types"),
        (Login | Logout, {"models": MODELS, "topics": ("a.v1", "c.v1")}, "no type is given for the topic c.v1; add it"),
        (Packed, {"decoder": unpack_async}, "is no decoder; a decoder is a plain function of the bytes"),
        (Packed, {"decoder": {"*": "json"}}, "is no decoder; a decoder is a plain function of the bytes"),
        (Packed, {"decoder": {"application/x": Packed}}, "cannot decode a record into Packed"),
        (Packed | Login, {"models": {"a.v1": Packed, "b.v1": Login}}, "cannot decode a record into Packed"),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_to_write(annotation: Any, options: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose(annotation, Decoding(**options), tombstones="dead-letter", where="handler work(), parameter 'value'")
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("handler work(), parameter 'value': ")


@dataclass
class Base:
    id: int


@dataclass
class Derived(Base):
    more: int = 0


@pytest.mark.parametrize("annotation", [Base, Any, object])
def test_a_common_base_class_or_any_stands_for_all(annotation: Any) -> None:
    models = {"a.v1": Base, "b.v1": Derived}
    assert decoded(annotation, b'{"id":1}', topic="b.v1", models=models) == Derived(1)


# -- examples


def test_an_example_has_the_type_of_its_topic_or_the_header_of_its_type() -> None:
    assert Decoding(models=MODELS).example(Login | Logout, "b.v1") == (Logout, {})
    assert Decoding(types=TYPES, type_header="t").example(Login | Logout, "x") == (Login, {"t": "login"})
    assert Decoding().example(Login, "x") == (Login, {})
    assert Decoding(decoder=Packed).example(Packed, "x") == (bytes, {})
    assert Decoding(registered={Packed: Packed}).example(Packed | None, "x") == (bytes, {})
