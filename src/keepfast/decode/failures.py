"""Describes a failed decode without the payload: the field and the kind of error, never the value.

The libraries' own messages are not used: pydantic quotes the input, msgspec quotes enum values, tags and unknown field
names. Only text from the annotation itself is used: declared field names, array positions, and the libraries' names for
kinds of errors. What the user's own validators say may quote anything: only the detail of the error has it, in quotes,
so that it is masked where messages are.
"""

from __future__ import annotations

import json
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, get_args

import msgspec

from keepfast.core.errors import CodePlace, DecodeError, code_places, error_class

DECODE_FAILED = "DECODE_FAILED"
"""Not JSON, or not UTF-8."""
SCHEMA_INVALID = "SCHEMA_INVALID"
"""JSON that does not match the annotation."""
MISSING_REQUIRED_FIELD = "MISSING_REQUIRED_FIELD"
ENUM_INVALID = "ENUM_INVALID"
TOMBSTONE = "TOMBSTONE"
"""A null value where the annotation has no `| None`."""

UNKNOWN_TYPE = "UNKNOWN_TYPE"
"""A tag that names none of the types that the handler takes."""
CONTENT_TYPE_UNKNOWN = "CONTENT_TYPE_UNKNOWN"
SCHEMA_UNKNOWN = "SCHEMA_UNKNOWN"
"""The registry has no schema with the record's id."""
SCHEMA_ID_MISSING = "SCHEMA_ID_MISSING"
"""Neither the value nor a header names a schema."""

NEWLINE = b"\n"

MAX_PROBLEMS = 5
"""How many problems of one record a message names, so that a record with many of them does not flood the log."""

MAX_TEXT = 500
"""How many characters of what a validator says are kept."""
MAX_TRAIL = 20
"""How many frames of where a validator raised are kept, the innermost ones."""

Names = Callable[[], frozenset[str]]
"""Returns the field names that the annotation declares; called only after a failed decode."""

_MISSING_TYPES = frozenset({"missing", "missing_argument", "missing_keyword_only_argument", "union_tag_not_found"})
_ENUM_TYPES = frozenset({"enum", "literal_error", "union_tag_invalid"})
_NOT_JSON_TYPES = frozenset({"json_invalid", "json_type", "string_unicode", "bytes_invalid_encoding"})

_MSGSPEC_PATH = re.compile(r" - at (?:`key` in )?`(?P<path>\$[^`]*)`\Z")
_TOP_LEVEL = re.compile(r"\$\.[^.\[\]]+")
_MSGSPEC_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_MSGSPEC_KINDS: tuple[tuple[str, str, str], ...] = (
    # (start of msgspec's message, our code, our text)
    ("Invalid enum value", ENUM_INVALID, "is none of the allowed values"),
    ("Invalid value", ENUM_INVALID, "is none of the allowed tags"),
    ("Object contains unknown field", SCHEMA_INVALID, "has a field that is not declared"),
    ("Integer value out of range", SCHEMA_INVALID, "is a number out of range"),
    ("Number out of range", SCHEMA_INVALID, "is a number out of range"),
    ("Invalid", SCHEMA_INVALID, "has the wrong format"),
)
_MSGSPEC_EXPECTED = re.compile(r"Expected `(?P<want>[^`]*)`(?:, got `(?P<got>[a-z]+)`)?")
_BYTE = re.compile(r"\(byte (\d+)\)\Z")
_LINE = re.compile(r"line (\d+) column (\d+)\Z")
_DECLARED_CONTEXT = frozenset(
    [
        "gt",
        "ge",
        "lt",
        "le",
        "multiple_of",
        "min_length",
        "max_length",
        "field_type",
        "pattern",
        "expected",
        "expected_tags",
        "expected_schemes",
        "class",
        "class_name",
        "max_digits",
        "decimal_places",
        "whole_digits",
    ]
)
"""What pydantic adds to an error from the declaration; everything else in its context may be payload."""
_PATH_PART = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\.\.\.|\d+)\]")


class _Problem(NamedTuple):
    """One defect of a value: in words without payload, the text of the validator that raised, and where it raised."""

    shown: str
    text: str = ""
    trail: tuple[CodePlace, ...] = ()

    @property
    def detail(self) -> str:
        return f"{self.shown}: {json.dumps(self.text, ensure_ascii=False)}" if self.text else self.shown


def describe(error: Exception, value: bytes, *, wanted: str, names: Names) -> DecodeError:
    """The error for a value that cannot be decoded, without any part of the value. Never raises."""
    try:
        code, problems = _problems(error, value, names)
    except Exception:  # noqa: BLE001  also for an error that cannot be formatted
        code, problems = DECODE_FAILED, [_Problem(f"cannot be decoded ({_type_name(error)})")]
    first = problems[:MAX_PROBLEMS]
    more = f"; and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
    prefix, has_detail = f"the value does not match {wanted}: ", any(problem.text for problem in first)
    return DecodeError(
        f"{prefix}{'; '.join(problem.shown for problem in first)}{more}",
        code=code,
        error_class=error_class(error),
        detail=f"{prefix}{'; '.join(problem.detail for problem in first)}{more}" if has_detail else "",
        trail=next((problem.trail for problem in first if problem.trail), ()),
    )


