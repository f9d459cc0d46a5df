"""CloudEvents: structured and binary, written by the official SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from cloudevents.core.bindings import kafka
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from keepfast import App, Avro, CloudEvents, ConfigError, Context, JsonSchema, Protobuf
from keepfast.app.schemas import prepared
from keepfast.core.errors import DecodeError
from keepfast.core.schemas import DeclaredSchemas
from keepfast.decode.cloudevents import CloudEventDecoder
from keepfast.testing.harness import harness
from tests.support.messages import message
from tests.support.schema_registry import message_class


@dataclass
class Invoice:
    id: str


ATTRIBUTES = {"id": "e1", "source": "/billing", "type": "invoice.sent", "specversion": "1.0", "tenant": "acme"}


def written(mode: str, data: Any = None, **more: Any) -> kafka.KafkaMessage:
    attributes = {**ATTRIBUTES, "datacontenttype": "application/json", **more}
    event = CloudEvent(attributes, {"id": "a"} if data is None else data)
    write = kafka.to_structured if mode == "structured" else kafka.to_binary
    return write(event, JSONFormat())


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_the_handler_gets_the_data_and_the_context_the_attributes(mode: str) -> None:
    app, seen, event = App("billing"), list[Any](), written(mode)

    @app.consumer("billing.event.v1", schema=CloudEvents())
    def charge(invoice: Invoice, ctx: Context) -> None:
        seen.append((invoice, ctx.cloudevent))

    @app.consumer("billing.plain.v1")
    def other(invoice: Invoice, ctx: Context) -> None:
        seen.append(ctx.cloudevent)

    async def story() -> list[str]:
        async with harness(app) as h:
            await h.send("billing.event.v1", event.value, headers=event.headers)
            await h.send("billing.plain.v1", {"id": "a"})
            await h.send("billing.event.v1", {"id": "no event"})
            await h.send("billing.event.v1", b"\xff")
            return [letter.error_code for letter in h.dead]

    codes = asyncio.run(story())
    [(invoice, attributes), plain] = seen
    assert invoice == Invoice("a")
    assert {name: attributes[name] for name in ATTRIBUTES} == ATTRIBUTES
    assert plain is None
    assert sorted(codes) == ["DECODE_FAILED", "SCHEMA_INVALID"]


@pytest.mark.parametrize("mode", ["structured", "binary"])
@pytest.mark.parametrize(
    ("annotation", "data", "kind", "wanted"),
    [(bytes, b"\xff\0", "application/octet-stream", b"\xff\0"), (str, "hello", "text/plain", "hello")],
)
def test_data_that_is_no_json_is_given_as_it_is(mode: str, annotation: Any, data: Any, kind: str, wanted: Any) -> None:
    event = written(mode, data, datacontenttype=kind)
    decode = CloudEventDecoder(annotation, tombstones="dead-letter")
    assert decode(message(0, value=event.value, headers=tuple(event.headers.items()))) == wanted


def test_what_does_not_fit_is_described_without_the_payload() -> None:
    event = written("structured", {"id": ["secret"]})
    with pytest.raises(DecodeError) as refused:
        CloudEventDecoder(Invoice, tombstones="dead-letter")(message(0, value=event.value))
    assert refused.value.code == "SCHEMA_INVALID"
    assert "secret" not in str(refused.value)
    assert CloudEventDecoder(Invoice | None, tombstones="dead-letter")(message(0, value=None)) is None


AVRO = {"type": "record", "name": "Invoice", "fields": [{"name": "id", "type": "string"}]}
INVOICE = message_class("billing.Invoice", {"id": "string"})


@pytest.mark.parametrize("ids", ["value", "header"])
@pytest.mark.parametrize("mode", ["structured", "binary"])
@pytest.mark.parametrize(
    ("data", "kind", "sent"),
    [
        (None, Invoice, Invoice("an invoice")),
        (Avro(AVRO), Invoice, {"id": "an invoice"}),
        (Protobuf(INVOICE), INVOICE, INVOICE(id="an invoice")),
        (JsonSchema({"type": "object", "required": ["id"]}), Invoice, Invoice("an invoice")),
        (JsonSchema({"type": "object", "required": ["id"]}, registry=False), Invoice, Invoice("an invoice")),
    ],
    ids=["json", "avro", "protobuf", "json-schema", "json-schema-file"],
)
def test_what_is_sent_is_an_event_that_is_read_again(
    mode: Literal["structured", "binary"], ids: str, data: Any, kind: Any, sent: Any
) -> None:
    topic, event = "billing.event.v1", CloudEvents("/billing", "invoice.sent", mode, data)
    app, seen = App("billing"), list[Any]()
    app.schema(topic, event)

    async def charge(invoice: Any, ctx: Context) -> None:
        seen.append((invoice.id, ctx.cloudevent, ctx.headers))

    charge.__annotations__["invoice"] = kind
    app.consumer(topic)(charge)

    @app.consumer("billing.order.v1")
    async def bill(order: dict[str, Any], ctx: Context) -> None:
        ctx.send(topic, sent, headers={"trace-bin": b"\xff"})  # which is no text

    @app.middleware  # before which schemas are fetched
    def around() -> Iterator[None]:
        yield

    async def story() -> None:
        async with harness(app, environ={"KEEPFAST_REGISTRY_IDS": ids}) as h:
            await h.send("billing.order.v1", {})
            assert not h.dead

    asyncio.run(story())
    [(found, attributes, headers)] = seen
    assert found == "an invoice"
    assert (attributes["source"], attributes["type"]) == ("/billing", "invoice.sent")
    assert attributes["id"]
    assert attributes["time"]
    assert any(name.startswith("ce_") for name, _ in headers) == (mode == "binary")


def test_headers_that_are_passed_on_do_not_describe_what_is_sent() -> None:
    app, seen = App("billing"), list[Any]()
    app.schema("billing.in.v1", Avro(AVRO), key=Avro(AVRO))
    app.schema("billing.avro.v1", Avro({**AVRO, "name": "Other", "fields": [{"name": "n", "type": "long"}]}))
    app.schema("billing.binary.v1", CloudEvents("/billing", "first", "binary"))
    app.schema("billing.structured.v1", CloudEvents("/billing", "second"))
    onward = {"billing.in.v1": "billing.avro.v1", "billing.avro.v1": "billing.binary.v1"}
    onward["billing.binary.v1"] = "billing.structured.v1"

    @app.consumer(*onward, "billing.structured.v1")
    def forward(value: dict[str, Any], ctx: Context) -> None:
        seen.append((ctx.topic, value, (ctx.cloudevent or {}).get("type"), dict(ctx.headers).get("own")))
        if ctx.topic in onward:
            ctx.send(onward[ctx.topic], {"n": 1}, headers=ctx.headers)

    async def story() -> None:
        async with harness(app, environ={"KEEPFAST_REGISTRY_IDS": "header"}) as h:
            await h.send("billing.in.v1", {"id": "a"}, key={"id": "a"}, headers={"own": b"1"})
            assert not h.dead

    asyncio.run(story())
    assert seen == [
        ("billing.in.v1", {"id": "a"}, None, b"1"),
        ("billing.avro.v1", {"n": 1}, None, b"1"),
        ("billing.binary.v1", {"n": 1}, "first", b"1"),
        ("billing.structured.v1", {"n": 1}, "second", b"1"),
    ]


def test_an_event_of_the_sdk_is_sent_with_its_own_attributes() -> None:
    written = prepared(DeclaredSchemas({"t": CloudEvents("/billing", "invoice.sent")}), None)
    value, headers = written.encode("t", CloudEvent({**ATTRIBUTES, "source": "/other"}, {"id": "a"}), (("own", b"1"),))
    found = json.loads(value or b"")
    assert {name: found[name] for name in ATTRIBUTES} == {**ATTRIBUTES, "source": "/other"}
    assert found["data"] == {"id": "a"}
    assert headers == (("own", b"1"), ("content-type", b"application/cloudevents+json"))


def test_half_of_the_attributes_is_refused() -> None:
    with pytest.raises(ConfigError, match="need both"):
        CloudEvents(source="/billing")


def test_data_that_does_not_fit_its_schema_is_not_sent() -> None:
    schema = JsonSchema({"type": "object", "required": ["id"]}, registry=False)
    written = prepared(DeclaredSchemas({"t": CloudEvents("/billing", "invoice.sent", data=schema)}), None)
    with pytest.raises(ValueError, match="does not fit its cloudevents schema"):
        written.encode("t", {}, ())
