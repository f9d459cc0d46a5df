"""CloudEvents: structured and binary, written by the official SDK."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from cloudevents.core.bindings import kafka
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from keepfast import App, CloudEvents, Context
from keepfast.core.errors import DecodeError
from keepfast.decode.cloudevents import CloudEventDecoder
from keepfast.testing.harness import harness
from tests.support.messages import message


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
