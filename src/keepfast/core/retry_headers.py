"""What a record carries on its way through retry topics: a block of `keepfast-retry-…` headers behind its own.

    keepfast-retry-step                which move this was, counted from 1
    keepfast-retry-failures            failed attempts so far
    keepfast-retry-due-ms              not before this moment (wall clock)
    keepfast-retry-group               whose retry it is
    keepfast-retry-origin-topic …      where the record came from: topic, partition, offset, timestamp and its type
    keepfast-retry-attempts            when it failed and of what, as JSON; the first thing to go when room is short
    keepfast-retry-headers             how many headers before the block are the record's own; always the last

Anybody may have written them. Each is parsed with checks of its length, type and range; what does not fit is absent,
and nothing that they say makes a record wait longer than its topic's delay or go through more steps than there are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from keepfast.core.names import MAX_TOPIC_LENGTH, topic_problem
from keepfast.core.records import Headers
from keepfast.core.retry_topics import MOST_STEPS, Tier, Tiers
from keepfast.core.untrusted import LARGEST_PARTITION, digits, text, utf8, whole

PREFIX: Final = "keepfast-retry-"
STEP: Final = "keepfast-retry-step"
FAILURES: Final = "keepfast-retry-failures"
DUE: Final = "keepfast-retry-due-ms"
GROUP: Final = "keepfast-retry-group"
TOPIC: Final = "keepfast-retry-origin-topic"
PARTITION: Final = "keepfast-retry-origin-partition"
OFFSET: Final = "keepfast-retry-origin-offset"
TIMESTAMP: Final = "keepfast-retry-origin-timestamp-ms"
TIMESTAMP_KIND: Final = "keepfast-retry-origin-timestamp-type"
ATTEMPTS: Final = "keepfast-retry-attempts"
OWN_HEADERS: Final = "keepfast-retry-headers"

MOST_FAILURES: Final = 1_000_000
MOST_ATTEMPTS: Final = 20
"""Told one by one: the first and the last ones."""
LONGEST_TYPE: Final = 100
LARGEST_ATTEMPTS_BYTES: Final = 16_000
LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""

_LONGEST_BLOCK: Final = 16


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the record was before it was moved. `timestamp_kind` is the client's number for the timestamp's type."""

    topic: str
    partition: int
    offset: int
    timestamp_kind: int
    timestamp_ms: int


Told = tuple[float, str]
"""A failed attempt: when (wall clock) and the type of the error."""


@dataclass(frozen=True, slots=True)
class Past:
    """What became of a record before it came back. `headers` are its own; `origin` is None where nobody can tell it.

    `foreign`: it says that another group has moved it here, whose topics happen to have the same names.
    """

    step: int
    failures: int
    due_ms: int | None
    origin: Origin | None
    attempts: tuple[Told, ...]
    headers: tuple[tuple[str, bytes | None], ...]
    foreign: bool = False


def encode(past: Past, *, group: str) -> Headers:
    """All headers of the moved record: its own, then ours."""
    said: list[tuple[str, str]] = [
        (STEP, str(past.step)),
        (FAILURES, str(min(past.failures, MOST_FAILURES))),
        (DUE, str(past.due_ms)),
        (GROUP, group),
    ]
    if past.origin is not None:
        origin = past.origin
        said += [(TOPIC, origin.topic), (PARTITION, str(origin.partition)), (OFFSET, str(origin.offset))]
        if origin.timestamp_ms >= 0:
            said += [(TIMESTAMP, str(origin.timestamp_ms)), (TIMESTAMP_KIND, str(origin.timestamp_kind))]
    attempts = past.attempts
    if len(attempts) > MOST_ATTEMPTS:
        attempts = (attempts[0], *attempts[1 - MOST_ATTEMPTS :])
    if attempts:
        told = [[round(at * 1000), error_type[:LONGEST_TYPE]] for at, error_type in attempts]
        said.append((ATTEMPTS, json.dumps(told, separators=(",", ":"))))
    said.append((OWN_HEADERS, str(len(past.headers))))
    return (*past.headers, *((name, value.encode("utf-8", "replace")) for name, value in said))


