"""Masked views of a letter, for output without --reveal: sizes and structure, no values."""

from __future__ import annotations

import json
import re
from typing import Any

from keepfast.deadletters.fingerprint import normalised
from keepfast.deadletters.letter import Letter
from keepfast.redact.record_values import without_values
from keepfast.telemetry.clean import masked

MAX_DEPTH, MAX_ITEMS = 6, 30
MAX_BYTES = 1_000_000
"""Larger values are not parsed."""

# A field's name, not a value used as one.
_FIELD = re.compile(r"(?!.*\d{4})[A-Za-z_][\w.-]{0,63}", re.ASCII)
# Frames of Python and of Java, without the lines between them, which hold code and messages.
_FRAME = re.compile(r'\s*File "[^"\n]{1,300}", line \d+, in \S{1,200}|\s*at [\w.$<>/@]{1,300}\([\w.: ]{0,100}\)')


def shape(value: bytes | None) -> Any:
    """The structure of a value: for JSON its fields with kinds instead of values, else its size."""
    if value is None:
        return "<null>"
    if len(value) <= MAX_BYTES:
        try:
            return _masked(json.loads(value), MAX_DEPTH)
        except (ValueError, RecursionError):
            pass
    return f"<{len(value)} bytes>"


def json_lines(value: bytes, indent: int = 2) -> str:
    """A value over several lines, revealed. Raises ValueError and RecursionError if it is no JSON."""
    text = json.dumps(json.loads(value), indent=indent, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair cannot be shown


def masked_text(text: str, letter: Letter) -> str:
    """A message of the letter without secrets, values of its record, and what looks like a value. Other words stay."""
    parts = (letter.key, letter.value, *(value for _, value in letter.headers))
    return normalised(masked(without_values(text, parts)))


def field_name(name: str) -> str:
    """The name of a field or header, unless it looks like a value."""
    return name if _FIELD.fullmatch(name) else f"<name of {len(name)}>"


def frames(stack_trace: str) -> list[str]:
    """The frames of a stack trace, without source lines."""
    return [line.strip() for line in stack_trace.splitlines() if _FRAME.fullmatch(line)]


def _masked(node: Any, depth: int) -> Any:
    match node:
        case None:
            return None
        case bool():
            return "<boolean>"
        case int() | float():
            return "<number>"
        case str():
            return f"<text of {len(node)}>"
        case list():
            return _list(node, depth)
        case _:
            return _object(node, depth)


def _list(items: list[Any], depth: int) -> Any:
    if depth == 0:
        return f"<list of {len(items)}>"
    shown = [_masked(item, depth - 1) for item in items[:3]]
    return [*shown, f"… {len(items) - 3} more"] if len(items) > 3 else shown


def _object(fields: dict[str, Any], depth: int) -> Any:
    if depth == 0:
        return f"<object of {len(fields)}>"
    shown: dict[str, Any] = {}
    for number, (name, item) in enumerate(fields.items()):
        if number == MAX_ITEMS:
            shown["…"] = f"{len(fields) - MAX_ITEMS} more"
            break
        known = field_name(name)
        shown[known if known not in shown else f"{known} {number}"] = _masked(item, depth - 1)
    return shown
