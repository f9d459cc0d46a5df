"""What a topic's values are besides JSON that fits the annotation: Avro, Protobuf, JSON Schema. Declared in code, with
nothing loaded until the app starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias

from keepfast.core.errors import ConfigError
from keepfast.core.records import Headers

SchemaFormat = Literal["avro", "protobuf", "json"]

SchemaText: TypeAlias = str | Path | dict[str, Any] | list[Any]
"""The text of a schema, the same as an object, or the path of its file."""


RecordPart = Literal["value", "key"]
ID_HEADERS: Final[Mapping[RecordPart, str]] = {"value": "__value_schema_id", "key": "__key_schema_id"}
"""The header that has the id of the schema, where the value or the key does not."""
MAGIC_ID, MAGIC_GUID = 0, 1
ID_BYTES, GUID_BYTES = 5, 17
"""How long the frame with an id, or with a GUID, is."""


@dataclass(frozen=True)
class Avro:
    """Values in Avro, in the wire format of Confluent's serializers: the id of the schema is in the value, or in a
    header.

    `schema` is what records are read as, and what is sent: a file, a text that is JSON, or an object. Records of older
    and newer schemas become this one, by the rules of Avro. Without it, a record is read as it was written, and sent in
    the latest version of the subject.
    """

    schema: SchemaText | None = None

    format: ClassVar[SchemaFormat] = "avro"
    registry: ClassVar[bool] = True

    def text(self) -> str | None:
        """The schema. Raises ConfigError if its file cannot be read."""
        return text_of(self.schema)


@dataclass(frozen=True)
class Protobuf:
    """Messages of Protobuf, in the wire format of Confluent's serializers. `message` is the generated class, where the
    handler's annotation is none (`dict`, a dataclass, a pydantic model), and for sending.
    """

    message: type[Any] | None = None

    format: ClassVar[SchemaFormat] = "protobuf"
    registry: ClassVar[bool] = True

    def text(self) -> str | None:
        """None: the schema is the class."""
        return None


@dataclass(frozen=True)
class JsonSchema:
    """JSON that is validated by a JSON Schema: that of its id in the wire format of Confluent's serializers, or this
    `schema` (a file, a text that is JSON, or an object). What is valid becomes what the annotation says.

    `registry=False`: plain JSON, without an id; nothing but `schema` is needed.
    """

    schema: SchemaText | None = None
    registry: bool = True

    format: ClassVar[SchemaFormat] = "json"

    def __post_init__(self) -> None:
        if not self.registry and self.schema is None:
            raise ConfigError('JsonSchema(registry=False) needs a schema: JsonSchema("invoice.json", registry=False).')

    def text(self) -> str | None:
        """The schema. Raises ConfigError if its file cannot be read."""
        return text_of(self.schema)


Schema: TypeAlias = Avro | Protobuf | JsonSchema


@dataclass(frozen=True)
class CloudEvents:
    """CloudEvents, structured (the event as JSON) or binary (attributes in headers `ce_…`): the handler gets the data,
    `ctx.cloudevent` has the attributes. Both are read.

    With `source` and `type`, what is sent to the topic becomes the data of an event with these attributes, a new id and
    the time, in this `mode`; a CloudEvent of the SDK is sent with its own attributes. `data` is the schema of the data,
    if it is not plain JSON: `CloudEvents(data=Avro())`.
    """

    source: str | None = None
    type: str | None = None
    mode: Literal["structured", "binary"] = "structured"
    data: Schema | None = None

    format: ClassVar[str] = "cloudevents"

    def __post_init__(self) -> None:
        if (self.source is None) != (self.type is None):
            raise ConfigError(
                'CloudEvents that are sent need both: CloudEvents(source="/billing", type="invoice.sent").'
            )

    @property
    def registry(self) -> bool:
        """Whether a registry is needed."""
        return self.data is not None and self.data.registry

    @property
    def sends(self) -> bool:
        return self.source is not None


AnySchema: TypeAlias = Schema | CloudEvents


@dataclass(frozen=True, slots=True)
class DeclaredSchemas:
    """The schemas that `app.schema` declares, by topic: of values, and of keys."""

    values: dict[str, AnySchema] = field(default_factory=dict)
    keys: dict[str, Schema] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRef:
    """Which schema a record was written with, as far as the registry knows it."""

    format: SchemaFormat
    subject: str = ""
    id: int | None = None
    version: int | None = None

    def __str__(self) -> str:
        version = f" version {self.version}" if self.version is not None else ""
        number = f"id {self.id}" if self.id is not None else "no id"
        return f"{self.format} {self.subject}{version} ({number})" if self.subject else f"{self.format} {number}"


def text_of(schema: SchemaText | None) -> str | None:
    """Raises ConfigError if it is a file that cannot be read, or no JSON."""
    if schema is None:
        return None
    if isinstance(schema, dict | list):
        return json.dumps(schema)
    text, name = str(schema), "the schema"
    if isinstance(schema, Path) or text.strip()[:1] not in ("{", "[", '"'):
        name = f"the schema {schema}"
        try:
            text = Path(schema).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise ConfigError(f"{name} cannot be read: {reason}. Fix the path, or ship the file.") from error
    try:
        json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name} is no JSON ({error}); fix it.") from error
    return text


def name_of(text: str, format: SchemaFormat) -> str | None:  # noqa: A002 - what it is
    """The full name of the record that a schema declares: of Avro and JSON Schema. None if it has none."""
    if format == "protobuf":
        return None
    found = json.loads(text)
    if not isinstance(found, dict):
        return None
    name, space = found.get("title" if format == "json" else "name"), found.get("namespace")
    return f"{space}.{name}" if name and space and format == "avro" and "." not in name else name


def id_in(frame: bytes) -> int | None:
    """The id in the frame of a value; None if it has a GUID."""
    return int.from_bytes(frame[1:ID_BYTES], "big") if frame[0] == MAGIC_ID else None


def id_header(headers: Headers, part: RecordPart = "value") -> bytes | None:
    """The header that names the schema of the value or key: its id or GUID, and what message of Protobuf it is."""
    header = ID_HEADERS[part]
    return next((found for name, found in headers if name == header and found), None)


def frame_of(value: bytes, headers: Headers, part: RecordPart = "value") -> bytes | None:
    """What names the schema of a value or key: the first bytes of the header, or its own; None if nothing does."""
    data = id_header(headers, part) or value
    magic, length = (data[0], len(data)) if data else (None, 0)
    if magic == MAGIC_ID and length >= ID_BYTES:
        return data[:ID_BYTES]
    return data[:GUID_BYTES] if magic == MAGIC_GUID and length >= GUID_BYTES else None
