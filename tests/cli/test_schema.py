"""`keepfast schema`, and what `keepfast check` says about schemas."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from keepfast import App, Avro, Protobuf
from keepfast.app.schemas import prepared
from keepfast.audit import schema_findings
from keepfast.cli import main
from keepfast.cli.dlq_view import reading_of
from keepfast.core.records import Record
from keepfast.core.schemas import DeclaredSchemas, SchemaRef
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.reading import read
from keepfast.deadletters.writing import write
from keepfast.decode.schemas import SchemaSource
from keepfast.desk.letters import SchemaReading
from keepfast.kafka.registry import Registry, RegistryConnection
from tests.support.schema_registry import SchemaRegistryServer, message_class

SUBJECT = "billing.invoice.v1-value"
V1 = {"type": "record", "name": "Invoice", "fields": [{"name": "id", "type": "string"}]}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
V2 = V1 | {"fields": [{"name": "id", "type": "string"}, NOTE]}
APP = """
from dataclasses import dataclass
from keepfast import App, Avro, JsonSchema, Protobuf
from tests.support.schema_registry import message_class

INVOICE = message_class("billing.Invoice", {"id": "string", "cents": "int64"})

@dataclass
class Invoice:
    id: str
    note: %s

app = App("billing")

@app.consumer("billing.invoice.v1", schema=Avro())
def charge(invoice: Invoice) -> None: ...

@app.consumer("billing.other.v1", schema=Avro())
def other(invoice: Invoice) -> None: ...

@app.consumer("billing.json.v1", schema=JsonSchema(), idempotent=True)
def lists(invoices: list[Invoice]) -> None: ...

@app.consumer("billing.proto.v1", schema=Protobuf())
def proto(invoice: INVOICE) -> None: ...
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer(login=("reader", "secret")) as server:
        monkeypatch.setenv("KEEPFAST_REGISTRY_URL", server.url)
        monkeypatch.setenv("KEEPFAST_REGISTRY_USERNAME", "reader")
        monkeypatch.setenv("KEEPFAST_REGISTRY_PASSWORD", "secret")
        server.put(SUBJECT, V1)
        server.put(SUBJECT, V2)
        yield server


