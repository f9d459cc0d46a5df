"""Records with schemas: a registry over HTTP and in memory, three formats, and what goes wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AnyUrl, BaseModel

from keepfast import Avro, ConfigError, Discard, JsonSchema, Protobuf
from keepfast.app.schemas import SchemaEncoder, prepared
from keepfast.core.errors import DecodeError, RegistryError, SchemaPending
from keepfast.core.records import Headers, Message, TopicPartition
from keepfast.core.schemas import DeclaredSchemas, Schema, SchemaRef
from keepfast.decode.schemas import FileDecoder, SchemaDecoder, SchemaFetcher, SchemaSource
from keepfast.kafka.registry import Deserialize, Registered, Registry, RegistryConnection
from tests.support import messages
from tests.support.schema_registry import SchemaRegistryServer, message_class
from tests.support.waiting import DEADLINE_S, wait_until

TOPIC, SUBJECT = "billing.invoice.v1", "billing.invoice.v1-value"


@dataclass
class Invoice:
    id: str
    cents: int = 0


@dataclass
class Refund:
    id: str


class Model(BaseModel):
    id: str
    cents: int


def record(name: str = "Invoice", **fields: Any) -> dict[str, Any]:
    listed = [{"name": "id", "type": "string"}, *({"name": key, **value} for key, value in fields.items())]
    return {"type": "record", "name": name, "namespace": "billing", "fields": listed}


V1 = record(cents={"type": "long"})
V2 = record(cents={"type": "long"}, note={"type": "string"})
JSON_V1 = {
    "type": "object",
    "title": "Invoice",
    "properties": {"id": {"type": "string"}, "cents": {"type": "integer", "minimum": 0}},
    "required": ["id"],
}
INVOICE = message_class("billing.Invoice", {"id": "string", "cents": "int64"})
INVOICE_2 = message_class("billing.Invoice", {"id": "string", "cents": "int64", "note": "string"})


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as server:
        yield server


Sources = Callable[..., SchemaSource]


@pytest.fixture
def source(server: SchemaRegistryServer) -> Iterator[Sources]:
    """A source of the server, or of another URL, which asks at once unless told otherwise."""
    made: list[SchemaSource] = []

    def make(url: str = "", *, at_once: bool = True, **options: Any) -> SchemaSource:
        connection = RegistryConnection(url=url or server.url, timeout_s=2.0, **options)
        made.append(SchemaSource(Registry(connection), at_once=at_once))
        return made[-1]

    yield make
    for one in made:
        one.close()


def decoder(source: SchemaSource, schema: Schema, kind: Any = Invoice, **options: Any) -> SchemaDecoder:
    return SchemaDecoder(TOPIC, schema, kind, source=source, **options)


def sent(source: SchemaSource, schema: Schema, value: Any) -> Message:
    data, headers = encoder(source, schema).encode(TOPIC, value, ())
    return message(data, headers)


def encoder(source: SchemaSource | None, schema: Schema) -> SchemaEncoder:
    return prepared(DeclaredSchemas({TOPIC: schema}), source)


def message(value: bytes | None, headers: Headers = ()) -> Message:
    return messages.message(0, place=TopicPartition(TOPIC, 0), value=value, headers=headers)


FORMATS: list[tuple[Schema, Any]] = [
    (Avro(V1), {"id": "invoice", "cents": 5}),  # the client takes values of more than 5 bytes
    (JsonSchema(JSON_V1), {"id": "invoice", "cents": 5}),
    (Protobuf(INVOICE), INVOICE(id="invoice", cents=5)),
]


@pytest.mark.parametrize("ids", ["value", "header"])
@pytest.mark.parametrize("url", ["http", "mock"])
@pytest.mark.parametrize(("schema", "value"), FORMATS)
def test_what_is_sent_is_read_again_in_every_format(
    source: Sources, schema: Schema, value: Any, url: str, ids: str
) -> None:
    one = source(f"mock://{ids}-{schema.format}" if url == "mock" else "", register=True, ids=ids)
    found = sent(one, schema, value)
    assert bool(found.headers()) == (ids == "header")
    for kind, wanted in ((Invoice, Invoice("invoice", 5)), (Model, Model(id="invoice", cents=5)), (dict, None)):
        decode = decoder(one, schema, kind)
        assert decode(found) == (wanted or {"id": "invoice", "cents": 5 if schema.format != "protobuf" else "5"})
        ref = SchemaRef(format=schema.format, subject=SUBJECT, id=1, version=1)
        assert decode.ref(found.value(), found.headers() or ()) == ref


class CountingRegistry(Registry):
    """Counts what its deserializers read."""

    read = 0

    def deserializer(self, *given: Any) -> Deserialize:
        inner = super().deserializer(*given)

        def counted(data: bytes, topic: str, headers: Headers) -> Any:
            self.read += 1
            return inner(data, topic, headers)

        return counted


@pytest.mark.parametrize(("schema", "value"), FORMATS)
def test_after_the_first_record_the_clients_deserializer_is_not_needed(schema: Schema, value: Any) -> None:
    registry = CountingRegistry(RegistryConnection(url=f"mock://counting-{schema.format}", register=True))
    with closing(SchemaSource(registry)) as one:
        decode, found = decoder(one, schema), sent(one, schema, value)
        data = found.value() or b""
        for other in (found, found, message(data, (("traceparent", b"00-4bf92f35-00f067aa-01"),))):
            assert decode(other) == Invoice("invoice", 5)
        assert registry.read == 2, "the first record: when its schema is fetched, and for itself"
        size = 6 if schema.format == "protobuf" else 5  # with the place of the message in its schema
        for _ in range(3):
            assert decode(message(data[size:], (("__value_schema_id", data[:size]),))) == Invoice("invoice", 5)
        assert registry.read > 4, "the id is in a header"


def test_an_id_in_a_header_counts_even_if_the_value_begins_like_one() -> None:
    schema = Avro({"type": "record", "name": "Raw", "fields": [{"name": "data", "type": "bytes"}]})
    registry = Registry(RegistryConnection(url="mock://misleading", register=True))
    with closing(SchemaSource(registry)) as one:
        decode, found = decoder(one, schema, dict), sent(one, schema, {"data": b"abc"}).value() or b""
        assert decode(message(found)) == {"data": b"abc"}
        header = ("__value_schema_id", found[:5])
        assert decode(message(found, (header,))) == {"data": b""}, "the first byte is the length, 0"


def test_rules_and_references_are_left_to_the_client() -> None:
    registry = Registry(RegistryConnection(url="mock://parsers"))
    found = Registered(SchemaRef(format="avro", subject=SUBJECT, id=1, version=1), json.dumps(V1))
    assert registry.parser(found, Avro(V1), None) is not None
    assert registry.parser(replace(found, has_rules=True), Avro(V1), None) is None
    assert registry.parser(replace(found, references=(("a", "b", 1),)), Avro(V1), None) is None
    assert registry.parser(found, JsonSchema(JSON_V1), None) is None, "of another format"
    proto = replace(found, ref=replace(found.ref, format="protobuf"))
    parse, payload = registry.parser(proto, Protobuf(INVOICE), INVOICE), INVOICE(id="123456789").SerializeToString()
    assert parse is not None
    assert parse(b"\0\0\0\0\1\0" + payload).id == "123456789"
    with pytest.raises(ValueError, match="not the first message"):
        parse(b"\0\0\0\0\1\2\x0a" + payload)  # the sixth, whose number reads like a field
    for written in ('"bytes"', '{"type": "bytes"}'):
        assert registry.parser(replace(found, text=written), Avro(written), None) is None, "written as they are"


def outcome(decode: SchemaDecoder, data: bytes, *, quick: bool) -> Any:
    """What becomes of the value, with a parser or with the client's deserializer."""
    parsers, decode._quick = decode._quick, decode._quick if quick else {}
    try:
        return decode(message(data))
    except DecodeError as error:
        return (error.code, str(error))
    finally:
        decode._quick = parsers


