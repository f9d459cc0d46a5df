"""`keepfast asyncapi`: the AsyncAPI 3 document of an app, as JSON."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from keepfast.app import App
from keepfast.app.assembly import decoding_of
from keepfast.app.options import Consumer
from keepfast.cli.app_loader import load_app_or_runner
from keepfast.cli.errors import report_errors
from keepfast.core.names import expand
from keepfast.core.schemas import AnySchema, CloudEvents, Protobuf
from keepfast.decode.annotation import element_of, members_of
from keepfast.decode.choice import Decoding
from keepfast.decode.fields import holds_pydantic
from keepfast.decode.protobuf import is_message, proto_text
from keepfast.runner import KafkaConsumerRunner
from keepfast.settings import ConsumerSettings, Settings

VERSION: Final = "3.0.0"
BINDING: Final = {"bindingVersion": "0.5.0"}
SCHEMAS: Final = "#/components/schemas/"
FORMATS: Final = {
    "avro": "application/vnd.apache.avro;version=1.9.0",
    "json": "application/schema+json;version=draft-07",
    "protobuf": "application/vnd.google.protobuf;version=3",
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
    topics that are declared with app.schema. It connects to no broker. Of a KafkaConsumerRunner, consumer_factory is
    called, and the schema is that of the class whose method message_factory is.

    \b
      keepfast asyncapi app:app
      keepfast asyncapi app:app --output asyncapi.json

    Exit codes: 0 printed, 2 the app cannot be loaded or its settings are invalid.
    """
    with report_errors(debug=debug):
        app = load_app_or_runner(target, cwd=Path.cwd())
        text = json.dumps(document(app, app.settings()), indent=2, ensure_ascii=False)
        if output is None:
            click.echo(text)
        else:
            output.write_text(f"{text}\n", encoding="utf-8")


def document(app: App | KafkaConsumerRunner, settings: Settings) -> dict[str, Any]:
    """The whole document. Raises ConfigError for an annotation that no schema describes."""
    made = _Document()
    if isinstance(app, App):
        for consumer in app.chosen():
            made.add(_handler(consumer, settings), settings.consumers[consumer.name])
        for topic, schema in app.schemas.values.items():
            made.sends(expand(topic, {"env": settings.app.env}), schema)
    else:
        made.add(_handler_of_runner(app), settings.consumers[app.blueprint.name])
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


class _Handler(NamedTuple):
    """What takes the records of a consumer; `letters` is False if a hook of the user's writes them."""

    name: str
    function: object
    annotation: Any
    decoding: Decoding | None = None
    letters: bool = True

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    def message(self, topic: str) -> tuple[Any, AnySchema | None]:
        """The type and the schema of a topic's values."""
        if self.decoding is None:
            return self.annotation, None
        return self.decoding.models.get(topic, self.annotation), self.decoding.schema_of(topic)


def _handler(consumer: Consumer, settings: Settings) -> _Handler:
    shape = consumer.shape
    annotation = element_of(shape.annotation, where=shape.where) if shape.batch else shape.annotation
    return _Handler(consumer.name, consumer.function, annotation, decoding_of(consumer, settings))


def _handler_of_runner(runner: KafkaConsumerRunner) -> _Handler:
    made_by = getattr(runner.blueprint.message_factory, "__self__", None)
    annotation = made_by if isinstance(made_by, type) else dict[str, Any]
    letters = "dlq_publisher" not in runner.hooks
    return _Handler(runner.blueprint.name, runner.blueprint.process_message, annotation, letters=letters)


