"""Schemas of an app: what is declared where, what the start demands, and what tests of an app see."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from keepfast import App, Avro, BatchContext, ConfigError, Context, JsonSchema, Pattern, Protobuf, Router, StartError
from keepfast.app.schemas import source_of
from keepfast.core.errors import RegistryError, SchemaPending
from keepfast.core.records import TopicPartition
from keepfast.core.schemas import ID_HEADERS, Schema
from keepfast.deadletters.letter import Letter
from keepfast.decode.choice import Decoding
from keepfast.decode.schemas import SchemaSource
from keepfast.kafka.registry import Registry, RegistryConnection
from keepfast.testing.harness import harness
from tests.engine.test_calls_decoders import run_of, walked
from tests.support.messages import message
from tests.support.schema_registry import SchemaRegistryServer, message_class

INVOICE = message_class("billing.Invoice", {"id": "string"})


@dataclass
class Invoice:
    id: str


AVRO = {"type": "record", "name": "Invoice", "fields": [{"name": "id", "type": "string"}]}
JSON = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer(login=("reader", "secret")) as server:
        yield server


def billing(**settings: Any) -> App:
    app = App("billing", kafka={"brokers": "127.0.0.1:1"}, **settings)

    @app.consumer("billing.invoice.v1", schema=Avro())
    def charge(invoice: Invoice) -> None: ...

    return app


def test_credentials_that_the_registry_refuses_end_the_start(server: SchemaRegistryServer) -> None:
    with pytest.raises(StartError, match="401") as refused:
        billing(registry={"url": server.url, "username": "reader", "password": "wrong"}).start()
    assert "registry.password" in str(refused.value)
    assert "wrong" not in str(refused.value)


def test_a_token_is_asked_for_and_sent_to_the_registry(server: SchemaRegistryServer) -> None:
    server.token = "issued"
    connection = {"url": server.url, "oauth_token_url": f"{server.url}/token", "oauth_client_id": "reader"}
    for secret, answers in (("secret", True), ("wrong", False)):
        settings = billing(registry={**connection, "oauth_client_secret": secret}).settings(environ={})
        source = source_of(settings.registry)
        if answers:
            source.registry.check()
            assert server.requests == ["POST /token", "GET /schemas/types"]
        else:
            with pytest.raises(RegistryError) as refused:
                source.registry.check()
            assert "wrong" not in str(refused.value)
        source.close()
    with pytest.raises(ConfigError, match=r"needs registry\.oauth_client_id and registry\.oauth_client_secret"):
        billing(registry=connection).start()


def test_a_schema_that_is_sent_and_not_registered_ends_the_start(server: SchemaRegistryServer) -> None:
    app = billing(registry={"url": server.url, "username": "reader", "password": "secret"})
    app.schema("billing.charged.v1", Avro(AVRO))
    with pytest.raises(StartError, match=r"registry\.register = true"):
        app.start()


def test_the_start_waits_for_a_registry_that_is_down_and_gives_up(
    server: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keepfast.app.schemas.CONNECT_TIMEOUT_S", 0.1)
    monkeypatch.setattr("keepfast.app.schemas.PAUSE_S", 0.05)
    server.down()
    with pytest.raises(StartError, match="does not answer"):
        billing(registry=server.url).start()


def test_a_registry_must_be_named_without_a_password() -> None:
    with pytest.raises(ConfigError, match=r"set registry\.url"):
        billing().start()
    with pytest.raises(ConfigError, match="must not hold a password") as refused:
        billing(registry="https://reader:hunter2@registry").start()
    assert "hunter2" not in str(refused.value)


def test_a_schema_beside_a_decoder_or_types_is_refused() -> None:
    for options in ({"decoder": bytes.decode}, {"types": {"a": Invoice}}):
        app = App("billing", registry="mock://refused")
        app.consumer("billing.invoice.v1", schema=Avro(), **options)(_take)
        with pytest.raises(ConfigError, match="have no effect"):
            app.start()
    app = App("billing")
    app.schema("billing.invoice.v1", Avro())
    with pytest.raises(ConfigError, match="two schemas"):
        app.schema("billing.invoice.v1", Avro())


def _take(invoice: Invoice) -> None: ...


def test_tests_of_an_app_send_and_see_values_of_every_format() -> None:
    app, router, seen = App("billing", registry="http://127.0.0.1:1"), Router(), list[tuple[str, Any]]()
    app.schema("billing.avro.v1", Avro(AVRO))
    app.schema("billing.out.v1", Avro(AVRO))
    app.schema("billing.file.v1", Avro(AVRO))  # the router's own goes before
    topics = {"billing.json.v1": JsonSchema(JSON), "billing.file.v1": JsonSchema(JSON, registry=False)}

    @app.consumer("billing.avro.v1")
    def avro(invoice: Invoice, ctx: Context) -> None:
        seen.append(("avro", invoice))
        ctx.send("billing.out.v1", invoice)
        app.send("billing.out.v1", {"id": "of the app"})

    @router.consumer(*topics, "billing.plain.v1", schema=topics)
    def others(invoice: Invoice | None, ctx: Context) -> None:
        seen.append((ctx.topic, invoice))

    @router.consumer("billing.proto.v1", schema=Protobuf(), idempotent=True)
    async def proto(invoices: list[INVOICE]) -> None:  # type: ignore[valid-type] # made at run time
        seen.extend(("proto", invoice) for invoice in invoices)

    @app.consumer("billing.out.v1", name="raw")
    def raw(value: bytes) -> None:
        seen.append(("raw", value[5:]))

    app.include(router)

    async def story() -> Letter:
        async with harness(app) as h:
            for topic in ("billing.avro.v1", *topics, "billing.plain.v1"):
                await h.send(topic, {"id": "a"})
            await h.send("billing.file.v1", None)
            await h.send("billing.proto.v1", INVOICE(id="a"))
            with pytest.raises(ValueError, match="does not fit its avro schema"):
                await h.send("billing.avro.v1", {"id": 5})
            await h.send("billing.json.v1", b"\0\0\0\0\x63{}")
            return h.dead[0]

    letter = asyncio.run(story())
    assert letter.error_code == "SCHEMA_UNKNOWN"
    assert letter.schema is not None
    assert (letter.schema.id, letter.schema.subject) == (99, "billing.json.v1-value")
    assert seen == [
        ("avro", Invoice("a")),
        ("raw", b"\x02a"),
        ("raw", b"\x14of the app"),
        *((topic, Invoice("a")) for topic in (*topics, "billing.plain.v1")),
        ("billing.file.v1", None),
        ("proto", INVOICE(id="a")),
    ]


def test_a_topic_that_a_pattern_finds_has_the_schema_that_the_app_declares() -> None:
    app, seen = App("billing"), list[Any]()
    app.schema("audit.login.v1", Avro(AVRO), key=Avro('"string"'))

    @app.consumer(Pattern(r"audit\..*"))
    def audit(entry: Invoice, ctx: Context) -> None:
        seen.append((ctx.topic, entry.id, ctx.decoded_key))

    async def story() -> None:
        async with harness(app) as h:
            await h.send("audit.login.v1", {"id": "a"}, key="b")
            await h.send("audit.other.v1", {"id": "c"}, key="d")
            assert not h.dead

    asyncio.run(story())
    assert seen == [("audit.login.v1", "a", "b"), ("audit.other.v1", "c", b"d")]


KEYS: list[tuple[Schema, Any, Any]] = [
    (Avro('"string"'), "a", "a"),
    (Avro(AVRO), Invoice("a"), {"id": "a"}),
    (JsonSchema(JSON), {"id": "a"}, {"id": "a"}),
    (Protobuf(INVOICE), INVOICE(id="a"), INVOICE(id="a")),
]


@pytest.mark.parametrize("ids", ["value", "header"])
@pytest.mark.parametrize(("schema", "key", "expected"), KEYS)
def test_keys_are_sent_and_read_in_a_schema_of_their_own(schema: Schema, key: Any, expected: Any, ids: str) -> None:
    app, seen = App("billing"), list[Any]()
    app.schema("billing.in.v1", Avro(AVRO), key=schema)
    app.schema("billing.out.v1", key=schema)

    @app.consumer("billing.in.v1")
    def first(invoice: Invoice, ctx: Context) -> None:
        seen.append((invoice, ctx.decoded_key, type(ctx.key)))
        ctx.send("billing.out.v1", {"id": invoice.id}, key=ctx.decoded_key)
        app.send("billing.out.v1", b"{}", key=key)

    @app.consumer("billing.out.v1", idempotent=True)
    def second(values: list[dict[str, Any]], ctx: BatchContext) -> None:
        seen.extend((value, one.decoded_key) for value, one in zip(values, ctx, strict=True))

    async def story() -> None:
        async with harness(app, environ={"KEEPFAST_REGISTRY_IDS": ids}) as h:
            sent = await h.send("billing.in.v1", {"id": "a"}, key=key)
            assert {name for name, _ in sent.headers} == ({*ID_HEADERS.values()} if ids == "header" else set())
            assert not h.dead

    asyncio.run(story())
    assert seen[0] == (Invoice("a"), expected, bytes)
    assert sorted(seen[1:], key=lambda one: len(one[0])) == [({}, expected), ({"id": "a"}, expected)]


def test_a_key_that_cannot_be_decoded_concerns_those_who_ask_for_it() -> None:
    app, seen = App("billing"), list[Any]()
    app.schema("billing.in.v1", key=Avro('"string"'))

    @app.consumer("billing.in.v1", group="asks")
    def asks(value: dict[str, Any], ctx: Context) -> None:
        seen.append(("asks", value["n"], ctx.decoded_key))

    @app.consumer("billing.in.v1", group="others")
    def others(value: dict[str, Any], ctx: Context) -> None:
        seen.append(("others", value["n"], ctx.key))

    async def story() -> list[Letter]:
        async with harness(app) as h:
            for number, key in enumerate((b"plain", b"\0\0\0\0\x63\x02a", None)):
                await h.send("billing.in.v1", {"n": number}, key=key)
            with pytest.raises(
                ValueError, match=r"a key that was sent to billing\.in\.v1 does not fit its avro schema"
            ):
                await h.send("billing.in.v1", {}, key={"no": "string"})
            return list(h.dead)

    letters = asyncio.run(story())
    assert [one.error_code for one in letters] == ["SCHEMA_ID_MISSING", "SCHEMA_UNKNOWN"]
    assert all("its key cannot be decoded" in (one.error_message or "") for one in letters)
    assert [one for one in seen if one[0] == "asks"] == [("asks", 2, None)]
    assert [one[1] for one in seen if one[0] == "others"] == [0, 1, 2]


@pytest.mark.parametrize("batch", [False, True])
def test_a_record_waits_for_the_schema_of_its_key_before_its_handler_begins(batch: bool) -> None:
    called: list[Any] = []

    def one(value: bytes, ctx: Context) -> None:
        called.append(value)

    def several(values: list[bytes], ctx: BatchContext) -> None:
        called.extend(values)

    with SchemaRegistryServer() as server:
        server.put("t-key", "string")
        server.status = 503
        source = SchemaSource(Registry(RegistryConnection(url=server.url)))
        decoding = Decoding(topics=("t",), keys={"t": Avro()}, source=source)
        record = message(0, b"\0\0\0\0\x01\x02a", place=TopicPartition("t", 0), value=b"v")
        run = walked(several if batch else one, run_of(record), decoding=decoding)
        source.close()
    assert isinstance(run.failure, SchemaPending)
    assert not called


def test_a_topic_has_its_schemas_once() -> None:
    app = App("billing")
    app.schema("a.v1", key=Avro())
    with pytest.raises(ConfigError, match="two schemas"):
        app.schema("a.v1", Avro())
    with pytest.raises(ConfigError, match="key=Avro"):
        app.schema("b.v1")