@pytest.mark.parametrize(("schema", "value"), FORMATS)
@given(data=st.data())
@settings(deadline=None, max_examples=100)
def test_whatever_the_bytes_the_result_is_that_of_the_clients_deserializer(
    schema: Schema, value: Any, data: st.DataObject
) -> None:
    with closing(SchemaSource(Registry(RegistryConnection(url=f"mock://any-{schema.format}", register=True)))) as one:
        valid = sent(one, schema, value).value() or b""
        decode = decoder(one, schema)
        decode(message(valid))
        at = data.draw(st.integers(5, len(valid)))
        other = valid[:at] + data.draw(st.binary(max_size=8)) + valid[data.draw(st.integers(at, len(valid))) :]
        assert outcome(decode, other, quick=True) == outcome(decode, other, quick=False)


@pytest.mark.parametrize("ids", ["value", "header"])
@pytest.mark.parametrize(("schema", "key"), [*FORMATS, (Avro('"string"'), "a"), (Avro('"string"'), "a longer one")])
def test_keys_have_a_subject_of_their_own(
    server: SchemaRegistryServer, source: Sources, schema: Schema, key: Any, ids: str
) -> None:
    registered, kind = source(register=True, ids=ids), schema.message if isinstance(schema, Protobuf) else Any
    written = prepared(DeclaredSchemas(keys={TOPIC: schema}), registered)
    data, headers = written.encode(TOPIC, key, (), "key")
    assert data is not None
    assert decoder(registered, schema, kind, part="key").read(data, headers) == key
    assert {entry.subject for entry in server._entries} == {f"{TOPIC}-key"}
    assert [name for name, _ in headers] == (["__key_schema_id"] if ids == "header" else [])


