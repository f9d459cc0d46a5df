"""Causes, cases and letters as text and JSON: escaped, with payload only if revealed."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from keepfast.core.errors import DecodeError, Discard, RegistryError
from keepfast.core.schemas import Avro, JsonSchema, Protobuf, Schema, SchemaFormat, frame_of
from keepfast.deadletters.checked import iso
from keepfast.deadletters.envelope import schema_fields
from keepfast.deadletters.letter import Letter
from keepfast.decode.failures import DECODE_FAILED, SCHEMA_ID_MISSING
from keepfast.desk import AuditEntry, Case, CaseHistory, CaseState, Cause, RunFact, StoredLetter, Summary
from keepfast.desk.letters import SchemaReading
from keepfast.desk.masking import field_name, frames, masked_text, shape
from keepfast.telemetry.clean import clean_text, escaped, masked_tree

if TYPE_CHECKING:
    from keepfast.decode.schemas import SchemaSource

MAX_REVEALED = 100_000

CAUSE_COLUMNS = ("OPEN", "ALL", "CAUSE", "TYPE", "WHERE", "LAST SEEN", "GROUP", "AFTER REPLAY", "MESSAGE")
CASE_COLUMNS = ("LETTER", "STATE", "FAILED AT", "CAUSE", "TYPE", "WHERE", "FROM", "GROUP", "MISSING")
RUN_COLUMNS = ("RUN", "STATUS", "SENT", "OF", "OK", "FAILED AGAIN", "BY", "TOPIC", "WHY")
AUDIT_COLUMNS = ("AT", "BY", "ACTION", "COUNT", "TOPIC", "WHAT", "WHY")


def headline(summary: Summary, now_ms: int) -> str:
    """The state of things in one sentence."""
    counts = summary.counts
    if not summary.unresolved:
        closed = sum(counts.values())
        return "Nothing is dead." if not closed else f"Nothing is open; {closed:,} cases are closed."
    age = "" if summary.oldest_ms is None else f" · oldest {_age(now_ms - summary.oldest_ms)}"
    parts = [f"{counts.get(CaseState.OPEN, 0):,} open"]
    parts += [f"{counts[CaseState.REPLAYING]:,} being replayed"] if counts.get(CaseState.REPLAYING) else []
    parts += [f"{summary.causes:,} cause{'s' * (summary.causes != 1)}"]
    return " · ".join(parts) + age


def cause_row(cause: Cause) -> tuple[str, ...]:
    resolved = cause.counts.get(CaseState.RESOLVED, 0)
    replayed = f"{resolved:,} ok" if resolved else ""
    replayed += f"{', ' if resolved else ''}{cause.failed_again:,} failed again" if cause.failed_again else ""
    return (
        f"{cause.counts.get(CaseState.OPEN, 0):,}",
        f"{cause.count:,}",
        cause.fingerprint or "-",
        cause.error_type,
        cause.place or "-",
        _at(cause.last_ms),
        _most_common(cause.groups),
        replayed or "-",
        _with_fields(cause.message, cause.fields) or "-",
    )


def cause_fields(cause: Cause) -> dict[str, Any]:
    """One cause for --json."""
    return {
        "fingerprint": cause.fingerprint,
        "count": cause.count,
        "unresolved": cause.unresolved,
        "states": {str(state): count for state, count in cause.counts.items()},
        "failed_again": cause.failed_again,
        "error_type": cause.error_type,
        "message": cause.message,
        "place": cause.place,
        "missing_fields": list(cause.fields),
        "codes": dict(cause.codes),
        "first_seen": iso(cause.first_ms),
        "last_seen": iso(cause.last_ms),
        "groups": dict(cause.groups),
        "original_topics": dict(cause.topics),
        "topics": dict(cause.dlqs),
        "sample": cause.sample.name,
        "hours": list(cause.hours),
    }


def case_row(case: Case) -> tuple[str, ...]:
    return (
        case.letter.name,
        ", ".join((case.state, *case.badges)),
        _at(case.last_ms),
        case.fingerprint or "-",
        case.error_type or "-",
        case.place or "-",
        _origin(case),
        case.group or "-",
        ", ".join(case.fields) or "-",
    )


def case_fields(case: Case) -> dict[str, Any]:
    """One case for --json."""
    return {
        "case": case.id,
        "state": str(case.state),
        "badges": list(case.badges),
        "topic": case.letter.topic,
        "partition": case.letter.partition,
        "offset": case.letter.offset,
        "letters": case.letters,
        "original_topic": case.topic,
        "original_partition": case.partition,
        "original_offset": case.offset,
        "consumer_group": case.group,
        "first_failed_at": iso(case.first_ms),
        "failed_at": iso(case.last_ms),
        "fingerprint": case.fingerprint,
        "error_type": case.error_type,
        "error_message": case.message,
        "error_code": case.code,
        "place": case.place,
        "missing_fields": list(case.fields),
        "key_hash": case.key_hash,
        "replays": case.replays,
        "failed_again": case.failed_again,
        "note": case.note,
    }


def run_row(run: RunFact, succeeded: int, failed_again: int) -> tuple[str, ...]:
    counts = (f"{run.sent:,}", f"{run.total:,}", f"{succeeded:,}", f"{failed_again:,}")
    return (run.run, run.status, *counts, run.by, run.topic, run.why or "-")


def run_fields(run: RunFact, succeeded: int, failed_again: int) -> dict[str, Any]:
    done = {"succeeded": succeeded, "failed_again": failed_again}
    return {"run": run.run, **run.fields(), **done, "at": iso(run.at_ms), "updated": iso(run.updated_ms)}


def audit_row(entry: AuditEntry) -> tuple[str, ...]:
    whole = (entry.topic or "-", entry.what or "-", entry.why or "-")
    return (_at(entry.at_ms), entry.by, entry.action, f"{entry.count:,}", *whole)


def audit_fields(entry: AuditEntry) -> dict[str, Any]:
    return {
        "at": iso(entry.at_ms),
        "by": entry.by,
        "action": entry.action,
        "count": entry.count,
        "topic": entry.topic,
        "what": entry.what,
        "why": entry.why,
        "result": entry.result,
        "via": entry.via,
        "details": dict(entry.details),
    }


def letter_fields(stored: StoredLetter, *, reveal: bool = False, decoded: bytes | None = None) -> dict[str, Any]:
    """One letter for --json. Key, value and headers are base64 and only present if revealed. `decoded` is the value as
    JSON, where it is none and was decoded by its schema.
    """
    letter = stored.letter
    fields: dict[str, Any] = {
        "topic": stored.place.topic,
        "partition": stored.place.partition,
        "offset": stored.place.offset,
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
        "error_message": letter.error_message if reveal else masked_text(letter.error_message, letter),
        "error_code": letter.error_code,
        "error_classification": letter.classification,
        "reason": letter.reason if reveal else masked_text(letter.reason, letter),
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
        fields["key"], fields["value"] = _base64(letter.key), _base64(letter.value)
        fields["decoded"] = None if decoded is None else json.loads(decoded)
        fields["headers"] = [[name, _base64(value)] for name, value in letter.headers]
    else:
        fields["key_bytes"] = None if letter.key is None else len(letter.key)
        fields["value_bytes"] = None if letter.value is None else len(letter.value)
        fields["value_shape"] = shape(letter.value if decoded is None else decoded)
        fields["header_names"] = [field_name(name) for name, _ in letter.headers]
        fields = masked_tree(fields)
    return fields


def letter_text(
    stored: StoredLetter, history: CaseHistory | None, *, reveal: bool, decoded: bytes | None = None
) -> str:
    """One letter as text; `decoded` as for `letter_fields`."""
    letter = stored.letter
    message = letter.error_message if reveal else masked_text(letter.error_message, letter)
    reason = letter.reason if reveal else masked_text(letter.reason, letter)
    fields = {
        "Letter": f"{stored.place.topic} {stored.name}, format {letter.format}, filed {_at(stored.filed_at_ms)}",
        "State": "" if history is None else ", ".join((history.case.state, *history.case.badges)),
        "Case": "" if history is None else history.case.id,
        "Record": f"{_origin(letter)}, sent {_at(letter.timestamp_ms)}",
        "Error": letter.error_class or letter.error_type,
        "Raised from": letter.error_cause,
        "Message": message,
        "Where": "" if history is None else history.case.place,
        "Missing": "" if history is None else ", ".join(history.case.fields),
        "Code": letter.error_code,
        "Kind": letter.classification,
        "Reason": reason,
        "Cause": letter.fingerprint,
        "Failed": f"{_at(letter.failed_at_ms)}, after {_retries(letter.retry_count)}",
        "Group": letter.group,
        "Handler": letter.handler,
        "App version": letter.app_version,
        "Trace": letter.trace_id,
        "Schema": "" if letter.schema is None else str(letter.schema),
        "Note": "" if history is None else history.case.note,
    }
    limit, safe = (MAX_REVEALED, escaped) if reveal else (500, clean_text)
    lines = [f"{click.style(name.ljust(12), bold=True)} {safe(text, limit)}" for name, text in fields.items() if text]
    lines += [f"  {_at(one.at_ms)}  {safe(one.error_type, 100)}" for one in letter.attempts]
    lines += [] if history is None else [f"  {line}" for line in _history(history)]
    stack = letter.stack_trace.splitlines() if reveal else frames(letter.stack_trace)
    if stack:
        lines += [click.style("Stack", bold=True), *(f"  {safe(line, 500)}" for line in stack)]
    return "\n".join(lines + (_revealed(stored, decoded) if reveal else _masked(stored, decoded)))


def _history(history: CaseHistory) -> list[str]:
    events = [(one.at_ms, f"dead-lettered{' again' if one.run else ''}") for one in history.letters]
    events += [(one.at_ms, f"replayed ({one.n}) to {one.topic} by run {one.run}") for one in history.sends]
    events += [(one.at_ms, f"{one.kind}{f' ({one.code})' if one.code else ''}") for one in history.outcomes]
    mark = history.mark
    if mark is not None:
        why = f": {clean_text(mark.why, 200)}" if mark.why else ""
        events.append((mark.at_ms, f"{mark.kind} by {clean_text(mark.by, 100)}{why}"))
    return [f"{_at(at_ms)}  {text}" for at_ms, text in sorted(events)] if len(events) > 1 else []


def _masked(stored: StoredLetter, decoded: bytes | None) -> list[str]:
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


def _revealed(stored: StoredLetter, decoded: bytes | None) -> list[str]:
    letter = stored.letter
    return [
        f"{click.style('Key', bold=True)} {text_of(letter.key)}",
        click.style("Headers", bold=True),
        *(f"  {escaped(name, 500)}: {text_of(value)}" for name, value in letter.headers),
        f"{click.style('Value', bold=True)} {_size(letter.value)}" + ("" if letter.exact else ", not the exact bytes"),
        f"  {text_of(letter.value if decoded is None else decoded)}",
    ]


def text_of(value: bytes | None) -> str:
    """A value as text, escaped; base64 if it is none."""
    if value is None:
        return "null"
    try:
        return escaped(value.decode("utf-8"), MAX_REVEALED)
    except UnicodeDecodeError:
        return f"base64 {b64encode(value[:MAX_REVEALED]).decode()}"


def _with_fields(message: str, fields: tuple[str, ...]) -> str:
    missing = f"missing: {', '.join(fields)}" if fields else ""
    return f"{missing} · {message}" if missing and message else missing or message


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _size(value: bytes | None) -> str:
    return "null" if value is None else f"({len(value):,} bytes)"


def _origin(one: Any) -> str:
    """Of a case or a letter."""
    if not one.topic:
        return "unknown"
    partition = "?" if one.partition is None else one.partition
    return f"{one.topic} {partition}:{'?' if one.offset is None else one.offset}"


def _most_common(counts: Mapping[str, int]) -> str:
    names = sorted(counts, key=lambda name: -counts[name])
    first = names[0] or "-"
    return f"{first} +{len(names) - 1}" if len(names) > 1 else first


def _iso(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)


def _at(at_ms: int | None) -> str:
    """The time in UTC, to the second."""
    return "-" if at_ms is None else iso(at_ms)[:19] + "Z"


def _age(ms: int) -> str:
    seconds = max(0, ms // 1000)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _retries(count: int) -> str:
    return "1 retry" if count == 1 else f"{count} retries"


def reading_of(letter: Letter, source: SchemaSource) -> SchemaReading | None:
    """The value by its schema; None if it has none. Asks the registry of `source`, which must ask at once, and blocks
    meanwhile.
    """
    from keepfast.decode.schemas import SchemaDecoder

    schema = letter.schema
    if schema is None or letter.value is None:
        return None
    try:
        reader = _reader(schema.format, letter.value, letter, source)
        decode = SchemaDecoder(letter.topic or "", reader, dict[str, Any], source=source)
        data = decode.read(letter.value, letter.headers)
        text = json.dumps(data, default=str, ensure_ascii=False)
    except (DecodeError, Discard, RegistryError) as error:
        return SchemaReading(None, str(error))
    except (ValueError, RecursionError) as error:
        return SchemaReading(None, f"it cannot be shown as JSON ({type(error).__name__})")
    return SchemaReading(text.encode("utf-8", "replace"), f"read by {schema}")


def _reader(format: SchemaFormat, value: bytes, letter: Letter, source: SchemaSource) -> Schema:  # noqa: A002 - what it is
    """Raises DecodeError and RegistryError."""
    match format:
        case "avro":
            return Avro()
        case "json":
            return JsonSchema()
        case "protobuf":
            return Protobuf(_class_of(value, letter, source))


def _class_of(value: bytes, letter: Letter, source: SchemaSource) -> type[Any]:
    from keepfast.decode.protobuf import class_at

    frame = frame_of(value, letter.headers)
    if frame is None:
        raise DecodeError("no schema id", code=SCHEMA_ID_MISSING)
    found = source.registry.of_frame(frame, letter.topic or "", "protobuf")
    try:
        return class_at(source.registry, found, source.registry.indexes_of(value, letter.headers))
    except RegistryError:
        raise
    except Exception as error:  # whatever the library says of a schema or value that is broken
        raise DecodeError(f"no message of its schema ({type(error).__name__})", code=DECODE_FAILED) from error
