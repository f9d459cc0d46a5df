"""Replaces the values of a record in a text about it, such as the message of an error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

MAX_BYTES: Final = 262_144
"""Larger parts of a record are searched for the words of the text, and not parsed."""
MAX_PARSED_BYTES: Final = 4 * MAX_BYTES
"""Of all parts together; further ones are treated as larger ones."""
MAX_CHARACTERS: Final = 65_536
"""Characters of the text that are kept."""
LONG: Final = 100
"""Of a longer value, only its beginning is looked for; the text ends where it begins."""
_NUMBER: Final = re.compile(r"(?<![\w.])[0-9]+(?:\.[0-9]+)?(?![\w]|\.[0-9])")
_WORD: Final = re.compile(r"\w[\w@.+-]{2,}\w")
_PLAIN: Final = re.compile(r"[\w .@+-]*", re.ASCII)


def without_values(text: str, parts: Iterable[bytes | None]) -> str:
    """The text with `*` for what stands in `parts`: key, value and values of headers of a record.

    Of JSON, these are its texts and numbers, not the names of its fields; of other text, the whole and each of its
    words of four characters or more; of other bytes, the latter. A part of a JSON text alone is not found.
    """
    if not text:
        return text
    text, left = text[:MAX_CHARACTERS], MAX_PARSED_BYTES
    texts: set[str] = set()
    numbers: set[float] = set()
    raw: list[bytes] = []
    for part in parts:
        if part:
            left -= len(part)
            _collect(part, texts, numbers, raw, parsed=len(part) <= MAX_BYTES and left >= 0)
    found = sorted({form for value in texts for form in _forms(value) if form in text}, key=len, reverse=True)
    if found:
        text = re.sub(rf"(?s)(?<!\w)(?:{'|'.join(map(_pattern, found))})", "*", text)
    if numbers:
        text = _NUMBER.sub(lambda match: "*" if float(match[0]) in numbers else match[0], text)
    if raw:
        text = _WORD.sub(lambda match: "*" if _stands_in(match[0], raw) else match[0], text)
    return text


def _collect(part: bytes, texts: set[str], numbers: set[float], raw: list[bytes], *, parsed: bool) -> None:
    if parsed:
        try:
            scalars = list(_scalars(json.loads(part, parse_int=float, parse_constant=float)))
        except (ValueError, RecursionError):
            pass
        else:
            texts.update(scalar for scalar in scalars if isinstance(scalar, str) and scalar)
            numbers.update(abs(scalar) for scalar in scalars if type(scalar) is float)
            return
        with suppress(UnicodeDecodeError):
            texts.add(part.decode())
    raw.append(part)


def _scalars(document: Any) -> Iterator[Any]:
    nodes = [document]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            nodes.extend(node.values())
        elif isinstance(node, list):
            nodes.extend(node)
        else:
            yield node


def _forms(value: str) -> set[str]:
    """How the value may stand in a text: as it is, and as Python and JSON quote it."""
    start = value[:LONG]
    return {start} if _PLAIN.fullmatch(start) else {start, repr(start)[1:-1], json.dumps(start)[1:-1]}


def _pattern(form: str) -> str:
    return re.escape(form) + (".*" if len(form) >= LONG else r"(?!\w)")


def _stands_in(word: str, raw: list[bytes]) -> bool:
    encoded = word.encode("utf-8", "replace")
    return any(encoded in part for part in raw)
