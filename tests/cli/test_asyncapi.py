"""`keepfast asyncapi`: the document of every example, and of an app with everything in it."""

from __future__ import annotations

import copy
import fcntl
import importlib
import json
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc_tools
import pytest
from click.testing import CliRunner
from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2
from grpc_tools import protoc
from jsonschema.validators import validator_for
from pydantic import BaseModel, create_model

from keepfast import App, Avro, CloudEvents, JsonSchema, Pattern, Protobuf
from keepfast.cli import main
from keepfast.cli.asyncapi import document
from keepfast.decode.protobuf import proto_text
from keepfast.testing.jars import cache_dir
from tests.support.schema_registry import message_class

SPECS = "6.11.1"
"""Of the npm package `@asyncapi/specs`, which has the official JSON Schemas; no package for Python ships them."""
EXAMPLES = ("card_fraud", "deals_escrow", "invoices", "swapi_people", "worker_loop")
NOWHERE = Path("/nonexistent")
INVOICE = message_class("billing.Invoice", {"id": "string"})
AVRO = {"type": "record", "name": "Invoice", "fields": [{"name": "id", "type": "string"}]}
T = TypeVar("T")


@dataclass
class Line:
    cents: int


@dataclass
class Invoice:
    id: str
    lines: list[Line]


@dataclass
class Page(Generic[T]):
    items: list[T]


class Model(BaseModel):
    id: str
    parent: Model | None = None


def everything() -> App:
    app = App("billing", registry="mock://asyncapi", kafka={"brokers": "a:9092,b:9092"}, app={"version": "1.2.3"})
    app.schema("billing.sent.v1", Avro(AVRO))

    def add(*topics: Any, kind: Any, name: str, **options: Any) -> None:
        def handle(value: Any) -> None:
            """Handles it.

            With care.
            """

        handle.__annotations__["value"] = kind
        handle.__name__ = name
        app.consumer(*topics, name=name, **options)(handle)

    add("billing.invoice.v1", kind=Invoice | None, name="plain", order="none", retry_topics="5s,1m")
    add("a.v1", "b.v1", kind=list[Model], name="several", idempotent=True)
    add("billing.page.v1", kind=Page[Line], name="generic", dead_letter={"format": "headers"})
    add({"t.v1": Invoice, "u.v1": Line}, kind=Invoice | Line, name="models")
    add(Pattern(r"audit\..*"), kind=dict[str, Any], name="pattern")
    add("raw.v1", kind=bytes, name="raw")
    add("avro.v1", kind=Invoice, name="avro", schema=Avro(AVRO))
    add("json.v1", kind=Line, name="json", schema=JsonSchema({"type": "object"}, registry=False))
    add("proto.v1", kind=INVOICE, name="proto", schema=Protobuf())
    add("events.v1", kind=Line, name="events", schema=CloudEvents())
    return app


def documents() -> dict[str, dict[str, Any]]:
    found = {"everything": document(everything(), everything().settings(environ={}, cwd=NOWHERE))}
    for name in EXAMPLES:
        app = importlib.import_module(f"examples.{name}.service").app
        found[name] = document(app, app.settings(environ={}, cwd=NOWHERE))
    runner = importlib.import_module("examples.swapi_people.consumer").runner
    found["a runner"] = document(runner, runner.settings(environ={}, cwd=NOWHERE))
    return found


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(node, list):
        for one in node:
            yield from references(one)


def resolved(whole: Any, reference: str) -> Any:
    for part in reference.removeprefix("#/").split("/"):
        whole = whole[part]
    return whole


def test_a_message_of_protobuf_is_in_it_as_text() -> None:
    payload = documents()["everything"]["components"]["messages"]["proto.v1"]["payload"]
    assert payload["schemaFormat"] == "application/vnd.google.protobuf;version=3"
    assert payload["schema"].splitlines() == [
        'syntax = "proto3";',
        "package billing;",
        "message Invoice {",
        "  string id = 1;",
        "}",
    ]


@pytest.mark.parametrize("kind", [struct_pb2.Value, struct_pb2.Struct, descriptor_pb2.FieldDescriptorProto])
def test_the_text_of_protobuf_is_read_by_its_compiler(kind: Any, tmp_path: Path) -> None:
    """With choices, maps, lists, enums, messages in messages, in both versions of the language."""
    text = proto_text(kind).replace("package google.protobuf;", "package copied;")
    (tmp_path / "copied.proto").write_text(text.replace(".google.protobuf.", ".copied."))
    folder = Path(grpc_tools.__file__).parent / "_proto"
    out = tmp_path / "out"
    arguments = ["protoc", f"-I{tmp_path}", f"-I{folder}", f"--descriptor_set_out={out}", "copied.proto"]
    assert protoc.main(arguments) == 0
    compiled = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(compiled)
    found = pool.FindMessageTypeByName(f"copied.{kind.DESCRIPTOR.name}")
    assert [(one.name, one.number, one.type) for one in found.fields] == [
        (one.name, one.number, one.type) for one in kind.DESCRIPTOR.fields
    ]


