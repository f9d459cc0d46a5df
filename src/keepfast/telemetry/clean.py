"""Makes values safe for logs and terminals: one line, no control characters, no payload, secrets masked, bounded.

Only known types are shown with their value. Of any other object only the type is shown, because its text may contain
the bytes of a record.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
import re
import threading
import uuid
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from traceback import extract_tb, format_exception
from types import TracebackType
from typing import Any, TypeAlias

from keepfast.core.records import TopicPartition
from keepfast.redact.masking import DEFAULT_RULES, MASKED, MaskingRules
from keepfast.redact.record_values import without_values

Clean: TypeAlias = "str | int | float | bool | list[Clean] | dict[str, Clean] | None"

MAX_TEXT = 500
"""Characters of one value, before escaping."""
MAX_MESSAGE = 300
"""Characters of the message of an error in lines about records."""
MAX_ITEMS = 20
MAX_DEPTH = 3
MAX_FRAMES = 8
_MAX_INT_BITS = 256

# Characters that end a line, move the cursor, colour or reorder text, or cannot be encoded:
# C0, DEL, C1, the line and paragraph separators, bidirectional controls, zero-width marks, lone surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\x1b"}
_AS_TEXT = (dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID, PurePath, TopicPartition)


_masking: MaskingRules = DEFAULT_RULES  # process-wide, as loggers are
_masking_lock = threading.Lock()


def mask_with(rules: MaskingRules) -> None:
    """Mask everything that this process logs or shows by these rules: the first ones replace the default, further ones
    (of other apps in the process) are added. Any thread.
    """
    global _masking  # noqa: PLW0603
    with _masking_lock:
        _masking = rules if _masking is DEFAULT_RULES else _masking.extended_by(rules)


def hides(name: str) -> bool:
    """Whether the whole value of a field of this name is masked."""
    return _masking.hides(name)


def masked(text: str) -> str:
    """The text with secrets masked, otherwise unchanged."""
    return _masking.text(text)


def masked_tree(value: Any) -> Any:
    """A decoded JSON value with secrets masked."""
    return _masking.tree(value)


def clean_text(text: str, limit: int = MAX_TEXT) -> str:
    """The text masked, cut to `limit` characters, with unsafe characters escaped."""
    return escaped(_masking.text(text), limit) if len(text) <= limit else _long(text, limit)


def escaped(text: str, limit: int = MAX_TEXT) -> str:
    """The text cut to `limit` characters, with unsafe characters escaped, and not masked: for `--reveal`."""
    if len(text) > limit:
        text = f"{text[:limit]}… +{len(text) - limit}"
    return _UNSAFE.sub(_escape, text) if _UNSAFE.search(text) else text


def _long(text: str, limit: int) -> str:
    return escaped(f"{_masking.short(text, limit)}… +{len(text) - limit}", limit + 40)


def clean_value(value: Any, depth: int = MAX_DEPTH) -> Clean:
    """The value in a form that is safe to log. Never raises."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, str):
        return clean_text(str.__str__(value))
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{memoryview(value).nbytes} bytes>"
    if isinstance(value, BaseException):
        return clean_error(value)
    return _structured(value, depth)


def clean_error(error: BaseException) -> str:
    """The type and what `clean_message` returns."""
    name, message = clean_text(type(error).__qualname__, 100), clean_message(error, MAX_TEXT)
    return f"{name}: {message}" if message else name


def clean_message(error: BaseException, limit: int = MAX_MESSAGE, *, parts: Iterable[bytes | None] = ()) -> str:
    """The first line of the message; libraries print inputs and parameters on later lines. `parts`: key,
    value and values of headers of the record that it is about; what they hold is masked.
    """
    try:
        first, *rest = without_values(str(error), parts).strip().split("\n", 1)
    except BaseException:  # noqa: BLE001  an error whose text cannot be had must not break the log of it
        return "<no text>"
    return clean_text(f"{first} …" if rest else first, limit)


def clean_trace(error: BaseException) -> str:
    """The stack: `file:line function`, innermost first, without values."""
    frames = extract_tb(error.__traceback__)[-MAX_FRAMES:]
    return " < ".join(clean_text(f"{PurePath(f.filename).name}:{f.lineno} {f.name}", 120) for f in reversed(frames))


def clean_traceback(error: BaseException) -> list[str]:
    """The traceback as Python prints it, line by line, masked, without the frames of keepfast that called the user's
    code; the last lines where it is long.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and _is_ours(trace):
        trace = trace.tb_next
    try:
        text = "".join(format_exception(type(error), error, trace, chain=True))
    except Exception:  # noqa: BLE001  a foreign __str__ or __repr__ must not break the log
        return [clean_error(error)]
    lines = [clean_text(line) for line in masked(text).splitlines()]
    return lines if len(lines) <= MAX_ITEMS else ["…", *lines[1 - MAX_ITEMS :]]


def _is_ours(trace: TracebackType) -> bool:
    return str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0] == "keepfast"


def _number(value: float) -> Clean:
    if isinstance(value, int):
        bits = int.bit_length(value)
        return int.__int__(value) if bits <= _MAX_INT_BITS else f"<int of {bits} bits>"
    return float.__float__(value) if math.isfinite(value) else float.__repr__(value)  # NaN is not JSON


def _structured(value: Any, depth: int) -> Clean:
    if isinstance(value, type):
        return clean_text(value.__qualname__)
    name = clean_text(type(value).__qualname__, 100)
    try:
        if isinstance(value, _AS_TEXT):
            return clean_text(str(value))
        if isinstance(value, list | tuple | set | frozenset | Mapping):
            return _container(value, depth) if depth > 0 else f"<{name} of {len(value)}>"
    except Exception:  # noqa: BLE001  a type of the user's that fails to be read, or changes meanwhile
        return f"<{name}>"
    return f"<{name}>"


def _container(value: Any, depth: int) -> Clean:
    more = len(value) - MAX_ITEMS
    if isinstance(value, Mapping):
        pairs = {}
        for key, item in _first(value.items()):
            name = str(clean_value(key, 0))
            pairs[name] = MASKED if item is not None and hides(name) else clean_value(item, depth - 1)
        if more > 0:
            pairs["…"] = f"+{more}"
        return pairs
    items = [clean_value(item, depth - 1) for item in _first(value)]
    return [*items, f"… +{more}"] if more > 0 else items


def _first(items: Any) -> Any:
    return (item for item, _ in zip(items, range(MAX_ITEMS), strict=False))


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