@pytest.mark.parametrize("url", ["http", "mock"])
def test_the_name_of_a_message_chooses_the_class_of_protobuf(source: Sources, url: str) -> None:
    one = source("mock://messages" if url == "mock" else "", register=True, subjects="topic-record")
    refund = message_class("billing.Refund", {"id": "string"})
    other = message_class("billing.Other", {"id": "string"})
    decode = decoder(one, Protobuf(), INVOICE | refund)
    assert decode(sent(one, Protobuf(INVOICE), INVOICE(id="first", cents=5))) == INVOICE(id="first", cents=5)
    assert decode(sent(one, Protobuf(refund), refund(id="second"))) == refund(id="second")
    with pytest.raises(DecodeError, match=r"none of the types Invoice \| Refund") as raised:
        decode(sent(one, Protobuf(other), other(id="third one")))
    assert raised.value.code == "UNKNOWN_TYPE"


def test_messages_of_one_schema_of_protobuf_are_told_apart_by_their_place_in_it(source: Sources) -> None:
    one = source(register=True)
    file = descriptor_pb2.FileDescriptorProto(name="both.proto", package="billing", syntax="proto3")
    string, optional = (
        descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
        descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    )
    outer = file.message_type.add(name="Invoice")
    file.message_type.add(name="Refund").field.add(name="id", number=1, type=string, label=optional)
    for holder in (outer, outer.nested_type.add(name="Line")):
        holder.field.add(name="id", number=1, type=string, label=optional)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kinds = [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"billing.{name}"))
        for name in ("Invoice", "Refund", "Invoice.Line")
    ]
    decode = decoder(one, Protobuf(), kinds[0] | kinds[1] | kinds[2])
    for kind in kinds:
        only = decoder(one, Protobuf(), kind)
        assert [only(sent(one, Protobuf(kind), kind(id="the same"))).id for _ in range(2)] == ["the same"] * 2
        found = decode(sent(one, Protobuf(kind), kind(id="the same")))
        assert (type(found), found.id) == (kind, "the same")
    assert len(decode._refs) == 1
    broken = sent(one, Protobuf(kinds[0]), kinds[0](id="a")).value()
    assert broken is not None
    with pytest.raises(DecodeError, match="cannot be read by its schema"):
        decode(message(broken[:5] + b"\x02\x0e" + broken[6:]))  # the eighth message


