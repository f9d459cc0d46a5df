"""Generates an example value from a handler's annotation, to be sent as a record."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
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