def describe_custom(error: Exception, value: bytes, *, decoder: str, wanted: str) -> DecodeError:
    """The error for a value that the user's decoder refused. Its own message is kept, but for those of pydantic and
    msgspec, which quote the payload: they are described as always, and are not chained.
    """
    core = sys.modules.get("pydantic_core")
    if isinstance(error, msgspec.MsgspecError) or (core is not None and isinstance(error, core.ValidationError)):
        return describe(error, value, wanted=wanted, names=frozenset)
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  an error that cannot be formatted
        text = ""
    failure = DecodeError(
        f"the decoder {decoder}() raised {_type_name(error)}{f': {text}' if text else ''}",
        error_class=error_class(error),
    )
    failure.__cause__ = error
    return failure


def describe_invalid(error: Any, *, schema: str, declared: frozenset[str]) -> DecodeError:
    """The error for JSON that its JSON Schema does not allow: where, and by which keyword. `error` is jsonschema's."""
    path = _pydantic_path(list(error.absolute_path), declared)
    if error.validator == "required":
        lacks = [name for name in error.validator_value if name in declared and name not in error.instance]
        code, why = MISSING_REQUIRED_FIELD, f"lacks {', '.join(f'`{name}`' for name in lacks)}"
    else:
        code = ENUM_INVALID if error.validator in ("enum", "const") else SCHEMA_INVALID
        why = f"does not keep to {error.validator!r}"
    return DecodeError(f"the value does not match {schema}: {_at(path) or 'it '}{why}", code=code)


def tombstone(wanted: str) -> DecodeError:
    """The error for a null value that the handler does not accept."""
    return DecodeError(
        f"the value is null (a tombstone), but the handler takes {wanted}; "
        f"annotate `{wanted} | None` to receive tombstones, or set tombstones to discard",
        code=TOMBSTONE,
    )


def _problems(error: Exception, value: bytes, names: Names) -> tuple[str, list[_Problem]]:
    if isinstance(error, msgspec.ValidationError):
        if error.__cause__ is not None:  # raised by the user's __post_init__
            reason = f"{REJECTED} ({_type_name(error.__cause__)})"
            return SCHEMA_INVALID, [_raised(f"is {reason}", error.__cause__)]
        code, shown = _from_msgspec(error, names)
        return code, [_Problem(shown)]
    if isinstance(error, msgspec.DecodeError):
        return DECODE_FAILED, [_Problem(_malformed(str(error), value))]
    if isinstance(error, UnicodeDecodeError):
        return DECODE_FAILED, [_Problem(f"is not UTF-8 (byte {error.start})")]
    if isinstance(error, RecursionError):
        return DECODE_FAILED, [_Problem("is nested too deeply")]
    core = sys.modules.get("pydantic_core")
    if core is not None and isinstance(error, core.ValidationError):
        return _from_pydantic(error, names)
    return DECODE_FAILED, [_raised(f"cannot be decoded ({_type_name(error)})", error)]


def _raised(shown: str, error: BaseException) -> _Problem:
    """The problem that a validator of the user's raised an error."""
    try:
        text = str(error)[:MAX_TEXT]
    except Exception:  # noqa: BLE001  an error that cannot be formatted
        text = ""
    return _Problem(shown, text, tuple(deque(code_places(error.__traceback__), MAX_TRAIL)))


def _malformed(message: str, value: bytes) -> str:
    """Where in the value it is not JSON. Columns count bytes from 1, as pydantic does."""
    if message.startswith("Input data was truncated"):
        return "truncated JSON" if value else "empty, not JSON"
    at = _BYTE.search(message)
    if at is None:
        return "not JSON"
    before = value[: int(at[1])]
    return f"line {before.count(NEWLINE) + 1} column {len(before) - before.rfind(NEWLINE)}: not JSON"


def _from_msgspec(error: msgspec.ValidationError, names: Names) -> tuple[str, str]:
    message, declared = str(error), names()
    found = _MSGSPEC_PATH.search(message)
    path = _msgspec_path(found["path"], declared) if found else ""
    missing = _MSGSPEC_MISSING.match(message)
    if missing:
        name = missing["name"]
        if name not in declared:
            return MISSING_REQUIRED_FIELD, f"{_at(path)}lacks a field"
        return MISSING_REQUIRED_FIELD, f"{_at(f'{path}.{name}'.lstrip('.'))}is required"
    expected = _MSGSPEC_EXPECTED.match(message)
    if expected:
        got = f", not {expected['got']}" if expected["got"] else " within its limits"
        return SCHEMA_INVALID, f"{_at(path)}must be {expected['want']}{got}"
    if found and message.startswith("Invalid value") and _TOP_LEVEL.fullmatch(found["path"]):
        return UNKNOWN_TYPE, f"{_at(path)}is none of the allowed tags"
    for start, code, text in _MSGSPEC_KINDS:
        if message.startswith(start):
            return code, f"{_at(path)}{text}"
    return SCHEMA_INVALID, f"{_at(path)}is not as declared"


