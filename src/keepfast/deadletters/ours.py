"""Our own headers: `keepfast-*`, always after the original ones, and stripped before a new letter is built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from keepfast.core.inbox import ORIGIN
from keepfast.core.replays import REPLAY, ReplayMark
from keepfast.deadletters import checked
from keepfast.deadletters.letter import MAX_GROUP, MAX_ID, Bytes, Headers, Letter

PREFIX: Final = "keepfast-"
SPRING_PREFIX: Final = "kafka_dlt-"

LETTER_ID: Final = "keepfast-letter-id"
ERROR_CODE: Final = "keepfast-error-code"
ORIGINAL_HEADERS: Final = "keepfast-original-headers"
"""How many headers at the front are the original's. Only on letters in the format `headers`."""
TRACEPARENT: Final = "traceparent"


def last(headers: Sequence[tuple[str, Bytes]], name: str) -> Bytes:
    """The value of the last header of this name; None if there is none, or if it is null."""
    return next((value for known, value in reversed(headers) if known == name), None)


def originals(headers: Sequence[tuple[str, Bytes]]) -> Headers:
    """The headers that the record's producer sent: without ours.

    Headers named `kafka_dlt-…` are the producer's, unless a whole letter of ours was copied back to its topic.
    """
    count = original_count(headers)
    return tuple(pair for pair in headers[: len(headers) if count is None else count] if not is_ours(pair[0]))


def original_count(headers: Sequence[tuple[str, Bytes]]) -> int | None:
    """The number of original headers in a letter of the format `headers`; None if it is not such a letter.

    What follows must all be ours: a forged count cannot make other headers vanish.
    """
    count = checked.digits(last(headers, ORIGINAL_HEADERS), len(headers))
    if count is None or not all(is_ours(name) or name.startswith(SPRING_PREFIX) for name, _ in headers[count:]):
        return None
    return count


def only_id(letter: Letter) -> Headers:
    """The headers of the smallest letter: the original ones, where the record was first, its id, and the replay that it
    came from.
    """
    return (*letter.headers, *origin_note(letter), *encoded([(LETTER_ID, letter.id)]), *replay_header(letter))


def origin_note(letter: Letter) -> Headers:
    """Where the record was first, for replays of the letter."""
    return () if letter.origin is None else (letter.origin.note,)


def read_only_id(key: Bytes, value: Bytes, headers: Headers) -> Letter | None:
    """Read a letter with headers of `only_id`; None if it is not one."""
    if not headers or headers[-1][0] not in (LETTER_ID, REPLAY, ORIGIN):
        return None
    count = next((index for index, (name, _) in enumerate(headers) if is_ours(name)), len(headers))
    names = [name for name, _ in headers[count:] if name != ORIGIN]
    if names not in ([LETTER_ID], [LETTER_ID, REPLAY]):
        return None
    parts = checked.utf8(last(headers, LETTER_ID), MAX_ID).rsplit("/", 3)
    if len(parts) < 4 or checked.topic(parts[1]) is None:
        return None
    partition = checked.digits(parts[2].encode(), checked.MAX_PARTITION)
    offset = checked.digits(parts[3].encode())
    if partition is None or offset is None:
        return None
    return Letter(
        topic=parts[1],
        partition=partition,
        offset=offset,
        key=key,
        value=value,
        headers=headers[:count],
        group=parts[0][:MAX_GROUP],
        format="headers",
    )


def is_ours(name: str) -> bool:
    return name.startswith(PREFIX)


def replays(headers: Sequence[tuple[str, Bytes]]) -> int:
    """How often this record was replayed."""
    mark = ReplayMark.of(headers)
    return mark.n if mark is not None else 0


def for_replay(letter: Letter, *marks: ReplayMark, topic: str) -> Headers:
    """The headers of a record that is replayed as one of this topic: the original ones, and ours last."""
    origin = () if letter.origin is None else (letter.origin.header(topic, letter.value),)
    return (*letter.headers, *origin, *(mark.header for mark in marks))


def replay_header(letter: Letter) -> Headers:
    """On the letter of a replayed record: the header that the record had."""
    return () if letter.replay is None else (letter.replay.header,)


def encoded(texts: Iterable[tuple[str, str]]) -> Headers:
    return tuple((name, value.encode("utf-8", "replace")) for name, value in texts)
