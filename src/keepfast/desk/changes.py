"""What a transform changes in a record, line by line."""

from __future__ import annotations

import difflib
import json
from base64 import b64encode

from keepfast.core.records import Record
from keepfast.desk.masking import field_name, json_lines, shape

MAX_TEXT = 100_000


def changed_lines(before: Record, after: Record | None, *, reveal: bool) -> list[str]:
    """A unified difference without its header; without `reveal` types instead of values. None: left out."""
    if after is None:
        return ["left out by the transform"]
    lines = difflib.unified_diff(_lines(before, reveal=reveal), _lines(after, reveal=reveal), lineterm="")
    return list(lines)[2:] or ["no difference" if reveal else "no difference in names, types and sizes"]


def _lines(record: Record, *, reveal: bool) -> list[str]:
    """Key, headers and value, one line for each field."""
    if not reveal:
        body = json.dumps(shape(record.value), indent=1, ensure_ascii=False).splitlines()
        names = [f"header {field_name(name)}" for name, _ in record.headers]
        return [f"key {len(record.key or b'')} bytes", *names, *body]
    try:
        body = json_lines(record.value or b"null", indent=1).splitlines()
    except (ValueError, RecursionError):
        body = [_text(record.value)]
    return [f"key {_text(record.key)}", *(f"header {name}: {_text(value)}" for name, value in record.headers), *body]


def _text(value: bytes | None) -> str:
    if value is None:
        return "null"
    try:
        return value.decode()[:MAX_TEXT]
    except UnicodeDecodeError:
        return f"base64 {b64encode(value[:MAX_TEXT]).decode()}"
