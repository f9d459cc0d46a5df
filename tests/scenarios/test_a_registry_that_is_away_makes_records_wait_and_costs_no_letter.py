"""Avro, Protobuf and JSON Schema at once, each with a schema that evolves in the middle of the run while the registry
is away: every record waits, none is dead-lettered, none is processed twice, and no schema is asked for twice.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from keepfast import App, Avro, BatchPolicy, Context, JsonSchema, Protobuf
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.schema_registry import SchemaRegistryServer, message_class
from tests.support.waiting import happens, wait_until

Write = Callable[[int], bytes]
COUNT = 200


@dataclass
class Invoice:
    id: int
    note: str = ""


def avro(*more: dict[str, Any]) -> dict[str, Any]:
    fields = [{"name": "id", "type": "long"}, *more]
    return {"type": "record", "name": "Invoice", "namespace": "billing", "fields": fields}


NOTE = {"name": "note", "type": "string", "default": ""}
V1_JSON = {"type": "object", "title": "Invoice", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
V2_JSON = V1_JSON | {"properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}
INVOICE = message_class("billing.Invoice", {"id": "int64"})
INVOICE_2 = message_class("billing.Invoice", {"id": "int64", "note": "string"})


@contextmanager
def writers(registry: SchemaRegistryServer, topics: dict[str, str]) -> Iterator[dict[str, tuple[Write, Write]]]:
    """For each format: what writes a value with the first schema, and with the second, which is registered by this."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    registry.login, login = None, registry.login
    client = SchemaRegistryClient({"url": registry.url})
    serializers: dict[str, tuple[Any, Any]] = {
        "avro": (AvroSerializer(client, json.dumps(avro())), AvroSerializer(client, json.dumps(avro(NOTE)))),
        "json": (JSONSerializer(json.dumps(V1_JSON), client), JSONSerializer(json.dumps(V2_JSON), client)),
        "protobuf": (ProtobufSerializer(INVOICE, client), ProtobufSerializer(INVOICE_2, client)),
    }

    def write(serializer: Any, topic: str, content: dict[str, Any], kind: Any) -> bytes:
        value = content if kind is None else kind(**content)
        return bytes(serializer(value, SerializationContext(topic, MessageField.VALUE)))

    made: dict[str, tuple[Write, Write]] = {}
    for form, (first, second) in serializers.items():
        classes = (INVOICE, INVOICE_2) if form == "protobuf" else (None, None)

        def old(number: int, form: str = form, first: Any = first, kind: Any = classes[0]) -> bytes:
            return write(first, topics[form], {"id": number}, kind)

        def new(number: int, form: str = form, second: Any = second, kind: Any = classes[1]) -> bytes:
            return write(second, topics[form], {"id": number, "note": "new"}, kind)

        old(0), new(0)  # registers them
        made[form] = (old, new)
    registry.login = login
    try:
        yield made
    finally:
        client.close()


@pytest.mark.parametrize("away_s", [1.5, pytest.param(10.0, marks=pytest.mark.long)])
def test_records_of_three_formats_wait_for_the_registry(kafka: TopicAdmin, topic: TopicFactory, away_s: float) -> None:
    topics, client = {form: topic() for form in ("avro", "json", "protobuf")}, Client(kafka)
    seen: Counter[tuple[str, int, str]] = Counter()
    with SchemaRegistryServer(login=("reader", "secret")) as registry, writers(registry, topics) as write:
        before = len(registry.requests)
        app = App(
            "schemas",
            kafka={"brokers": kafka.bootstrap},
            registry={"url": registry.url, "username": "reader", "password": "secret", "timeout_s": 1.0},
        )

        @app.middleware
        def wraps() -> Iterator[None]:
            try:
                yield
            except Exception as error:  # what does not count as an attempt must not come here
                raise RuntimeError("wrapped") from error

        @app.consumer(topics["avro"], schema=Avro(avro(NOTE)), dead_letter="{topic}.dlq")
        def of_avro(invoice: Invoice) -> None:
            seen["avro", invoice.id, invoice.note] += 1

        @app.consumer(topics["json"], schema=JsonSchema(), dead_letter="{topic}.dlq")
        async def of_json(invoice: Invoice, ctx: Context) -> None:
            seen["json", invoice.id, invoice.note] += ctx.attempt

        options: dict[str, Any] = {"batch": BatchPolicy(size=20, wait_s=0.02), "idempotent": True}

        @app.consumer(topics["protobuf"], schema=Protobuf(INVOICE_2), dead_letter="{topic}.dlq", **options)
        def of_protobuf(invoices: list[Invoice]) -> None:
            seen.update(("protobuf", invoice.id, invoice.note) for invoice in invoices)

        def produce(number: int, *, new: bool) -> None:
            for form, name in topics.items():
                client.produce(name, [NewRecord(write[form][new](n)) for n in range(number, number + COUNT)])

        def held() -> list[list[str]]:
            return [list(one.holds) for one in app.health().consumers.values()]

        with app:
            produce(0, new=False)
            wait_until(lambda: len(seen) == 3 * COUNT, "the records with the first schemas are processed")
            with registry.away():
                begun = time.monotonic()
                produce(COUNT, new=True)
                produce(2 * COUNT, new=False)  # these wait behind them
                wait_until(lambda: held() == [["registry"]] * 3, "every consumer waits for the registry")
                assert not happens(lambda: len(seen) > 3 * COUNT, within_s=away_s - (time.monotonic() - begun))
                if away_s > 5:
                    assert any(reason.code == "registry_away" for reason in app.health().reasons)
            wait_until(lambda: len(seen) == 9 * COUNT, "all are processed when it is back")
            wait_until(
                lambda: all(client.is_committed(f"schemas.of_{form}", topics[form], 3 * COUNT) for form in topics),
                "all are committed",
            )
            wait_until(lambda: not any(held()), "no consumer is held any more")
            asked = Counter(request for request in registry.requests[before:] if "/schemas/ids/" in request)
    assert set(seen.values()) == {1}  # each once, in its first attempt
    assert {note for _, number, note in seen if COUNT <= number < 2 * COUNT} == {"new"}
    assert len(asked) == 12  # two ids of each format, and the subjects of each
    assert set(asked.values()) == {1}
    assert [client.edges(f"{name}.dlq") for name in topics.values()] == [(0, 0)] * 3