class _Document:
    """The parts of a document, while consumers are added."""

    def __init__(self) -> None:
        self.channels: dict[str, Any] = {}
        self.operations: dict[str, Any] = {}
        self.messages: dict[str, Any] = {}
        self.schemas: dict[str, Any] = {}

    def add(self, handler: _Handler, own: ConsumerSettings) -> None:
        for topic in own.topics:
            name = handler.name if len(own.topics) == 1 else f"{handler.name}.{topic}"
            message = self._message(topic, *handler.message(topic))
            self._receives(name, handler, own, topic, message)
            for retry_topic in own.retry_topics.topics(topic, own.group):
                self._operation(f"{name}.to.{retry_topic}", "send", retry_topic, message)
                self._receives(f"{name}.from.{retry_topic}", handler, own, retry_topic, message)
            if handler.letters:
                letter = message if own.dead_letter.format == "headers" else self._letter()
                self._operation(f"{name}.dead-letters", "send", own.dead_letter_topics[topic], letter)
        if own.pattern is not None:
            key = f"{handler.name}.pattern"
            self.channels[key] = {"address": None, "description": f"Topics whose names match {own.pattern}"}
            self._describe(key, handler, own, key, self._message(key, *handler.message(key)))

    def sends(self, topic: str, schema: AnySchema) -> None:
        """What the app declares to send; a topic that it only reads is there already."""
        if topic not in self.channels:
            self._operation(f"send.{topic}", "send", topic, self._message(topic, dict[str, Any], schema))

    def _receives(self, name: str, handler: _Handler, own: ConsumerSettings, topic: str, message: str) -> None:
        self._channel(topic, message)
        self._describe(name, handler, own, topic, message)

    def _describe(self, name: str, handler: _Handler, own: ConsumerSettings, key: str, message: str) -> None:
        self.channels[key].setdefault("messages", {})[message] = {"$ref": f"#/components/messages/{message}"}
        group, summary = {"groupId": {"type": "string", "enum": [own.group]}, **BINDING}, handler.summary
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
        return self._add_message({"name": name, "contentType": content} | ({"payload": payload} if payload else {}))

    def _add_message(self, message: dict[str, Any]) -> str:
        return _added(self.messages, message["name"], message)

    def _payload(self, annotation: Any, schema: AnySchema | None) -> dict[str, Any] | None:
        text = None if schema is None or isinstance(schema, CloudEvents | Protobuf) else schema.text()
        if schema is not None and text is not None:
            return {"schemaFormat": FORMATS[schema.format], "schema": json.loads(text)}
        classes = [one for one in members_of(annotation) if is_message(one)]
        if isinstance(schema, Protobuf) and not classes and schema.message is not None:
            classes = [schema.message]
        if classes:
            text = "\n".join(dict.fromkeys(map(proto_text, classes)))
            return {"schemaFormat": FORMATS["protobuf"], "schema": text}
        if isinstance(schema, Protobuf):
            return None
        return self._schema(annotation)

    def _schema(self, annotation: Any) -> dict[str, Any]:
        """Classes of one name in several modules are numbered, with all that they refer to."""
        if annotation in (bytes, str):
            return {"type": "string"}
        described = (_described(annotation, suffix) for suffix in _suffixes())
        found, named = next(
            (found, named)
            for found, named in described
            if all(self.schemas.get(name, one) == one for name, one in named.items())
        )
        self.schemas |= named
        return found

    def _letter(self) -> str:
        properties = {name: {"description": text} for name, text in _LETTER.items()}
        letter = {"type": "object", "properties": properties, "required": ["original_message"]}
        payload = {"$ref": SCHEMAS + _added(self.schemas, "DeadLetter", letter)}
        return self._add_message({"name": "DeadLetter", "contentType": "application/json", "payload": payload})


def _suffixes() -> Iterator[str]:
    """Of keys: none, then ".2", ".3", …"""
    yield ""
    yield from (f".{number}" for number in count(2))


def _added(known: dict[str, Any], name: str, content: dict[str, Any]) -> str:
    """The key of this content: its name, with a number if something else has it."""
    key = next(key for suffix in _suffixes() if known.get(key := name + suffix, content) == content)
    known[key] = content
    return key


def _described(annotation: Any, suffix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of a type, and those that it refers to, by their keys, which end in `suffix`."""
    if holds_pydantic(annotation):
        from pydantic import TypeAdapter

        found = TypeAdapter(annotation).json_schema(ref_template=SCHEMAS + "{model}")
        named = found.pop("$defs", {})
    else:
        [found], named = msgspec.json.schema_components([annotation], ref_template=SCHEMAS + "{name}")
    keyed = {_key(name) + suffix: _with_keys(one, suffix) for name, one in named.items()}
    return dict(_with_keys(found, suffix)), keyed


def _key(name: str) -> str:
    """As AsyncAPI allows names of components."""
    return _OTHER.sub("_", name)


def _with_keys(schema: Any, suffix: str) -> Any:
    """The same schema with references to keys as they are in the document."""
    if isinstance(schema, Mapping):
        return {
            name: SCHEMAS + _key(part.removeprefix(SCHEMAS)) + suffix if name == "$ref" else _with_keys(part, suffix)
            for name, part in schema.items()
        }
    return [_with_keys(one, suffix) for one in schema] if isinstance(schema, list) else schema
