"""Dead letters as text and JSON: tables and single letters, escaped, with payload only if revealed."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from typing import Any

import click

from keepfast.deadletters.checked import iso
from keepfast.deadletters.envelope import schema_fields
from keepfast.desk.letter_causes import LetterCause
from keepfast.desk.masking import field_name, frames, masked_text, shape
from keepfast.desk.selection import FiledLetter
from keepfast.telemetry.clean import clean_text, escaped, masked_tree

MAX_REVEALED = 100_000

CAUSE_COLUMNS = ("COUNT", "CAUSE", "TYPE", "CODE", "FIRST SEEN", "LAST SEEN", "MESSAGE")
LETTER_COLUMNS = ("LETTER", "FAILED AT", "CAUSE", "TYPE", "CODE", "FROM", "GROUP", "RETRIES", "REPLAYS")


def cause_row(cause: LetterCause) -> tuple[str, ...]:
    return (
        f"{cause.count:,}",
        cause.fingerprint or "-",
        cause.error_type,
        _most_common(cause.codes),
        _at(cause.first_ms),
        _at(cause.last_ms),
        cause.message or "-",
    )


def cause_fields(cause: LetterCause) -> dict[str, Any]:
    """One cause for --json."""
    return {
        "fingerprint": cause.fingerprint,
        "count": cause.count,
        "error_type": cause.error_type,
        "codes": dict(cause.codes.most_common()),
        "first_seen": _iso(cause.first_ms),
        "last_seen": _iso(cause.last_ms),
        "message": cause.message,
        "groups": dict(cause.groups.most_common()),
        "original_topics": dict(cause.topics.most_common()),
        "replayed_before": cause.replayed,
        "sample": cause.sample,
    }


def letter_row(stored: FiledLetter) -> tuple[str, ...]:
    letter = stored.letter
    return (
        stored.name,
        _at(stored.at_ms),
        letter.fingerprint or "-",
        letter.error_type or "-",
        letter.error_code or "-",
        _origin(stored),
        letter.group or "-",
        str(letter.retry_count),
        str(letter.replay_count),
    )


def letter_fields(stored: FiledLetter, *, reveal: bool = False, decoded: bytes | None = None) -> dict[str, Any]:
    """One letter for --json. Key, value and headers are base64 and only present if revealed. `decoded` is the value as
    JSON, where it is none and was decoded by its schema.
    """
    letter = stored.letter
    fields: dict[str, Any] = {
        "topic": stored.place.topic,
        "partition": stored.place.partition,
        "offset": stored.offset,
        "filed_at": _iso(stored.filed_at_ms),
        "id": letter.id,
        "format": letter.format,
        "exact": letter.exact,
        "original_topic": letter.topic,
        "original_partition": letter.partition,
        "original_offset": letter.offset,
        "original_timestamp": letter.timestamp_ms,
        "error_type": letter.error_type,
        "error_class": letter.error_class,
        "error_cause": letter.error_cause,
        "error_message": letter.error_message if reveal else masked_text(letter.error_message),
        "error_code": letter.error_code,
        "error_classification": letter.classification,
        "reason": letter.reason if reveal else masked_text(letter.reason),
        "fingerprint": letter.fingerprint,
        "failed_at": _iso(letter.failed_at_ms),
        "retry_count": letter.retry_count,
        "attempts": [{"at": iso(one.at_ms), "error_type": one.error_type} for one in letter.attempts],
        "consumer_group": letter.group,
        "handler": letter.handler,
        "app_version": letter.app_version,
        "trace_id": letter.trace_id,
        "schema": schema_fields(letter.schema),
        "replay_count": letter.replay_count,
        "replayed_from": letter.replayed_from,
        "stack_trace": letter.stack_trace.splitlines() if reveal else frames(letter.stack_trace),
    }
    if reveal:
        fields["key"] = _base64(letter.key)
        fields["value"] = _base64(letter.value)
        fields["decoded"] = None if decoded is None else json.loads(decoded)
        fields["headers"] = [[name, _base64(value)] for name, value in letter.headers]
    else:
        fields["key_bytes"] = None if letter.key is None else len(letter.key)
        fields["value_bytes"] = None if letter.value is None else len(letter.value)
        fields["value_shape"] = shape(letter.value if decoded is None else decoded)
        fields["header_names"] = [field_name(name) for name, _ in letter.headers]
        fields = masked_tree(fields)
    return fields


def letter_text(stored: FiledLetter, *, reveal: bool, decoded: bytes | None = None) -> str:
    """One letter as text; `decoded` as for `letter_fields`."""
    letter = stored.letter
    message = letter.error_message if reveal else masked_text(letter.error_message)
    reason = letter.reason if reveal else masked_text(letter.reason)
    fields = {
        "Letter": f"{stored.place.topic} {stored.name}, format {letter.format}, filed {_at(stored.filed_at_ms)}",
        "Record": f"{_origin(stored)}, sent {_at(letter.timestamp_ms)}",
        "Error": letter.error_class or letter.error_type,
        "Raised from": letter.error_cause,
        "Message": message,
        "Code": letter.error_code,
        "Kind": letter.classification,
        "Reason": reason,
        "LetterCause": letter.fingerprint,
        "Failed": f"{_at(letter.failed_at_ms)}, after {_retries(letter.retry_count)}",
        "Group": letter.group,
        "Handler": letter.handler,
        "App version": letter.app_version,
        "Trace": letter.trace_id,
        "Schema": "" if letter.schema is None else str(letter.schema),
        "Replayed": f"{letter.replay_count} times, last from {letter.replayed_from}" if letter.replay_count else "",
    }
    limit, safe = (MAX_REVEALED, escaped) if reveal else (500, clean_text)
    lines = [f"{click.style(name.ljust(12), bold=True)} {safe(text, limit)}" for name, text in fields.items() if text]
    lines += [f"  {_at(one.at_ms)}  {safe(one.error_type, 100)}" for one in letter.attempts]
    stack = letter.stack_trace.splitlines() if reveal else frames(letter.stack_trace)
    if stack:
        lines += [click.style("Stack", bold=True), *(f"  {safe(line, 500)}" for line in stack)]
    return "\n".join(lines + (_revealed(stored, decoded) if reveal else _masked(stored, decoded)))


def _masked(stored: FiledLetter, decoded: bytes | None) -> list[str]:
    letter = stored.letter
    names = ", ".join(f"{field_name(name)} {_size(value)}" for name, value in letter.headers)
    body = json.dumps(shape(letter.value if decoded is None else decoded), indent=2, ensure_ascii=False)
    return [
        f"{click.style('Key', bold=True)} {_size(letter.key)}",
        f"{click.style('Headers', bold=True)} {clean_text(names, 2000) or 'none'}",
        f"{click.style('Value', bold=True)} {_size(letter.value)}" + ("" if letter.exact else ", not the exact bytes"),
        *(f"  {clean_text(line, 200)}" for line in body.splitlines()),
        "--reveal shows key, headers, value and messages unmasked.",
    ]


def _revealed(stored: FiledLetter, decoded: bytes | None) -> list[str]:
    letter = stored.letter
    return [
        f"{click.style('Key', bold=True)} {_text(letter.key)}",
        click.style("Headers", bold=True),
        *(f"  {escaped(name, 500)}: {_text(value)}" for name, value in letter.headers),
        f"{click.style('Value', bold=True)} {_size(letter.value)}" + ("" if letter.exact else ", not the exact bytes"),
        f"  {_text(letter.value if decoded is None else decoded)}",
    ]


def _text(value: bytes | None) -> str:
    if value is None:
        return "null"
    try:
        return escaped(value.decode("utf-8"), MAX_REVEALED)
    except UnicodeDecodeError:
        return f"base64 {b64encode(value[:MAX_REVEALED]).decode()}"


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _size(value: bytes | None) -> str:
    return "null" if value is None else f"({len(value):,} bytes)"


def _origin(stored: FiledLetter) -> str:
    letter = stored.letter
    if letter.topic is None:
        return "unknown"
    partition = "?" if letter.partition is None else letter.partition
    return f"{letter.topic} {partition}:{'?' if letter.offset is None else letter.offset}"


def _most_common(counter: Counter[str]) -> str:
    if not counter:
        return "-"
    [(name, _), *more] = counter.most_common()
    return f"{name} +{len(more)}" if more else name


def _iso(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)


def _at(at_ms: int | None) -> str:
    """The time in UTC, to the second."""
    return "-" if at_ms is None else iso(at_ms)[:19] + "Z"


def _retries(count: int) -> str:
    return "1 retry" if count == 1 else f"{count} retries"