def test_a_generated_class_is_what_the_handler_gets(source: Sources) -> None:
    one = source(register=True)
    assert decoder(one, Protobuf(), INVOICE)(sent(one, Protobuf(INVOICE), INVOICE(id="a"))) == INVOICE(id="a")


@pytest.mark.parametrize(
    ("written", "value", "read_by", "wanted"),
    [
        (Avro(V2), {"id": "a", "cents": 5, "note": "new"}, Avro(V1), Invoice("a", 5)),
        (Avro(record()), {"id": "a"}, Avro(record(cents={"type": "long", "default": 7})), Invoice("a", 7)),
        (Avro(V2), {"id": "a", "cents": 5, "note": "new"}, Avro(), Invoice("a", 5)),
        (JsonSchema({**JSON_V1, "title": "Newer"}), {"id": "a", "more": 1}, JsonSchema(), Invoice("a")),
        (Protobuf(INVOICE_2), INVOICE_2(id="a", cents=5, note="new"), Protobuf(INVOICE), Invoice("a", 5)),
    ],
    ids=["avro-newer", "avro-older", "avro-as-written", "json-newer", "protobuf-newer"],
)
def test_a_schema_that_has_evolved_is_read_as_the_handlers(
    source: Sources, written: Schema, value: Any, read_by: Schema, wanted: Invoice
) -> None:
    one = source(register=True)
    decode, found = decoder(one, read_by), sent(one, written, value)
    assert [decode(found) for _ in range(3)] == [wanted] * 3


def test_references_are_fetched_with_the_schema(server: SchemaRegistryServer, source: Sources) -> None:
    server.put("billing.Money", {"type": "record", "name": "Money", "namespace": "billing", "fields": [
        {"name": "cents", "type": "long"}]})  # fmt: skip
    refers = record(price={"type": "billing.Money"})
    references = [{"name": "billing.Money", "subject": "billing.Money", "version": 1}]
    number = server.put(SUBJECT, refers, references=references)
    value = b"\0" + number.to_bytes(4, "big") + b"\x02a\x0a"
    decode = decoder(source(), Avro(), dict)
    assert decode(message(value)) == {"id": "a", "price": {"cents": 5}}
    before = len(server.requests)
    assert decode(message(value)) == {"id": "a", "price": {"cents": 5}}
    assert len(server.requests) == before


def test_a_union_is_chosen_by_the_name_in_the_schema(server: SchemaRegistryServer, source: Sources) -> None:
    one = source(register=True, subjects="topic-record")
    invoice, refund = sent(one, Avro(V1), Invoice("a", 5)), sent(one, Avro(record("Refund")), Refund("b"))
    other = sent(one, Avro(record("Reminder")), {"id": "c"})
    decode = decoder(one, Avro(), Invoice | Refund)
    assert [decode(invoice), decode(refund)] == [Invoice("a", 5), Refund("b")]
    assert "GET /subjects" not in "".join(server.requests)
    with pytest.raises(DecodeError) as refused:
        decode(other)
    assert refused.value.code == "UNKNOWN_TYPE"
    with pytest.raises(Discard):
        decoder(one, Avro(), Invoice | Refund, discard_unknown=True)(other)