def shortened(headers: Headers) -> Headers:
    """The same without the attempts told one by one; the very same if they are gone already."""
    count = _own(headers)
    if count is None:
        return headers
    kept = tuple(pair for index, pair in enumerate(headers) if index < count or pair[0] != ATTEMPTS)
    return headers if len(kept) == len(headers) else kept


def decode(headers: Headers, *, tier: Tier, tiers: Tiers) -> Past:
    """What the headers of a record in this retry topic say, as far as it can be believed. Never raises."""
    count = _own(headers)
    own = tuple(headers[: len(headers) if count is None else count])
    told: dict[str, bytes | None] = {} if count is None else dict(headers[count:])
    step = _step(digits(told.get(STEP), MOST_STEPS), tier, tiers)
    return Past(
        step=step,
        failures=digits(told.get(FAILURES), MOST_FAILURES) or max(step, 1),
        due_ms=digits(told.get(DUE), LAST_MS),
        origin=_origin(told, tier),
        attempts=_attempts(told.get(ATTEMPTS)),
        headers=own,
        foreign=_is_foreign(told.get(GROUP), tiers.group),
    )


def remaining_s(past: Past, timestamp_ms: int | None, *, wall_s: float, delay_s: float) -> float:
    """How long the record has still to wait. It was written when it was moved, so it is due a delay later at most."""
    latest_ms = None if timestamp_ms is None else timestamp_ms + delay_s * 1000
    due_ms = min((ms for ms in (past.due_ms, latest_ms) if ms is not None), default=None)
    if due_ms is None:
        return delay_s
    return min(max(due_ms / 1000 - wall_s, 0.0), delay_s)


def due_ms(wall_s: float, delay_s: float) -> int:
    """When a record that is moved now is due: rounded up, never too early."""
    return min(math.ceil((wall_s + delay_s) * 1000), LAST_MS)


def _own(headers: Headers) -> int | None:
    """How many headers stand before the block; None if there is no block. A forged count makes no header vanish."""
    if not headers or headers[-1][0] != OWN_HEADERS:
        return None
    count = digits(headers[-1][1], len(headers) - 1)
    if count is None or len(headers) - count > _LONGEST_BLOCK:
        return None
    return count if all(name.startswith(PREFIX) for name, _ in headers[count:]) else None


def _is_foreign(told: bytes | None, group: str) -> bool:
    """What cannot be a group's name in a topic's name is nobody's."""
    if not told or len(told) > MAX_TOPIC_LENGTH:
        return False
    return topic_problem(utf8(told, MAX_TOPIC_LENGTH)) is None and told != group.encode()


def _step(told: int | None, tier: Tier, tiers: Tiers) -> int:
    """The topic itself says which steps end in it; of a topic that is left over, what is told is taken, capped."""
    possible = tiers.steps_at(tier)
    if possible:
        return told if told in possible else possible[-1]
    return min(told or len(tiers.delays_s), len(tiers.delays_s))


def _origin(told: dict[str, bytes | None], tier: Tier) -> Origin | None:
    partition, offset = digits(told.get(PARTITION), LARGEST_PARTITION), digits(told.get(OFFSET))
    if told.get(TOPIC) != tier.source.encode() or partition is None or offset is None:
        return None
    timestamp_ms, kind = digits(told.get(TIMESTAMP), LAST_MS), digits(told.get(TIMESTAMP_KIND), 2)
    if timestamp_ms is None or kind is None:
        return Origin(tier.source, partition, offset, 0, -1)
    return Origin(tier.source, partition, offset, kind, timestamp_ms)


def _attempts(told: bytes | None) -> tuple[Told, ...]:
    """Entries that make no sense are left out."""
    if told is None or len(told) > LARGEST_ATTEMPTS_BYTES:
        return ()
    try:
        listed = json.loads(told)
    except (ValueError, RecursionError):
        return ()
    entries: Sequence[object] = listed[:MOST_ATTEMPTS] if isinstance(listed, list) else ()
    found: list[Told] = []
    for entry in entries:
        if isinstance(entry, list) and len(entry) == 2:
            at_ms, error_type = whole(entry[0], LAST_MS), text(entry[1], LONGEST_TYPE)
            if at_ms is not None and error_type:
                found.append((at_ms / 1000, error_type.encode("utf-8", "replace").decode()))  # no half characters
    return tuple(found)
