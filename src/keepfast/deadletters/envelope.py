"""The format `envelope`: one flat JSON object. Key and headers of the original are the letter's own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Literal, get_args

import msgspec

from keepfast.core.schemas import SchemaFormat, SchemaRef
from keepfast.deadletters import checked, inline
from keepfast.deadletters.checked import iso
from keepfast.deadletters.letter import (
    MAX_ATTEMPTS,
    MAX_GROUP,
    MAX_MESSAGE,
    MAX_NAME,
    MAX_REASON,
    MAX_STACK,
    TIMESTAMP_TYPES,
    Attempted,
    Bytes,
    Headers,
    Letter,
    TimestampType,
)

VERSION: Final = 1
_MAX_RETRIES: Final = 2**31 - 1
_BEGINNING: Final = b'{"version":1,"id":"'
"""Of every letter that `write` makes."""


def write(letter: Letter) -> bytes:
    """The letter's value."""
    return inline.as_json(fields_of(letter))


def fields_of(letter: Letter) -> dict[str, Any]:
    return {
        "version": VERSION,
        "id": letter.id,
        **inline.encode_value(letter.value),
        "error_type": letter.error_type,
        "error_class": letter.error_class,
        "error_cause": letter.error_cause,
        "error_message": letter.error_message,
        "error_code": letter.error_code,
        "error_classification": letter.classification,
        "reason": letter.reason,
        "fingerprint": letter.fingerprint,
        "failed_at": None if letter.failed_at_ms is None else iso(letter.failed_at_ms),
        "retry_count": letter.retry_count,
        "attempts": [{"at": iso(one.at_ms), "error_type": one.error_type} for one in letter.attempts],
        "original_topic": letter.topic,
        "original_partition": letter.partition,
        "original_offset": letter.offset,
        "original_timestamp": letter.timestamp_ms,
        "original_timestamp_type": letter.timestamp_type,
        "consumer_group": letter.group,
        "handler": letter.handler,
        "app_version": letter.app_version,
        "trace_id": letter.trace_id,
        "schema": schema_fields(letter.schema),
        "replay_count": letter.replay_count,
        "replayed_from": letter.replayed_from,
        "stack_trace": letter.stack_trace,
    }


def is_envelope(fields: dict[str, Any]) -> bool:
    """Whether it is an envelope of this version, an older one, or another program of the same standard."""
    return "original_message" in fields and "error_type" in fields


def letter_of(
    fields: dict[str, Any],
    key: Bytes,
    headers: Headers,
    form: Literal["envelope", "nested"] = "envelope",
    *,
    diagnosed: Collection[str] = (),
) -> Letter:
    """The fields of the letter, each validated by itself; missing and invalid ones are absent. `diagnosed`: see
    `reading.read`.
    """
    value, exact = inline.decode_value(fields)
    fingerprint = _name(fields, "fingerprint")
    return Letter(
        topic=checked.topic(checked.text(fields.get("original_topic"), 1_000)),
        partition=checked.whole(fields.get("original_partition"), checked.MAX_PARTITION),
        offset=checked.whole(fields.get("original_offset")),
        timestamp_ms=checked.whole(fields.get("original_timestamp")),
        timestamp_type=timestamp_type(fields.get("original_timestamp_type")),
        key=key,
        value=value,
        headers=headers,
        exact=exact,
        error_code=_name(fields, "error_code"),
        fingerprint=fingerprint,
        failed_at_ms=checked.instant_ms(fields.get("failed_at")),
        group=checked.text(fields.get("consumer_group"), MAX_GROUP),
        format=form,
        **({} if fingerprint and fingerprint in diagnosed else _diagnostics(fields)),
    )


class _Brief(msgspec.Struct):
    """The fields of a letter of a known cause that matter, as `write` makes them."""

    original_message: msgspec.Raw
    original_encoding: Literal["json"]
    error_code: str
    fingerprint: str
    failed_at: str | None
    original_topic: str
    original_partition: int
    original_offset: int
    original_timestamp: int | None
    consumer_group: str
    original_bytes: None = None


_BRIEF: Final = msgspec.json.Decoder(_Brief)


def brief_of(written: bytes, key: Bytes, headers: Headers, diagnosed: Collection[str]) -> Letter | None:
    """The same as `letter_of` of a letter whose fingerprint is in `diagnosed`, in half the time; None if it cannot
    tell: then `letter_of` does. The value is a part of the letter, byte for byte, because `write` writes compact JSON.
    """
    if not written.startswith(_BEGINNING):
        return None
    try:
        found = _BRIEF.decode(written)
    except (ValueError, RecursionError):
        return None
    if found.fingerprint not in diagnosed:
        return None
    return Letter(
        topic=checked.topic(checked.text(found.original_topic, 1_000)),
        partition=checked.whole(found.original_partition, checked.MAX_PARTITION),
        offset=checked.whole(found.original_offset),
        timestamp_ms=checked.whole(found.original_timestamp),
        key=key,
        value=bytes(found.original_message),
        headers=headers,
        error_code=checked.text(found.error_code, MAX_NAME),
        fingerprint=found.fingerprint,
        failed_at_ms=checked.instant_ms(found.failed_at),
        group=checked.text(found.consumer_group, MAX_GROUP),
        format="envelope",
    )


def _diagnostics(fields: dict[str, Any]) -> dict[str, Any]:
    """What a letter says about the error, beside where and when."""
    return {
        "error_type": _name(fields, "error_type"),
        "error_class": _name(fields, "error_class"),
        "error_cause": _name(fields, "error_cause"),
        "error_message": checked.text(fields.get("error_message"), MAX_MESSAGE),
        "classification": _name(fields, "error_classification"),
        "reason": checked.text(fields.get("reason"), MAX_REASON),
        "stack_trace": checked.text(fields.get("stack_trace"), MAX_STACK),
        "retry_count": checked.whole(fields.get("retry_count"), _MAX_RETRIES) or 0,
        "attempts": attempts_of(fields.get("attempts")),
        "handler": _name(fields, "handler"),
        "app_version": _name(fields, "app_version"),
        "trace_id": _name(fields, "trace_id"),
        "schema": schema_of(fields.get("schema")),
    }


def schema_fields(schema: SchemaRef | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    return {"format": schema.format, "subject": schema.subject, "id": schema.id, "version": schema.version}


def schema_of(given: object) -> SchemaRef | None:
    """None for what is none."""
    if not isinstance(given, dict):
        return None
    known = next((one for one in get_args(SchemaFormat) if one == given.get("format")), None)
    if known is None:
        return None
    return SchemaRef(
        format=known,
        subject=checked.text(given.get("subject"), MAX_GROUP),
        id=checked.whole(given.get("id"), 2**31 - 1),
        version=checked.whole(given.get("version"), 2**31 - 1),
    )


def attempts_of(given: object) -> tuple[Attempted, ...]:
    """Invalid entries are left out."""
    found = []
    for one in given[:MAX_ATTEMPTS] if isinstance(given, list) else []:
        at_ms = checked.instant_ms(one.get("at")) if isinstance(one, dict) else None
        if at_ms is not None:
            found.append(Attempted(at_ms, _name(one, "error_type")))
    return tuple(found)


def timestamp_type(given: object) -> TimestampType:
    for known in TIMESTAMP_TYPES:
        if known == given:
            return known
    return "CreateTime"


def _name(fields: dict[str, Any], name: str) -> str:
    return checked.text(fields.get(name), MAX_NAME)