@pytest.mark.parametrize(("schema", "value"), FORMATS)
def test_an_id_that_the_registry_does_not_know_is_final_and_asked_for_once(
    server: SchemaRegistryServer, source: Sources, schema: Schema, value: Any
) -> None:
    decode = decoder(source(), schema)
    for _ in range(3):
        with pytest.raises(DecodeError) as refused:
            decode(message(b"\0\0\0\0\x63abc"))
    assert refused.value.code == "SCHEMA_UNKNOWN"
    assert server.requests == ["GET /schemas/ids/99"]
    assert decode.ref(b"\0\0\0\0\x63abc", ()) == SchemaRef(format=schema.format, subject=SUBJECT, id=99)


def decoded(decode: SchemaDecoder, value: bytes) -> Any:
    """When its schema was fetched, or is known not to be there."""
    try:
        return decode(message(value))
    except SchemaPending as waits:
        wait_until(waits.answered, "the registry has answered")
    return decode(message(value))


GONE = {"name": "billing.Money", "subject": "gone", "version": 1}
LARGE = b"\0\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"\0\0\0\0\x01", "Schemas of the type XML"),
        (b"\0\0\0\0\x02", "Subject not found"),
        (b"\0\0\0\0\x03", "cannot be used"),
        (LARGE, "is no id"),
    ],
    ids=["type", "reference", "text", "id"],
)
def test_a_schema_that_cannot_be_used_is_final_and_stops_no_other(
    server: SchemaRegistryServer, source: Sources, frame: bytes, why: str
) -> None:
    server.put(SUBJECT, "<schema/>", "XML")
    server.put(SUBJECT, record(price={"type": "billing.Money"}), references=[GONE])
    server.put(SUBJECT, "no JSON")
    server.put(SUBJECT, V1)
    server.answers[f"/schemas/ids/{2**32 - 1}"] = 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
    kind = Invoice | Refund if frame.endswith(b"\x03") else Invoice  # its name chooses, and needs the text
    decode = decoder(source(at_once=False), Avro(), kind)
    with pytest.raises(DecodeError, match=why) as refused:
        decoded(decode, frame + b"\x02a\x0a")
    assert refused.value.code == "SCHEMA_UNKNOWN"
    assert decoded(decode, b"\0\0\0\0\x04\x02a\x0a") == Invoice("a", 5)


def test_a_schema_that_the_registry_does_not_give_stops_no_other(server: SchemaRegistryServer, source: Sources) -> None:
    server.put(SUBJECT, V1)
    server.answers["/schemas/ids/7"] = 500, {"error_code": 50001, "message": "Error in the backend data store"}
    decode = decoder(source(at_once=False), Avro())
    with pytest.raises(SchemaPending) as waits:
        decode(message(b"\0\0\0\0\x07\x02a\x0a"))
    assert decoded(decode, b"\0\0\0\0\x01\x02a\x0a") == Invoice("a", 5)
    assert not waits.value.answered()
    server.answers.clear()
    wait_until(waits.value.answered, "the registry says that it has none")


@pytest.mark.parametrize("status", [403, 404])
def test_a_registry_that_does_not_say_where_a_schema_is_still_gives_it(
    server: SchemaRegistryServer, source: Sources, status: int
) -> None:
    server.put(SUBJECT, V1)
    server.answers["/schemas/ids/1/versions"] = status, None
    decode, value = decoder(source(at_once=False), Avro()), b"\0\0\0\0\x01\x02a\x0a"
    assert decoded(decode, value) == Invoice("a", 5)
    assert decode.ref(value, ()) == SchemaRef(format="avro", id=1)


def test_a_guid_is_read_whatever_subject_has_it(server: SchemaRegistryServer, source: Sources) -> None:
    server.put("billing.Invoice", V1)
    value = b"\x01" + UUID(server._entries[0].guid).bytes + b"\x02a\x0a"
    assert decoded(decoder(source(at_once=False), Avro()), value) == Invoice("a", 5)


def test_a_registry_without_guids_knows_none_of_them(server: SchemaRegistryServer, source: Sources) -> None:
    guid = uuid4()
    server.answers[f"/schemas/guids/{guid}"] = 404, None
    decode = decoder(source(at_once=False), Avro())
    with pytest.raises(DecodeError, match="it has no GUIDs") as refused:
        decoded(decode, b"\x01" + guid.bytes + b"\x02a\x0a")
    assert refused.value.code == "SCHEMA_UNKNOWN"


