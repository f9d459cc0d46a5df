"""Whether what handlers take fits the schemas that are registered: examples of the latest version of each subject are
decoded as records are.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

from keepfast.app import App
from keepfast.app.assembly import decoding_of
from keepfast.app.options import Consumer
from keepfast.app.schemas import source_of
from keepfast.core.errors import ConfigError, DecodeError, Discard, Fault, RegistryError
from keepfast.core.schemas import AnySchema, Avro, CloudEvents, JsonSchema, Protobuf, Schema
from keepfast.decode.annotation import element_of, members_of, takes_bytes
from keepfast.decode.choice import Decoding
from keepfast.decode.protobuf import is_message
from keepfast.decode.sample import avro_examples, json_examples
from keepfast.decode.schemas import SchemaDecoder, SchemaSource
from keepfast.settings import Settings

if TYPE_CHECKING:
    from keepfast.kafka.registry import Registered


@dataclass(frozen=True, slots=True)
class SchemaFinding:
    """What was found about one topic of one consumer."""

    consumer: str
    topic: str
    status: Literal["passed", "failed", "unknown"]
    reason: str


def schema_findings(app: App, settings: Settings) -> list[SchemaFinding]:
    """For each topic that has a schema of a registry. Asks the registry. Raises ConfigError."""
    consumers = [(one, decoding_of(one, settings)) for one in app.chosen()]
    if not any(decoding.needs_registry for _, decoding in consumers):
        return []
    source = source_of(settings.registry, at_once=True)
    try:
        return [
            _examined(consumer, decoding, topic, schema, source)
            for consumer, decoding in consumers
            for topic in decoding.topics
            if isinstance(schema := _of_values(decoding.schema_of(topic)), Avro | Protobuf | JsonSchema)
            and schema.registry
        ]
    finally:
        source.close()


def _of_values(schema: AnySchema | None) -> AnySchema | None:
    """That of the data, if a topic has events."""
    return schema.data if isinstance(schema, CloudEvents) else schema


def _examined(
    consumer: Consumer, decoding: Decoding, topic: str, schema: Schema, source: SchemaSource
) -> SchemaFinding:
    shape = consumer.shape
    annotation = element_of(shape.annotation, where=shape.where) if shape.batch else shape.annotation
    try:
        found = source.registry.latest(topic, schema.format)
        if takes_bytes(annotation):
            return SchemaFinding(consumer.name, topic, "passed", f"It takes the bytes of {found.ref} as they are.")
        kind = decoding.models.get(topic, annotation)
        if found.ref.format != schema.format:
            problem = f"the topic is declared as {schema.format}"
        elif isinstance(schema, Protobuf):
            problem = _differs(found, kind, schema)
        else:
            problem = _not_decoded(found, SchemaDecoder(topic, schema, kind, source=source))
    except _NoExample as error:
        return SchemaFinding(consumer.name, topic, "unknown", str(error))
    except RegistryError as error:
        missing = error.fault is Fault.MISSING
        return SchemaFinding(
            consumer.name, topic, "unknown", "Nothing is registered yet." if missing and error.code else str(error)
        )
    except ConfigError as error:
        return SchemaFinding(consumer.name, topic, "failed", str(error))
    if problem:
        return SchemaFinding(
            consumer.name, topic, "failed", f"Records of {found.ref} do not fit the handler: {problem}"
        )
    return SchemaFinding(consumer.name, topic, "passed", f"Examples of {found.ref} fit the handler.")


def _not_decoded(found: Registered, decode: SchemaDecoder) -> str:
    frame = b"\0" + (found.ref.id or 0).to_bytes(4, "big")
    for data in _examples(found):
        try:
            decode.read(frame + data, ())
        except (DecodeError, Discard) as error:
            return str(error)
    return ""


class _NoExample(Exception):
    """Nothing can be tried."""


def _examples(found: Registered) -> list[bytes]:
    """Raises _NoExample."""
    try:
        schema = json.loads(found.text)
        if found.ref.format == "json":
            return [json.dumps(one).encode() for one in json_examples(schema)]
        return [_in_avro(one, schema) for one in avro_examples(schema)]
    except Exception as error:  # whatever is in a schema, and whatever it refers to
        why = "it refers to others" if found.references else type(error).__name__
        raise _NoExample(f"No example of {found.ref} could be made: {why}.") from error


def _in_avro(value: Any, schema: Any) -> bytes:
    from fastavro import parse_schema, schemaless_writer

    stream = BytesIO()
    schemaless_writer(stream, parse_schema(schema), value)
    return stream.getvalue()


def _differs(found: Registered, annotation: Any, schema: Protobuf) -> str:
    """Fields of the class whose number has another name or type in the registered schema."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(found.text))
    messages: list[Any] = [one for one in (*members_of(annotation), schema.message) if is_message(one)]
    if not messages:
        return "annotate the generated class, or name it: Protobuf(Invoice)"
    by_name = {one.name: one for one in file.message_type}
    message = next((one for one in messages if one.DESCRIPTOR.name in by_name), None)
    if message is None:
        return f"it has no message {' or '.join(one.DESCRIPTOR.name for one in messages)}"
    registered = by_name[message.DESCRIPTOR.name]
    known = {one.number: (one.name, one.type) for one in registered.field}
    for field in message.DESCRIPTOR.fields:
        name, kind = known.get(field.number, (field.name, field.type))
        if (name, kind) != (field.name, field.type):
            return f"field {field.number} is `{name}` of another type or name than `{field.name}` of the class"
    return ""
