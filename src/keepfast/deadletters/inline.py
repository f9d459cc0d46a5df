"""Embeds a value in JSON so that its bytes can be restored exactly; strict JSON."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

DEEPEST = 50
"""Deepest nesting of an original embedded as JSON: parsers have limits, and the letter must stay readable."""


def as_json(fields: dict[str, Any]) -> bytes:
    """Strict JSON. An unpaired surrogate, which many parsers refuse even escaped, becomes a question mark: only
    diagnostics can have one, because an original that has one travels as base64.
    """
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")


def from_json(value: bytes | None) -> dict[str, Any] | None:
    """The fields of a JSON object; None if it is anything else. Never raises."""
    if value is None or value.lstrip()[:1] != b"{":
        return None
    try:
        fields = json.loads(value.decode("utf-8"), parse_constant=_not_json)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def encode_value(value: bytes | None) -> tuple[Any, str]:
    """The JSON representation of a value and its encoding: inline JSON only if encoding it again gives the very same
    bytes; else base64.
    """
    if value is None:
        return None, "null"
    try:
        parsed = json.loads(value, parse_constant=_not_json)
        if _compact(parsed) == value and _is_shallow(parsed):
            return parsed, "json"
    except (ValueError, RecursionError):
        pass
    return b64encode(value).decode("ascii"), "base64"


def decode_value(written: object, encoding: object) -> tuple[bytes | None, bool]:
    """The value, and whether these are its exact bytes. Never raises.

    Without an encoding (other programs write such letters) a text is the value itself and anything else its JSON;
    the result is not exact.
    """
    if encoding == "null" and written is None:
        return None, True
    if encoding == "base64" and isinstance(written, str):
        try:
            return b64decode(written.encode("ascii"), validate=True), True
        except ValueError:
            return None, False
    try:
        if encoding != "json" and isinstance(written, str):
            return written.encode("utf-8"), False
        return (None, False) if encoding is None and written is None else (_compact(written), encoding == "json")
    except (ValueError, RecursionError):
        return None, False


def _compact(parsed: object) -> bytes:
    return json.dumps(parsed, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _is_shallow(parsed: object) -> bool:
    level = [parsed]
    for _ in range(DEEPEST):
        inner: list[object] = []
        for node in level:
            if isinstance(node, dict):
                inner.extend(node.values())
            elif isinstance(node, list):
                inner.extend(node)
        if not inner:
            return True
        level = inner
    return False
