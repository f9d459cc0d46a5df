"""Validated values from untrusted bytes: of the right type, length and range, or absent. Nothing here raises.

Headers and letters are untrusted input; an invalid one must never stop the reader.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from keepfast.core.retry_topics import MAX_LONG, MAX_PARTITION, digits, text, topic, utf8, whole

__all__ = [
    "MAX_LONG",
    "MAX_PARTITION",
    "big_endian",
    "digits",
    "instant_ms",
    "iso",
    "text",
    "topic",
    "trace_id",
    "utf8",
    "whole",
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: what a calendar can show."""
_TRACEPARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?P<trace>(?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-[ -~]*)?"
)
_MAX_TRACEPARENT = 512


def big_endian(value: bytes | None, size: int) -> int | None:
    """A whole number of 0 or more in exactly `size` bytes, as Java's ByteBuffer writes it."""
    if value is None or len(value) != size:
        return None
    number = int.from_bytes(value, "big", signed=True)
    return number if number >= 0 else None


def instant_ms(value: object) -> int | None:
    """An ISO 8601 time as milliseconds; without a zone it is taken as UTC."""
    if not isinstance(value, str) or len(value) > 64:
        return None
    try:
        found = datetime.fromisoformat(value)
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        return whole((found - _EPOCH) // _MILLISECOND, _LAST_MS)
    except (ValueError, OverflowError):
        return None


def iso(at_ms: int) -> str:
    """Milliseconds as ISO 8601 in UTC. Out-of-range values are clamped."""
    at = _EPOCH + min(max(at_ms, 0), _LAST_MS) * _MILLISECOND
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def trace_id(traceparent: bytes | None) -> str:
    """The trace of a W3C traceparent; empty if it is not well-formed. Version 00 ends after the flags."""
    if traceparent is None or len(traceparent) > _MAX_TRACEPARENT:
        return ""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None or (found["more"] is not None and traceparent.startswith(b"00")):
        return ""
    return found["trace"].decode()
