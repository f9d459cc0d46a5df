"""A payload as a person can read it: decoded, raw or in hex; which decoders were tried; how two samples differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from keepfast.deadletters.letter import Headers
from keepfast.desk.letters import SchemaReading
from keepfast.desk.masking import field_name, json_lines, shape

MAX_SHOWN, MAX_HEX, MAX_FIELDS, MAX_DEPTH = 64 * 1024, 4 * 1024, 200, 8
WIRE_HEADER: Final = 5
"""Of the format of schema registries: a zero byte and the schema's id in four."""


@dataclass(frozen=True, slots=True)
class DecoderReport:
    """Whether a decoder could read a payload, and why not. It says nothing of values."""

    name: str
    works: bool
    why: str


@dataclass(frozen=True, slots=True)
class Payload:
    """`decoded`, `raw` and `hexadecimal` have values; `masked` has none."""

    length: int | None
    masked: str
    reports: tuple[DecoderReport, ...]
    decoded: str = ""
    raw: str = ""
    hexadecimal: str = ""
    cut: bool = False


def payload_of(value: bytes | None, *, reveal: bool, reading: SchemaReading | None = None) -> Payload:
    """`reading` is shown decoded in place of the value, which stays in `raw`."""
    readable = reading.data if reading is not None and reading.data is not None else value
    masked = json.dumps(shape(readable), indent=2, ensure_ascii=False)
    reports = tuple(reports_of(value, reading))
    if value is None or not reveal:
        return Payload(None if value is None else len(value), masked, reports)
    shown = value[:MAX_SHOWN]
    return Payload(
        len(value),
        masked,
        reports,
        _decoded(readable or b""),
        shown.decode("utf-8", "replace"),
        hexdump(value),
        len(value) > MAX_SHOWN,
    )


def reports_of(value: bytes | None, reading: SchemaReading | None = None) -> list[DecoderReport]:
    """Each decoder that was tried, the most specific first."""
    if value is None:
        return [DecoderReport("null", True, "a tombstone: there is no value")]
    if reading is None:
        return [_json(value), _wire(value), _text(value)]
    return [DecoderReport("Schema registry", reading.data is not None, reading.why), _json(value), _text(value)]


def _json(value: bytes) -> DecoderReport:
    try:
        found = json.loads(value)
    except UnicodeDecodeError as error:
        return DecoderReport("JSON", False, f"not UTF-8 at byte {error.start:,}")
    except json.JSONDecodeError as error:
        return DecoderReport("JSON", False, f"{error.msg} at character {error.pos:,}")
    except (ValueError, RecursionError) as error:
        return DecoderReport("JSON", False, type(error).__name__)
    return DecoderReport(
        "JSON",
        True,
        "an object" if isinstance(found, dict) else "a list" if isinstance(found, list) else "a single value",
    )


def _wire(value: bytes) -> DecoderReport:
    if len(value) > WIRE_HEADER and value[0] == 0:
        schema = int.from_bytes(value[1:WIRE_HEADER], "big")
        return DecoderReport("Schema registry", True, f"written with schema {schema}; its body needs that schema")
    return DecoderReport("Schema registry", False, "does not begin with a zero byte and a schema id")


def _text(value: bytes) -> DecoderReport:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return DecoderReport("Text", False, f"not UTF-8 at byte {error.start:,} of {len(value):,}")
    return DecoderReport("Text", True, "UTF-8")


def _decoded(value: bytes) -> str:
    try:
        return json_lines(value)[:MAX_SHOWN]
    except (ValueError, RecursionError):
        return ""


def hexdump(value: bytes) -> str:
    lines = []
    for start in range(0, min(len(value), MAX_HEX), 16):
        part = value[start : start + 16]
        text = "".join(chr(one) if 32 <= one < 127 else "·" for one in part)
        lines.append(f"{start:06x}  {part.hex(' '):<47}  {text}")
    if len(value) > MAX_HEX:
        lines.append(f"… {len(value) - MAX_HEX:,} more bytes")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class HeaderView:
    name: str
    value: str


def headers_of(headers: Headers, *, reveal: bool) -> list[HeaderView]:
    """Name and value; without `reveal` only sizes."""
    if not reveal:
        return [
            HeaderView(field_name(name), "null" if value is None else f"{len(value):,} bytes")
            for name, value in headers
        ]
    return [
        HeaderView(name, "null" if value is None else value[:1_000].decode("utf-8", "backslashreplace"))
        for name, value in headers
    ]


# -- samples


@dataclass(frozen=True, slots=True)
class FieldRow:
    """A field of several samples, masked: what each has there, and whether they differ."""

    name: str
    cells: tuple[str, ...]
    differs: bool
    """In kind or presence; values alone may differ everywhere."""


def compare(values: Sequence[bytes | None]) -> list[FieldRow]:
    """The fields of these payloads side by side, those that differ first. Empty if none of them is a JSON object."""
    flat = [_flat(value) for value in values]
    names = list(dict.fromkeys(name for one in flat for name in one))[:MAX_FIELDS]
    rows = []
    for name in names:
        found = [one.get(name) for one in flat]
        cells = tuple("missing" if one is None else one[0] for one in found)
        kinds = {None if one is None else one[1] for one in found}
        rows.append(FieldRow(name, cells, len(kinds) > 1))
    return sorted(rows, key=lambda row: not row.differs)


def _flat(value: bytes | None) -> dict[str, tuple[str, str]]:
    """Field → (masked value, kind)."""
    try:
        found = json.loads(value) if value is not None and len(value) <= MAX_SHOWN else None
    except (ValueError, RecursionError):
        found = None
    fields: dict[str, tuple[str, str]] = {}
    if isinstance(found, dict):
        _collect(found, "", fields, MAX_DEPTH)
    return fields


def _collect(node: dict[str, Any], prefix: str, fields: dict[str, tuple[str, str]], depth: int) -> None:
    for name, item in node.items():
        if len(fields) >= MAX_FIELDS:
            return
        path = f"{prefix}{field_name(name)}"
        if isinstance(item, dict) and item and depth:
            _collect(item, f"{path}.", fields, depth - 1)
        else:
            fields[path] = _masked(item), type(item).__name__


def _masked(item: Any) -> str:
    match item:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return f"text of {len(item)}" if item else "empty text"
        case list():
            return f"list of {len(item)}"
        case _:
            return f"object of {len(item)}"


# -- stacks


def frames_of(stack: Sequence[str]) -> list[tuple[str, bool]]:
    """Frames as the stack has them, and whether each is of the user's code."""
    foreign = (
        "site-packages",
        "dist-packages",
        "/lib/python",
        "<frozen",
        "/keepfast/",
        "at java.",
        "at org.springframework.",
    )
    return [(frame, not any(part in frame for part in foreign)) for frame in stack]