def keepfast(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.output


def test_a_version_of_a_subject_is_shown_by_its_topic_or_id(server: SchemaRegistryServer) -> None:
    code, text = keepfast("schema", "show", "billing.invoice.v1")
    assert (code, text.splitlines()[0]) == (0, f"avro {SUBJECT} version 2 (id 2)")
    assert '"name": "note"' in text
    for arguments in ([SUBJECT, "--version", "1"], ["--id", "1"]):
        code, text = keepfast("schema", "show", *arguments, "--json")
        shown = json.loads(text)
        assert (code, shown["id"], shown["version"], json.loads(shown["schema"])) == (0, 1, 1, V1)


def test_what_is_not_there_and_who_may_not_ends_with_code_3(
    server: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = keepfast("schema", "show", "billing.unknown.v1")
    assert (code, "Subject not found" in text) == (3, True)
    assert keepfast("schema", "show")[0] == 2
    monkeypatch.setenv("KEEPFAST_REGISTRY_PASSWORD", "wrong")
    code, text = keepfast("schema", "show", SUBJECT)
    assert (code, "401" in text) == (3, True)
    monkeypatch.delenv("KEEPFAST_REGISTRY_URL")
    code, text = keepfast("schema", "show", SUBJECT)
    assert (code, "--registry" in text) == (2, True)


def test_versions_are_compared_and_files_are_held_against_the_registry(
    server: SchemaRegistryServer, tmp_path: Path
) -> None:
    code, text = keepfast("schema", "diff", "billing.invoice.v1")
    assert code == 0
    assert any(line.startswith("+") and '"note"' in line for line in text.splitlines())
    file = tmp_path / "invoice.avsc"
    file.write_text(json.dumps(V2))
    code, text = keepfast("schema", "diff", SUBJECT, "--file", str(file))
    assert (code, "is the same" in text, "would take it" in text) == (0, True, True)
    file.write_text(json.dumps(V1 | {"fields": [{"name": "id", "type": "long"}]}))
    code, text = keepfast("schema", "diff", SUBJECT, "--file", str(file))
    assert (code, "breaks BACKWARD" in text) == (1, True)


@pytest.mark.parametrize(("annotation", "fits"), [("str | None = None", True), ("str", False), ("int = 0", False)])
def test_check_decodes_examples_of_the_registered_schemas(
    server: SchemaRegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, annotation: str, fits: bool
) -> None:
    note = {"type": ["string", "null"]}
    json_schema = {"type": "object", "properties": {"id": {"type": "string"}, "note": note}, "required": ["id"]}
    server.put("billing.json.v1-value", json_schema, "JSON")
    other = message_class("billing.Invoice", {"id": "string", "cents": "int64" if fits else "string"})
    file = other.DESCRIPTOR.file.serialized_pb
    server.put("billing.proto.v1-value", base64.b64encode(file).decode(), "PROTOBUF")
    name = f"app_{abs(hash(annotation))}"
    (tmp_path / f"{name}.py").write_text(APP % annotation)
    monkeypatch.chdir(tmp_path)
    code, text = keepfast("check", f"{name}:app", "--profile", "loop", "--json")
    found = json.loads(text)
    status = {one["topic"]: one["status"] for one in found["schemas"]}
    wanted = "passed" if fits else "failed"
    assert status == {
        "billing.invoice.v1": wanted,
        "billing.other.v1": "unknown",
        "billing.json.v1": wanted,
        "billing.proto.v1": wanted,
    }
    assert code == int(not fits)
    assert ("schema of billing.invoice.v1" in keepfast("check", f"{name}:app", "--profile", "loop")[1]) is True


REFERS = V1 | {"fields": [{"name": "price", "type": "billing.Money"}]}


@pytest.mark.parametrize(
    ("schema", "kind", "status", "why"),
    [
        (REFERS, "AVRO", "unknown", "it refers to others"),
        ('syntax = "proto3";', "PROTOBUF", "failed", "declared as avro"),
        ("<schema/>", "XML", "unknown", "type XML"),
    ],
)
def test_check_says_what_it_cannot_try(
    server: SchemaRegistryServer, schema: Any, kind: str, status: str, why: str
) -> None:
    references = [{"name": "billing.Money", "subject": "billing.Money", "version": 1}] if schema is REFERS else ()
    server.put("billing.odd.v1-value", schema, kind, references)
    app = App("billing")

    @app.consumer("billing.odd.v1", schema=Avro())
    def odd(value: dict[str, Any]) -> None: ...

    [found] = schema_findings(app, app.settings())
    assert found.status == status
    assert why in found.reason


def test_what_json_cannot_write_is_shown_all_the_same(server: SchemaRegistryServer) -> None:
    number = server.put("odd-value", {"type": "object"}, "JSON")
    ref = SchemaRef(format="json", subject="odd-value", id=number, version=1)
    value = b"\0" + number.to_bytes(4, "big") + b'{"a": "\\ud800"}'
    letter = Letter(topic="odd", partition=0, offset=7, key=None, value=value, headers=(), schema=ref)
    source = SchemaSource(
        Registry(RegistryConnection(url=server.url, username="reader", password="secret")), at_once=True
    )
    assert reading_of(letter, source) == SchemaReading(b'{"a": "?"}', f"read by {ref}")
    source.close()


@pytest.mark.parametrize("form", ["envelope", "nested", "headers"])
def test_a_letter_names_its_schema_and_is_decoded_by_it(server: SchemaRegistryServer, form: str) -> None:
    ref = SchemaRef(format="avro", subject=SUBJECT, id=1, version=1)
    letter = Letter(
        topic="billing.invoice.v1", partition=0, offset=7, key=None, value=b"\0\0\0\0\x01\x02a", headers=(), schema=ref
    )
    value, headers = write(letter, form)  # type: ignore[arg-type] # one of them
    found = read(Record("billing.dlq", 0, 0, None, value, tuple(headers), None))
    assert found.schema == ref
    source = SchemaSource(
        Registry(RegistryConnection(url=server.url, username="reader", password="secret")), at_once=True
    )
    assert reading_of(found, source) == SchemaReading(b'{"id": "a"}', f"read by {found.schema}")
    broken = reading_of(replace(found, value=b"\0\0\0\0\x01"), source)
    assert broken is not None
    assert broken.data is None
    assert "cannot be read by its schema" in broken.why
    source.close()


def test_a_letter_of_protobuf_is_decoded_without_a_generated_class(server: SchemaRegistryServer) -> None:
    """By the schema of the registry, with what it refers to and imports."""
    connection = RegistryConnection(url=server.url, username="reader", password="secret", register=True)
    source = SchemaSource(Registry(connection), at_once=True)
    item = descriptor_pb2.FileDescriptorProto(name="item.proto", package="shop", syntax="proto3")
    item.message_type.add(name="Item").field.add(name="name", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    order = descriptor_pb2.FileDescriptorProto(
        name="order.proto",
        package="shop",
        syntax="proto3",
        dependency=["item.proto", "google/protobuf/timestamp.proto"],
    )
    message = order.message_type.add(name="Order")
    for number, (name, kind) in enumerate((("item", ".shop.Item"), ("at", ".google.protobuf.Timestamp")), start=1):
        message.field.add(name=name, number=number, type="TYPE_MESSAGE", type_name=kind, label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(item)
    pool.Add(order)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    made = kind()
    made.item.name = "a lamp"
    made.at.FromSeconds(0)
    value, headers = prepared(DeclaredSchemas({"shop.order.v1": Protobuf(kind)}), source).encode(
        "shop.order.v1", made, ()
    )
    ref = SchemaRef(format="protobuf", subject="shop.order.v1-value", id=2, version=1)
    letter = Letter(
        topic="shop.order.v1", partition=0, offset=7, key=None, value=value, headers=tuple(headers), schema=ref
    )
    found = reading_of(letter, source)
    assert found is not None
    assert json.loads(found.data or b"") == {"item": {"name": "a lamp"}, "at": "1970-01-01T00:00:00Z"}
    assert value is not None
    broken = reading_of(replace(letter, value=value[:5] + b"\x02\x0e"), source)
    assert broken is not None
    assert (broken.data, "no message of its schema" in broken.why) == (None, True)
    source.close()
