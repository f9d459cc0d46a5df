"""`keepfast asyncapi`: the AsyncAPI 3 document of an app, as JSON."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from keepfast.app import App
from keepfast.app.assembly import decoding_of
from keepfast.app.options import Consumer
from keepfast.cli.app_loader import load_app
from keepfast.cli.errors import report_errors
from keepfast.core.names import expand
from keepfast.core.schemas import AnySchema, CloudEvents, Protobuf
from keepfast.decode.annotation import element_of, members_of
from keepfast.decode.choice import Decoding
from keepfast.decode.fields import holds_pydantic
from keepfast.decode.schemas import is_message
from keepfast.settings import ConsumerSettings, Settings

VERSION: Final = "3.0.0"
BINDING: Final = {"bindingVersion": "0.5.0"}
SCHEMAS: Final = "#/components/schemas/"
FORMATS: Final = {
    "avro": "application/vnd.apache.avro;version=1.9.0",
    "json": "application/schema+json;version=draft-07",
}
CONTENT: Final = {
    "avro": "application/vnd.apache.avro",
    "protobuf": "application/x-protobuf",
    "json": "application/json",
    "cloudevents": "application/cloudevents+json",
}
_OTHER: Final = re.compile(r"[^a-zA-Z0-9._-]")
_LETTER: Final[Mapping[str, str]] = {
    "original_message": "The value, as it was if it is JSON, else as original_encoding says.",
    "error_type": "The type of the exception.",
    "error_message": "Its message, masked.",
    "error_code": "What kind of failure it was.",
    "error_classification": "retryable or non-retryable.",
    "failed_at": "When the last attempt failed.",
    "original_topic": "Where the record came from.",
    "consumer_group": "The group that did not process it.",
}


@click.command(short_help="Print the AsyncAPI 3 document of an app.")
@click.argument("target", metavar="MODULE:APP")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file instead.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def asyncapi(target: str, output: Path | None, *, debug: bool) -> None:
    """Print the AsyncAPI 3.0 document of an app, as JSON: its topics, what it reads from them and what they hold.

    Types of handlers become schemas; dead-letter and retry topics are channels, too. What handlers send is known for
    topics that are declared with app.schema. It connects to no broker.

    \b
      keepfast asyncapi app:app
      keepfast asyncapi app:app --output asyncapi.json

    Exit codes: 0 printed, 2 the app cannot be loaded or its settings are invalid.
    """
    with report_errors(debug=debug):
        app = load_app(target, cwd=Path.cwd())
        text = json.dumps(document(app, app.settings()), indent=2, ensure_ascii=False)
        if output is None:
            click.echo(text)
        else:
            output.write_text(f"{text}\n", encoding="utf-8")


def document(app: App, settings: Settings) -> dict[str, Any]:
    """The whole document. Raises ConfigError for an annotation that no schema describes."""
    made = _Document()
    for consumer in app.chosen():
        made.add(consumer, settings.consumers[consumer.name], decoding_of(consumer, settings))
    for topic, schema in app.schemas.items():
        made.sends(expand(topic, {"env": settings.app.env}), schema)
    secure = settings.kafka.security_protocol != "PLAINTEXT"
    protocol = "kafka-secure" if secure else "kafka"
    return {
        "asyncapi": VERSION,
        "info": {"title": settings.app.name, "version": settings.app.version or "0.0.0"},
        "defaultContentType": "application/json",
        "servers": {
            f"kafka-{number}": {"host": host, "protocol": protocol}
            for number, host in enumerate(settings.kafka.brokers, start=1)
        },
        "channels": made.channels,
        "operations": made.operations,
        "components": {"messages": made.messages, "schemas": made.schemas},
    }


class _Document:
    """The parts of a document, while consumers are added."""

    def __init__(self) -> None:
        self.channels: dict[str, Any] = {}
        self.operations: dict[str, Any] = {}
        self.messages: dict[str, Any] = {}
        self.schemas: dict[str, Any] = {}

    def add(self, consumer: Consumer, own: ConsumerSettings, decoding: Decoding) -> None:
        shape = consumer.shape
        annotation = element_of(shape.annotation, where=shape.where) if shape.batch else shape.annotation
        for topic in own.topics:
            name = consumer.name if len(own.topics) == 1 else f"{consumer.name}.{topic}"
            message = self._message(topic, decoding.models.get(topic, annotation), decoding.schema_of(topic))
            self._receives(name, consumer, own, topic, message)
            for retry_topic in own.retry_topics.topics(topic, own.group):
                self._operation(f"{name}.to.{retry_topic}", "send", retry_topic, message)
                self._receives(f"{name}.from.{retry_topic}", consumer, own, retry_topic, message)
            letters = own.dead_letter_topics[topic]
            letter = message if own.dead_letter.format == "headers" else self._letter()
            self._operation(f"{name}.dead-letters", "send", letters, letter)
        if own.pattern is not None:
            key = f"{consumer.name}.pattern"
            self.channels[key] = {"address": None, "description": f"Topics whose names match {own.pattern}"}
            self._describe(key, consumer, own, key, self._message(key, annotation, decoding.schema))

    def sends(self, topic: str, schema: AnySchema) -> None:
        """What the app declares to send; a topic that it only reads is there already."""
        if topic not in self.channels:
            self._operation(f"send.{topic}", "send", topic, self._message(topic, dict[str, Any], schema))

    def _receives(self, name: str, consumer: Consumer, own: ConsumerSettings, topic: str, message: str) -> None:
        self._channel(topic, message)
        self._describe(name, consumer, own, topic, message)

    def _describe(self, name: str, consumer: Consumer, own: ConsumerSettings, key: str, message: str) -> None:
        self.channels[key].setdefault("messages", {})[message] = {"$ref": f"#/components/messages/{message}"}
        summary = (inspect.getdoc(consumer.function) or "").partition("\n")[0]
        group = {"groupId": {"type": "string", "enum": [own.group]}, **BINDING}
        made = self._reference("receive", key, message)
        self.operations[_key(name)] = made | ({"summary": summary} if summary else {}) | {"bindings": {"kafka": group}}

    def _operation(self, name: str, action: str, topic: str, message: str) -> None:
        self._channel(topic, message)
        self.operations[_key(name)] = self._reference(action, topic, message)

    def _reference(self, action: str, key: str, message: str) -> dict[str, Any]:
        channel = f"#/channels/{_key(key)}"
        return {
            "action": action,
            "channel": {"$ref": channel},
            "messages": [{"$ref": f"{channel}/messages/{message}"}],
        }

    def _channel(self, topic: str, message: str) -> None:
        found = self.channels.setdefault(
            topic, {"address": topic, "messages": {}, "bindings": {"kafka": {"topic": topic, **BINDING}}}
        )
        found["messages"][message] = {"$ref": f"#/components/messages/{message}"}

    def _message(self, topic: str, annotation: Any, schema: AnySchema | None) -> str:
        """The name of the message of a topic; topics of one type share it."""
        kinds = [member for member in members_of(annotation) if member is not type(None)]
        kind = kinds[0] if len(kinds) == 1 else annotation
        named = len(kinds) == 1 and isinstance(kind, type) and kind.__module__ != "builtins"
        name = _key(kind.__name__ if named and schema is None else topic)
        content = "application/json" if schema is None else CONTENT[schema.format]
        if kind in (bytes, str) and schema is None:
            content = "application/octet-stream" if kind is bytes else "text/plain"
        payload = self._payload(annotation, schema)
        self.messages[name] = {"name": name, "contentType": content} | ({"payload": payload} if payload else {})
        return name

    def _payload(self, annotation: Any, schema: AnySchema | None) -> dict[str, Any] | None:
        text = None if schema is None or isinstance(schema, CloudEvents | Protobuf) else schema.text()
        if schema is not None and text is not None:
            return {"schemaFormat": FORMATS[schema.format], "schema": json.loads(text)}
        if isinstance(schema, Protobuf) or any(is_message(one) for one in members_of(annotation)):
            return None
        return self._schema(annotation)

    def _schema(self, annotation: Any) -> dict[str, Any]:
        if annotation in (bytes, str):
            return {"type": "string"}
        if holds_pydantic(annotation):
            from pydantic import TypeAdapter

            found = TypeAdapter(annotation).json_schema(ref_template=SCHEMAS + "{model}")
            named = found.pop("$defs", {})
        else:
            [found], named = msgspec.json.schema_components([annotation], ref_template=SCHEMAS + "{name}")
        self.schemas |= {_key(name): _with_keys(one) for name, one in named.items()}
        return dict(_with_keys(found))

    def _letter(self) -> str:
        properties = {name: {"description": text} for name, text in _LETTER.items()}
        self.schemas["DeadLetter"] = {"type": "object", "properties": properties, "required": ["original_message"]}
        self.messages["DeadLetter"] = {
            "name": "DeadLetter",
            "contentType": "application/json",
            "payload": {"$ref": f"{SCHEMAS}DeadLetter"},
        }
        return "DeadLetter"


def _key(name: str) -> str:
    """As AsyncAPI allows names of components."""
    return _OTHER.sub("_", name)


def _with_keys(schema: Any) -> Any:
    """The same schema with references to names as they are in the document."""
    if isinstance(schema, Mapping):
        return {
            name: SCHEMAS + _key(part.removeprefix(SCHEMAS)) if name == "$ref" else _with_keys(part)
            for name, part in schema.items()
        }
    return [_with_keys(one) for one in schema] if isinstance(schema, list) else schema