def _msgspec_path(path: str, declared: frozenset[str]) -> str:
    """The path without its `$`, or an empty string if a step of it is not declared.

    msgspec quotes the name of an unknown field in the same message; it may look like a path.
    """
    parts: list[str] = []
    end = 1
    for part in _PATH_PART.finditer(path, 1):
        if part.start() != end:
            return ""
        end = part.end()
        name = part["name"]
        if name is not None and name not in declared:
            return ""
        parts.append(part[0])
    return "".join(parts).lstrip(".") if end == len(path) else ""


def _from_pydantic(error: Any, names: Names) -> tuple[str, list[_Problem]]:
    mistakes, declared = error.errors(include_url=False, include_input=False), names()
    problems = [_pydantic_problem(mistake, declared) for mistake in mistakes[:MAX_PROBLEMS]]
    problems.extend(_Problem("") for _ in range(len(mistakes) - MAX_PROBLEMS))  # counted, not shown
    if [(mistake["type"], mistake["loc"]) for mistake in mistakes] == [("union_tag_invalid", ())]:
        return UNKNOWN_TYPE, problems
    return _pydantic_code(mistake["type"] for mistake in mistakes), problems


REJECTED = "rejected by its own validation"


def _pydantic_problem(mistake: Any, declared: frozenset[str]) -> _Problem:
    at, kind = _at(_pydantic_path(mistake["loc"], declared)), mistake["type"]
    raised = mistake.get("ctx", {}).get("error")
    if kind in ("value_error", "assertion_error") and isinstance(raised, BaseException):
        return _raised(f"{at}is {REJECTED}", raised)
    if kind not in _pydantic_types():  # PydanticCustomError, of which pydantic keeps the text only
        return _Problem(f"{at}is {REJECTED}", str(mistake["msg"])[:MAX_TEXT])
    return _Problem(f"{at}{_pydantic_reason(mistake)}")


def _pydantic_reason(mistake: Any) -> str:
    """The reason in words: pydantic's own, with what the declaration says and without what the payload says."""
    from pydantic_core import PydanticKnownError

    kind, context = mistake["type"], mistake.get("ctx", {})
    if kind in _NOT_JSON_TYPES:
        at = _LINE.search(str(context.get("error", "")))
        return f"line {at[1]} column {at[2]}: not JSON" if at else "not JSON"
    if kind in _MISSING_TYPES:
        return "is required"
    if kind == "union_tag_invalid":
        return f"has none of the expected tags {context['expected_tags']}"
    payload = context.keys() - _DECLARED_CONTEXT
    if payload:
        return f"is not valid ({kind.replace('_', ' ')})"
    text = PydanticKnownError(kind, context or None).message()
    return f"must{text.removeprefix('Input should')}" if text.startswith("Input should") else _clause(text)


def _clause(text: str) -> str:
    return f"is not valid: {text[:1].lower()}{text[1:]}"


def _pydantic_code(kinds: Iterable[str]) -> str:
    """The specific code if all errors are of that kind, otherwise SCHEMA_INVALID."""
    codes = set()
    for kind in kinds:
        if kind in _NOT_JSON_TYPES:
            return DECODE_FAILED
        if kind in _MISSING_TYPES:
            codes.add(MISSING_REQUIRED_FIELD)
        elif kind in _ENUM_TYPES:
            codes.add(ENUM_INVALID)
        else:
            codes.add(SCHEMA_INVALID)
    return codes.pop() if len(codes) == 1 else SCHEMA_INVALID


def _pydantic_path(place: Sequence[str | int], declared: frozenset[str]) -> str:
    """The path. Keys of a dict and names of extra fields are payload: only declared names and positions are shown."""
    steps = []
    for step in place:
        if isinstance(step, int):
            steps.append(f"[{step}]")
        else:
            steps.append(f".{step}" if step in declared else "[...]")
    return "".join(steps).lstrip(".")


@lru_cache(maxsize=1)
def _pydantic_types() -> frozenset[str]:
    from pydantic_core import core_schema

    return frozenset(get_args(core_schema.ErrorType))


def _at(path: str) -> str:
    """Without quotes: what is quoted in a message is left out where messages are shown masked or compared."""
    return f"field {path} " if path else ""


def _type_name(error: BaseException) -> str:
    return type(error).__name__
