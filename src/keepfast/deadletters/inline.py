"""Embeds a value in JSON so that its bytes can be restored exactly; strict JSON."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

MAX_DEPTH = 50
"""Deepest nesting of an original embedded as JSON: parsers have limits, and the letter must stay readable."""


def as_json(fields: dict[str, Any]) -> bytes:
    """Strict JSON. An unpaired surrogate, which many parsers refuse even escaped, becomes a question mark: only
    diagnostics can have one, because an original that has one travels as base64.
    """
    return _dumps(fields).encode("utf-8", "replace")


def from_json(value: bytes | None) -> dict[str, Any] | None:
    """The fields of a JSON object; None if it is anything else. Never raises."""
    if value is None or value.lstrip()[:1] != b"{":
        return None
    try:
        fields = _DECODER.decode(value.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def encode_value(value: bytes | None) -> dict[str, Any]:
    """The fields of a value: `original_message`, which is the JSON if it is JSON, else base64; `original_encoding`;
    and if encoding the JSON again does not give the very same bytes, `original_bytes` in base64.
    """
    if value is None:
        return {"original_message": None, "original_encoding": "null"}
    try:
        parsed = _DECODER.decode(value.decode("utf-8"))
        again = _dumps(parsed).encode("utf-8")
        if not _is_shallow(parsed):
            raise ValueError("nested too deeply")
    except (ValueError, RecursionError):
        return {"original_message": b64encode(value).decode("ascii"), "original_encoding": "base64"}
    fields = {"original_message": parsed, "original_encoding": "json"}
    return fields if again == value else fields | {"original_bytes": b64encode(value).decode("ascii")}


def decode_value(fields: dict[str, Any]) -> tuple[bytes | None, bool]:
    """The value, and whether these are its exact bytes. Never raises.

    Without an encoding (other programs write such letters) a text is the value itself and anything else its JSON;
    the result is not exact.
    """
    written, encoding = fields.get("original_message"), fields.get("original_encoding")
    given = fields.get("original_bytes")
    if given is not None:
        value = _from_base64(given)
        return (value, True) if value is not None else (_decode(written, encoding)[0], False)
    return _decode(written, encoding)


def _decode(written: object, encoding: object) -> tuple[bytes | None, bool]:
    if encoding == "null" and written is None:
        return None, True
    if encoding == "base64" and isinstance(written, str):
        value = _from_base64(written)
        return value, value is not None
    try:
        if encoding != "json" and isinstance(written, str):
            return written.encode("utf-8", "replace"), False
        if encoding is None and written is None:
            return None, False
        return _dumps(written).encode("utf-8"), encoding == "json"
    except UnicodeEncodeError:  # half of a surrogate pair, which can only have been escaped
        return json.dumps(written, separators=(",", ":")).encode("ascii"), False
    except (ValueError, RecursionError):
        return None, False


def _from_base64(written: object) -> bytes | None:
    try:
        return b64decode(written.encode("ascii"), validate=True) if isinstance(written, str) else None
    except ValueError:
        return None


def _dumps(parsed: object) -> str:
    """Compact. Raises ValueError for a number that JSON does not have."""
    return _ENCODER.encode(parsed)


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


# Made once: `json.loads` and `json.dumps` make one for each call with options.
_DECODER = json.JSONDecoder(parse_constant=_not_json)
_ENCODER = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"))


def _is_shallow(parsed: object) -> bool:
    level = [parsed]
    for _ in range(MAX_DEPTH):
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