def test_every_reference_leads_somewhere() -> None:
    for found in documents().values():
        for reference in references(found):
            assert resolved(found, reference) is not None
        assert found["channels"]
        assert found["operations"]


def test_topics_types_letters_and_retry_topics_are_in_it() -> None:
    found = documents()["everything"]
    assert found["info"] == {"title": "billing", "version": "1.2.3"}
    assert [one["host"] for one in found["servers"].values()] == ["a:9092", "b:9092"]
    channels, operations = found["channels"], found["operations"]
    assert {"billing.invoice.v1", "billing.invoice.v1.billing.plain.retry.5s", "billing.invoice.dlq"} <= set(channels)
    plain = operations["plain"]
    assert (plain["action"], plain["summary"]) == ("receive", "Handles it.")
    assert plain["bindings"]["kafka"]["groupId"]["enum"] == ["billing.plain"]
    assert operations["plain.dead-letters"]["action"] == "send"
    assert operations["send.billing.sent.v1"]["action"] == "send"
    assert set(found["components"]["schemas"]) >= {"Invoice", "Line", "Model", "DeadLetter"}
    messages = found["components"]["messages"]
    assert messages["avro.v1"]["payload"]["schema"] == AVRO
    assert messages["raw.v1"]["contentType"] == "application/octet-stream"
    assert channels["pattern.pattern"]["address"] is None


def test_types_of_one_name_are_not_mixed_up() -> None:
    app = App("billing")
    kinds = {
        topic: make_dataclass("Invoice", [("line", make_dataclass("Line", [(field, str)]))])
        for topic, field in (("a.v1", "id"), ("b.v1", "total"))
    }
    kinds |= {"c.v1": create_model("Invoice", note=(str, ...)), "d.v1": make_dataclass("DeadLetter", [("of", str)])}
    for topic, kind in kinds.items():

        def handle(value: Any) -> None: ...

        handle.__annotations__["value"] = kind
        app.consumer(topic, name=topic[0])(handle)
    found = document(app, app.settings(environ={}))
    fields: list[list[str]] = []
    for name in "abcd":
        [message] = found["operations"][name]["messages"]
        payload = resolved(found, message["$ref"])
        while "$ref" in payload or "payload" in payload or "line" in payload.get("properties", {}):
            inner = payload.get("properties", {}).get("line") or payload.get("payload") or payload
            payload = resolved(found, inner["$ref"]) if "$ref" in inner else inner
        fields.append(list(payload["properties"]))
    assert fields == [["id"], ["total"], ["note"], ["of"]]


def test_the_command_prints_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    result = CliRunner().invoke(main, ["asyncapi", "examples.invoices.service:app"])
    assert (result.exit_code, json.loads(result.output)["asyncapi"]) == (0, "3.0.0")
    file = tmp_path / "asyncapi.json"
    assert CliRunner().invoke(main, ["asyncapi", "examples.invoices.service:app", "--output", str(file)]).exit_code == 0
    assert json.loads(file.read_text()) == json.loads(result.output)


@pytest.fixture(scope="session")
def official() -> Any:
    """The official JSON Schema, fetched once into the cache of the tests."""
    folder = cache_dir() / f"asyncapi-specs-{SPECS}"
    file = folder / "package" / "schemas" / "3.0.0.json"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            subprocess.run(["npm", "pack", f"@asyncapi/specs@{SPECS}"], cwd=folder, check=True, capture_output=True)
            with tarfile.open(folder / f"asyncapi-specs-{SPECS}.tgz") as archive:
                archive.extractall(folder, filter="data")
    schema = json.loads(file.read_text())
    return validator_for(schema)(schema)


@pytest.mark.npm
def test_every_document_is_valid_by_the_official_schema(official: Any) -> None:
    for name, found in documents().items():
        problems = [f"{name} {list(one.absolute_path)}: {one.message[:200]}" for one in official.iter_errors(found)]
        assert problems == []
        broken = copy.deepcopy(found)
        next(iter(broken["operations"].values()))["action"] = "consume"
        assert not official.is_valid(broken)
