"""Generates example values: from a handler's annotation, to be sent as a record, and from schemas."""

from __future__ import annotations

import datetime
import decimal
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from keepfast.core.errors import Signal
from keepfast.decode.annotation import decoder_for
from keepfast.decode.fields import holds_pydantic

MAX_DEPTH: Final = 8
_BY_FORMAT: Final = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "uuid": "00000000-0000-4000-8000-000000000001",
    "decimal": "1.50",
    "email": "a@example.com",
    "uri": "https://example.com",
}
_TIME_NAME: Final = re.compile(r"(?:^|_)(?:at|on|time|timestamp)$|(?:At|Time)$")
_PLAIN: Final[Mapping[str, Any]] = {"integer": 1, "number": 1.5, "boolean": True, "null": None, "array": []}

_AVRO: Final[Mapping[str, Any]] = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 1,
    "float": 1.5,
    "double": 1.5,
    "bytes": b"bytes",
    "string": "text",
}
_LOGICAL: Final[Mapping[str, Any]] = {
    "decimal": decimal.Decimal(1),
    "uuid": uuid.UUID(_BY_FORMAT["uuid"]),
    "date": datetime.date(2026, 1, 31),
    **dict.fromkeys(("time-millis", "time-micros"), datetime.time(12)),
    **dict.fromkeys(("timestamp-millis", "timestamp-micros"), datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)),
}

Schema = Mapping[str, Any]


def sample(annotation: Any) -> str | None:
    """A text that this annotation accepts, or None if none was found. Never raises."""
    try:
        text = _text(annotation)
        decoder_for(annotation)(text.encode())
    except (Exception, Signal):  # noqa: BLE001 - user types may raise anything, and the example is optional
        return None
    return text


def _text(annotation: Any) -> str:
    if annotation in (bytes, str):
        return "hello"
    if holds_pydantic(annotation):
        from pydantic import TypeAdapter

        schema = TypeAdapter(annotation).json_schema()
    else:
        schema = msgspec.json.schema(annotation)
    value = _value(schema, schema.get("$defs", {}), "value", MAX_DEPTH)
    return json.dumps(value or {"id": "a1"} if isinstance(value, dict) else value, ensure_ascii=False)


def _value(schema: Schema, known: Mapping[str, Schema], name: str, depth: int) -> Any:
    if "$ref" in schema:
        schema = known[schema["$ref"].rpartition("/")[2]]
    for keyword in ("const", "examples", "enum", "default"):
        if keyword in schema:
            return schema[keyword][0] if keyword in {"examples", "enum"} else schema[keyword]
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            options = [one for one in schema[keyword] if one.get("type") != "null"]
            return _value(options[0], known, name, depth - 1)
    if schema.get("type") != "object":
        return _single(schema, name)
    required = schema.get("required", ()) if depth > 0 else ()
    fields: Mapping[str, Schema] = schema.get("properties", {})
    return {field: _value(fields[field], known, field, depth - 1) for field in required}


def _single(schema: Schema, name: str) -> Any:
    kind = str(schema.get("type"))
    if kind == "string":
        form = str(schema.get("format", "")).rstrip("0123456789")  # uuid4 is a uuid
        if not form and _TIME_NAME.search(name):  # msgspec has no format for a time without a zone
            form = "date-time"
        return _BY_FORMAT.get(form, f"{name}-1")
    if kind in {"integer", "number"} and schema.get("minimum", 0) > 1:
        return schema["minimum"]
    return _PLAIN.get(kind)


def json_examples(schema: Schema) -> Iterator[Any]:
    """Values that a JSON Schema allows: with its required properties alone, and with all."""
    known = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    yield _value(schema, known, "value", MAX_DEPTH)
    yield _value(_with_all(schema), {name: _with_all(one) for name, one in known.items()}, "value", MAX_DEPTH)


def _with_all(schema: Any) -> Any:
    """The same schema with every property required."""
    if isinstance(schema, list):
        return [_with_all(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {name: _with_all(one) for name, one in schema.items()}
    return {**made, "required": list(schema["properties"])} if isinstance(schema.get("properties"), Mapping) else made


def avro_examples(schema: Any) -> Iterator[Any]:
    """Values of an Avro schema: with a value where null is allowed, and with null."""
    for nulls in (False, True):
        yield _AvroExample(nulls=nulls).of(schema, "", MAX_DEPTH)


class _AvroExample:
    def __init__(self, *, nulls: bool) -> None:
        self._nulls = nulls
        self._named: dict[str, Any] = {}

    def of(self, schema: Any, space: str, depth: int) -> Any:  # noqa: PLR0911 - a table of Avro's types
        match schema:
            case list():
                others = [one for one in schema if one != "null"]
                null = "null" in schema and (self._nulls or depth <= 0 or not others)
                return None if null else self.of(others[0], space, depth - 1)
            case str() if schema in _AVRO:
                return _AVRO[schema]
            case str():
                return self.of(self._named.get(schema) or self._named[f"{space}.{schema}"], space, depth - 1)
            case {"logicalType": str(logical)} if logical in _LOGICAL:
                return _LOGICAL[logical]
            case {"type": "record" | "error", "name": name, "fields": fields}:
                space = schema.get("namespace", name.rpartition(".")[0] or space)
                self._named |= {name: schema, f"{space}.{name}": schema}
                return {field["name"]: self.of(field["type"], space, depth - 1) for field in fields}
            case {"type": "enum", "name": name, "symbols": [first, *_]}:
                self._named |= {name: schema, f"{space}.{name}": schema}
                return first
            case {"type": "fixed", "name": name, "size": size}:
                self._named |= {name: schema, f"{space}.{name}": schema}
                return bytes(size)
            case {"type": "array", "items": items}:
                return [self.of(items, space, depth - 1)] if depth > 0 else []
            case {"type": "map", "values": values}:
                return {"key": self.of(values, space, depth - 1)} if depth > 0 else {}
            case {"type": kind}:
                return self.of(kind, space, depth - 1)
            case other:
                raise ValueError(f"{other!r} is no Avro schema")
