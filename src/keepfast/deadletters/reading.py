"""Parses a record of a dead-letter topic, in any supported format. Never raises."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from keepfast.core.inbox import ORIGIN, noted_origin
from keepfast.core.policies import LETTER_FORMATS
from keepfast.core.records import Record
from keepfast.core.replays import REPLAY, ReplayMark
from keepfast.deadletters import checked, envelope, foreign, inline, nested, ours, spring, spring_letters
from keepfast.deadletters.fingerprint import fingerprint
from keepfast.deadletters.letter import Bytes, Headers, Letter

_MARKS: Final = {family.topic: family for family in foreign.FAMILIES}


def read(record: Record, *, diagnosed: Collection[str] = ()) -> Letter:
    """The letter in a record. One of no known format has the format `unknown`, and the record itself as original.

    A writer of letters appends headers to the original ones, so the family whose mark comes last wrote the letter; a
    producer that forges such headers, or a payload that looks like a letter, is not mistaken for one.

    `diagnosed`: fingerprints of causes that the caller knows. A letter in JSON with one of them is read without what it
    says about the error, its attempts, and its schema, which takes less than half the time.
    """
    letter = _read(record.key, record.value, record.headers, diagnosed)
    names = {name for name, _ in record.headers}
    changes: dict[str, Any] = {}
    if REPLAY in names:
        changes["replay"] = ReplayMark.of(record.headers, letter.group)
        changes["headers"] = tuple(pair for pair in letter.headers if pair[0] != REPLAY)
    if not letter.fingerprint and (letter.error_class or letter.error_type):
        changes["fingerprint"] = fingerprint(letter.error_class or letter.error_type, letter.error_message)
    if not letter.trace_id and ours.TRACEPARENT in names:
        changes["trace_id"] = checked.trace_id(ours.last(letter.headers, ours.TRACEPARENT))
    if ORIGIN in names and letter.format in LETTER_FORMATS:
        changes["origin"] = noted_origin(record.headers, topic="", value=b"")
    return replace(letter, **changes) if any(changes.values()) or "headers" in changes else letter


def _read(key: Bytes, value: Bytes, headers: Headers, diagnosed: Collection[str]) -> Letter:
    for name, _ in reversed(headers):
        if name in (ours.LETTER_ID, ours.ORIGINAL_HEADERS):
            return _own(key, value, headers, diagnosed)
        if name in spring_letters.MARKS and spring_letters.is_letter(spring_letters.MARKS[name], headers):
            return _replayed(spring_letters.read(spring_letters.MARKS[name], key, value, headers))
        if name in _MARKS:
            return _replayed(foreign.read(_MARKS[name], key, value, headers))
    return _from_value(key, value, headers, diagnosed)


def _replayed(letter: Letter) -> Letter:
    """A letter of another program about a record that we replayed, without our headers."""
    kept = tuple(pair for pair in letter.headers if not ours.is_ours(pair[0]))
    return letter if len(kept) == len(letter.headers) else replace(letter, headers=kept)


def _own(key: Bytes, value: Bytes, headers: Headers, diagnosed: Collection[str]) -> Letter:
    count = ours.original_count(headers)
    if count is not None:
        return spring.read_ours(key, value, headers, count)
    return ours.read_only_id(key, value, headers) or _from_value(key, value, headers, diagnosed)


def _from_value(key: Bytes, value: Bytes, headers: Headers, diagnosed: Collection[str]) -> Letter:
    kept = tuple(pair for pair in headers if not ours.is_ours(pair[0]))
    brief = envelope.brief_of(value, key, kept, diagnosed) if diagnosed and value is not None else None
    if brief is not None:
        return brief
    fields = inline.from_json(value)
    if fields is not None and nested.is_nested(fields):
        return envelope.letter_of(nested.flattened(fields), key, kept, "nested", diagnosed=diagnosed)
    if fields is not None and envelope.is_envelope(fields):
        return envelope.letter_of(fields, key, kept, diagnosed=diagnosed)
    return Letter(topic=None, partition=None, offset=None, key=key, value=value, headers=headers)