def test_what_follows_the_id_in_a_header_makes_no_other_schema(server: SchemaRegistryServer, source: Sources) -> None:
    one = source(register=True, ids="header")
    data, headers = encoder(one, Protobuf(INVOICE)).encode(TOPIC, INVOICE(), ())
    decode, [(name, found)] = decoder(one, Protobuf(), INVOICE), headers
    assert (data, found and len(found)) == (b"", 18)
    assert decode(message(data, headers)) == INVOICE()
    asked = len(server.requests)
    assert decode(message(data, [(name, (found or b"")[:17] + b"\x02\x00")])) == INVOICE()  # the same message, in full
    assert len(server.requests) == asked
    assert decode.ref(data, headers) == SchemaRef(format="protobuf", subject=SUBJECT, id=1, version=1)
    for odd in (b"1", b"\0", b"\x01", b"\xff" * 17):
        with pytest.raises(DecodeError) as refused:
            decode(message(data, [(name, odd)]))
        assert refused.value.code == "SCHEMA_ID_MISSING"
    assert len(server.requests) == asked


def test_an_error_of_a_question_does_not_end_the_thread() -> None:
    fetcher, answered, tries = SchemaFetcher(), Event(), list[int]()

    def fetch() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise KeyError("unexpected")

    fetcher.ask("first", fetch)
    fetcher.ask("second", answered.set)
    assert answered.wait(DEADLINE_S)
    wait_until(lambda: fetcher.answered("first"), "it was asked again")
    assert len(tries) == 2
    fetcher.close(lambda: None)


@pytest.mark.parametrize("value", [b"", b'{"id": "a"}', b"\0\0\0", b"\x01short"])
def test_a_value_without_an_id_is_final_and_asks_nothing(
    server: SchemaRegistryServer, source: Sources, value: bytes
) -> None:
    with pytest.raises(DecodeError) as refused:
        decoder(source(), Avro())(message(value))
    assert refused.value.code == "SCHEMA_ID_MISSING"
    assert not server.requests


@pytest.mark.parametrize("trouble", ["slow", "away", "500", "refused", "other path"])
def test_a_registry_in_trouble_makes_the_record_wait(
    server: SchemaRegistryServer, source: Sources, trouble: str
) -> None:
    server.put(SUBJECT, V1)
    url = server.url
    if trouble == "slow":
        server.slow_s = 0.3
    elif trouble == "away":
        server.down()
    elif trouble == "500":
        server.status = 503
    elif trouble == "refused":
        server.login = ("reader", "secret")
    else:
        url = f"{server.url}/elsewhere"  # 404, and not one of the registry's
    decode, value = decoder(source(url, at_once=False), Avro()), message(b"\0\0\0\0\x01\x02a\x0a")
    for _ in range(2):
        with pytest.raises(SchemaPending) as waits:
            decode(value)
        assert not waits.value.answered()
    if trouble == "other path":
        return
    if trouble == "away":
        server.up()
    server.slow_s, server.status, server.login = 0.0, None, None
    wait_until(waits.value.answered, "the schema is there")
    asked = len(server.requests)
    assert decode(value) == decode(value) == Invoice("a", 5)
    assert len(server.requests) == asked


