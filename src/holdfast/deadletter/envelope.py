"""The letter as a JSON envelope. The original bytes of key, value and headers stay exact (P9)."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from holdfast.core.records import Record

VERSION = 1

DEEPEST = 50
"""How deep an original put in as JSON may be nested: parsers stop somewhere, and the letter must stay readable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why a record is buried, and by whom."""

    error_type: str
    error_message: str
    stack_trace: str
    classification: str
    code: str
    reason: str
    attempts: tuple[tuple[float, str], ...]
    """Each failed attempt: wall-clock seconds and the error's type."""
    group: str
    handler: str
    app_version: str


def letter_id(group: str, record: Record) -> str:
    """One record of one group has one letter, however often it is published."""
    return f"{group}/{record.topic}/{record.partition}/{record.offset}"


def envelope(record: Record, diagnosis: Diagnosis) -> bytes:
    """The letter's value."""
    original, encoding = _original(record.value)
    failed_at = diagnosis.attempts[-1][0] if diagnosis.attempts else 0.0
    fields: dict[str, Any] = {
        "version": VERSION,
        "id": letter_id(diagnosis.group, record),
        "original_message": original,
        "original_encoding": encoding,
        "error_type": diagnosis.error_type,
        "error_message": diagnosis.error_message,
        "error_code": diagnosis.code,
        "error_classification": diagnosis.classification,
        "reason": diagnosis.reason,
        "failed_at": _iso(failed_at),
        "retry_count": max(0, len(diagnosis.attempts) - 1),
        "attempts": [{"at": _iso(at), "error_type": error_type} for at, error_type in diagnosis.attempts],
        "original_topic": record.topic,
        "original_partition": record.partition,
        "original_offset": record.offset,
        "original_timestamp": record.timestamp_ms,
        "consumer_group": diagnosis.group,
        "handler": diagnosis.handler,
        "app_version": diagnosis.app_version,
        "stack_trace": diagnosis.stack_trace,
    }
    return as_json(fields)


def as_json(fields: dict[str, Any]) -> bytes:
    """Strict JSON. An unpaired surrogate, which many parsers refuse even escaped, becomes a question mark: only
    diagnostics can have one, because an original that has one travels as base64.
    """
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")


def _iso(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _original(value: bytes | None) -> tuple[Any, str]:
    """Inline JSON only if encoding it again gives the very same bytes; else base64."""
    if value is None:
        return None, "null"
    try:
        parsed = json.loads(value, parse_constant=_not_json)
        same = json.dumps(parsed, ensure_ascii=False, separators=(",", ":")).encode("utf-8") == value
        if same and _is_shallow(parsed):
            return parsed, "json"
    except (ValueError, RecursionError):
        pass
    return b64encode(value).decode("ascii"), "base64"


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