@pytest.mark.parametrize(
    ("schema", "value", "code"),
    [
        (Avro(V1), b"\x06", "DECODE_FAILED"),
        (JsonSchema(JSON_V1), b'{"id": "secret", "cents": -1}', "SCHEMA_INVALID"),
        (JsonSchema(JSON_V1), b'{"cents": 1, "secret": 1}', "MISSING_REQUIRED_FIELD"),
        (JsonSchema({"type": "object"}), b'{"id": 5, "secret": 1}', "SCHEMA_INVALID"),  # not as annotated
        (Protobuf(INVOICE), b"\0secret", "DECODE_FAILED"),
    ],
)
def test_what_does_not_fit_is_described_without_the_payload(
    source: Sources, schema: Schema, value: bytes, code: str
) -> None:
    one = source(register=True)
    encoder(one, schema)
    with pytest.raises(DecodeError) as refused:
        decoder(one, schema)(message(b"\0\0\0\0\x01" + value))
    assert refused.value.code == code
    assert "secret" not in str(refused.value)
    assert refused.value.__context__ is None


def test_null_is_a_tombstone(source: Sources) -> None:
    assert decoder(source(), Avro(), Invoice | None)(message(None)) is None
    with pytest.raises(DecodeError, match="tombstone"):
        decoder(source(), Avro())(message(None))


@pytest.mark.parametrize(("schema", "value"), FORMATS)
def test_what_is_sent_must_be_registered_and_fit(source: Sources, schema: Schema, value: Any) -> None:
    with pytest.raises(RegistryError) as missing:
        encoder(source(), schema)
    assert missing.value.fault == "missing"
    ready = encoder(source(register=True), schema)
    again = encoder(source(), schema)  # now it is registered
    assert ready.encode(TOPIC, value, ()) == again.encode(TOPIC, value, ())
    assert ready.encode(TOPIC, None, ()) == (None, ())
    with pytest.raises(ValueError, match=f"does not fit its {schema.format} schema") as refused:
        ready.encode(TOPIC, {"id": ["secret"]}, ())
    assert "secret" not in str(refused.value)
    assert refused.value.__context__ is None


def test_a_schema_that_the_code_does_not_have_is_the_latest_of_the_subject(
    server: SchemaRegistryServer, source: Sources
) -> None:
    with pytest.raises(ValueError, match="had no schema"):
        encoder(source(), Avro()).encode(TOPIC, {"id": "a"}, ())
    server.put(SUBJECT, V1)
    assert encoder(source(), Avro()).encode(TOPIC, Model(id="a", cents=5), ()) == (b"\0\0\0\0\x01\x02a\x0a", ())


@pytest.mark.parametrize("register", [True, False])
def test_a_schema_in_a_file_is_asked_for_at_the_start_and_not_when_something_is_sent(
    server: SchemaRegistryServer, source: Sources, tmp_path: Any, register: bool
) -> None:
    file = tmp_path / "invoice.avsc"
    file.write_text(f"{json.dumps(V1, indent=2)}\n")
    server.put(SUBJECT, json.dumps(V1, indent=2))
    ready, asked = encoder(source(register=register), Avro(file)), len(server.requests)
    assert ready.encode(TOPIC, Invoice("a", 5), ()) == (b"\0\0\0\0\x01\x02a\x0a", ())
    assert len(server.requests) == asked


def test_a_message_that_requires_fields_can_be_sent(source: Sources) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="required.proto", package="billing", syntax="proto2")
    file.message_type.add(name="Invoice").field.add(name="id", number=1, type="TYPE_STRING", label="LABEL_REQUIRED")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("billing.Invoice"))
    data, _ = encoder(source(register=True), Protobuf(kind)).encode(TOPIC, kind(id="a"), ())
    assert data == b"\0\0\0\0\x01\0\x0a\x01a"


def test_what_pydantic_has_and_avro_has_not_is_sent_as_its_value(source: Sources) -> None:
    class Kind(Enum):
        PAID = "PAID"

    class Link(BaseModel):
        kind: Kind
        url: AnyUrl

    schema = record(url={"type": "string"})
    schema["fields"][0] = {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["OPEN", "PAID"]}}
    value = Link(kind=Kind.PAID, url=AnyUrl("https://a.example"))
    data, _ = encoder(source(register=True), Avro(schema)).encode(TOPIC, value, ())
    assert data == b"\0\0\0\0\x01\x02\x24https://a.example/"


def test_an_incompatible_schema_is_not_registered(server: SchemaRegistryServer, source: Sources) -> None:
    server.put(SUBJECT, V1)
    with pytest.raises(RegistryError, match="incompatible") as refused:
        encoder(source(register=True), Avro(V2))
    assert refused.value.fault == "fatal"


def test_a_json_schema_file_needs_no_registry(tmp_path: Any) -> None:
    file = tmp_path / "invoice.json"
    file.write_text(json.dumps(JSON_V1))
    schema = JsonSchema(file, registry=False)
    decode = FileDecoder(TOPIC, schema, Invoice, tombstones="dead-letter")
    assert decode(message(b'{"id": "a", "cents": 5}')) == Invoice("a", 5)
    for value, code in (
        (b'{"cents": 5}', "MISSING_REQUIRED_FIELD"),
        (b'{"id": "secret", "cents": -1}', "SCHEMA_INVALID"),
        (b"{secret", "DECODE_FAILED"),
    ):
        with pytest.raises(DecodeError) as refused:
            decode(message(value))
        assert refused.value.code == code
        assert "secret" not in str(refused.value)
    write = encoder(None, schema)
    assert write.encode(TOPIC, Invoice("a", 5), ()) == (b'{"id":"a","cents":5}', ())
    with pytest.raises(ValueError, match="cents"):
        write.encode(TOPIC, Invoice("a", -5), ())


@pytest.mark.parametrize(
    ("schema", "kind", "text"),
    [
        (Avro("missing.avsc"), Invoice, "missing.avsc cannot be read"),
        (Avro("{"), Invoice, "is no JSON"),
        (Avro(), set[int], "cannot decode a record into set"),
        (Protobuf(), Invoice, "annotate the generated class"),
        (Protobuf(), INVOICE | INVOICE_2, "have one name"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(source: Sources, schema: Schema, kind: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        decoder(source(), schema, kind)


def test_a_json_schema_without_a_registry_needs_a_schema() -> None:
    with pytest.raises(ConfigError, match="needs a schema"):
        JsonSchema(registry=False)
    with pytest.raises(ConfigError, match="is no JSON Schema"):
        FileDecoder(TOPIC, JsonSchema({"type": 5}, registry=False), Invoice, tombstones="dead-letter")


def test_a_json_schema_file_refers_to_nothing_outside_of_it(server: SchemaRegistryServer) -> None:
    def made(reference: str) -> FileDecoder:
        schema = {"properties": {"a": {"$ref": reference}}, "$defs": {"a": {"$ref": "#"}}}
        return FileDecoder(TOPIC, JsonSchema(schema, registry=False), dict[str, Any], tombstones="dead-letter")

    for reference in (f"{server.url}/a.json", "a.json", "#/$defs/b"):
        with pytest.raises(ConfigError, match=f"refers to {re.escape(reference)}, which is not in it"):
            made(reference)
    assert not server.requests
    assert made("#/$defs/a")(message(b'{"a": {"a": {}}}')) == {"a": {"a": {}}}
    with pytest.raises(DecodeError, match="nested too deeply"):
        made("#/$defs/a")(message(b'{"a":' * 900 + b"{}" + b"}" * 900))


def test_a_registry_is_released_when_its_last_question_is_answered() -> None:
    fetcher, asked, answered, released = SchemaFetcher(), Event(), Event(), Event()

    def fetch() -> None:
        asked.set()
        answered.wait(DEADLINE_S)

    fetcher.ask("a schema", fetch)
    assert asked.wait(DEADLINE_S)
    fetcher.close(released.set)
    assert not released.is_set(), "the thread still asks with it"
    answered.set()
    assert released.wait(DEADLINE_S)


def test_a_registry_that_was_never_asked_is_released_at_once() -> None:
    released = Event()
    SchemaFetcher().close(released.set)
    assert released.is_set()
