"""Retry topics: where a record waits that failed too often in place, so that its partition continues meanwhile.

The topic of a delay is `<topic>.<group>.retry.<delay>`: two groups on one topic must not run each other's retries. A
record goes through the delays one by one, an attempt after each, and is dead-lettered after the last.

What a record carries on its way through retry topics: a block of `keepfast-retry-…` headers behind its own.

    keepfast-retry-step                which move this was, counted from 1
    keepfast-retry-failures            failed attempts so far
    keepfast-retry-due-ms              not before this moment (wall clock)
    keepfast-retry-group               whose retry it is
    keepfast-retry-origin-topic …      where the record came from: topic, partition, offset, timestamp and its type
    keepfast-retry-attempts            when it failed and of what, as JSON; the first thing to go when room is short
    keepfast-retry-headers             how many headers before the block are the record's own; always the last

They are untrusted input. Each is parsed with checks of its length, type and range; what does not fit is absent,
and nothing that they say makes a record wait longer than its topic's delay or go through more steps than there are.

Into a retry topic and back: what is published there, and the message that comes from there.

Values out of foreign bytes: of the right type, length and range, or absent. Nothing here raises.

Headers and letters are untrusted input; a bad one must never stop the reader.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, ClassVar, Final

from keepfast.core.checks import shown
from keepfast.core.fields import Doc, InvalidValue, Policy
from keepfast.core.names import MAX_TOPIC_LENGTH, topic_problem
from keepfast.core.records import Headers, Message, Outgoing, Record, read_headers

SHORTEST_S: Final = 1
MAX_S: Final = 86_400
MAX_STEPS: Final = 32
"""Moves of one record; several may have the same delay, and then share a topic."""

KEPT_S: Final = 7 * 86_400
"""How long a record stays in its retry topic after it is due: the consumer may be down over a long weekend."""

_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DELAY: Final = re.compile(r"([1-9][0-9]{0,4})([smhd])", re.ASCII)


def delay_s(text: object) -> int | None:
    """The seconds of a delay like `10m`; None if it is none, or none that is allowed here."""
    found = _DELAY.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        return None
    seconds = int(found[1]) * _UNITS[found[2]]
    return seconds if SHORTEST_S <= seconds <= MAX_S else None


def delay_text(seconds: int) -> str:
    """The one way to write a delay, so that `60s` and `1m` mean the same topic."""
    unit = next(unit for unit, size in _UNITS.items() if seconds % size == 0)
    return f"{seconds // _UNITS[unit]}{unit}"


def topic_name(source: str, group: str, seconds: int) -> str:
    return f"{source}.{group}.retry.{delay_text(seconds)}"


@dataclass(frozen=True, slots=True)
class Delays:
    """Delays like `5s, 1m, 10m`, in text or as a list; `off` for none at all."""

    expects: str = f'delays from 1s to 1d, like 5s, 10m, 2h, at most {MAX_STEPS}, or "off"'

    def parse(self, text: str) -> object:
        return self.check(text)

    def check(self, value: object) -> object:
        if isinstance(value, str):
            value = [] if value.strip().lower() == "off" else [part.strip() for part in value.split(",")]
        if not isinstance(value, list | tuple):
            raise InvalidValue(f"must be {self.expects}; got {shown(value)}")
        wrong = next((text for text in value if delay_s(text) is None), None)
        if wrong is not None:
            raise InvalidValue(f"must be {self.expects}; got {shown(wrong)}")
        if len(value) > MAX_STEPS:
            raise InvalidValue(f"must be {self.expects}; got {len(value)}")
        return tuple(delay_text(seconds) for text in value if (seconds := delay_s(text)) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryTopics(Policy):
    """Delays like `("5s", "1m", "10m")` that a record waits in topics of their own after its retries in place.

    There is one attempt after each; then it is dead-lettered. No delays: no retry topics. A record that comes back is
    overtaken by those behind it, so with order="partition" or "key" this must be asked for: `allow_reorder=True`.
    """

    section: ClassVar[str] = "retry_topics"

    delays: Annotated[
        tuple[str, ...],
        Delays(),
        Doc("Like `5s,1m,10m`, or `off`: one attempt after each. Topics are named `<topic>.<group>.retry.<delay>`."),
    ] = ()
    allow_reorder: Annotated[
        bool, Doc("Accepts that a record which comes back was overtaken; needed with order partition or key.")
    ] = False
    create_topics: Annotated[bool, Doc("Whether missing retry topics are created.")] = True

    def __bool__(self) -> bool:
        return bool(self.delays)

    @property
    def delays_s(self) -> tuple[int, ...]:
        return tuple(seconds for text in self.delays if (seconds := delay_s(text)) is not None)

    def topics(self, source: str, group: str) -> dict[str, int]:
        """The retry topics of one source topic, each with its delay in seconds."""
        return {topic_name(source, group, seconds): seconds for seconds in self.delays_s}

    def name_problem(self, source: str, group: str) -> str | None:
        """Why Kafka would refuse one of the names, as the end of a sentence."""
        return next(filter(None, map(topic_problem, self.topics(source, group))), None)


def left_over(existing: Iterable[str], source: str, group: str, configured: Iterable[str]) -> dict[str, int]:
    """Retry topics of this group that exist and are not configured (any more), each with its delay in seconds."""
    known = set(configured)
    stem = topic_name(source, group, SHORTEST_S).removesuffix(delay_text(SHORTEST_S))
    found: dict[str, int] = {}
    for name in sorted(existing):
        seconds = delay_s(name.removeprefix(stem)) if name.startswith(stem) and name not in known else None
        if seconds is not None and name == f"{stem}{delay_text(seconds)}":
            found[name] = seconds
    return found


@dataclass(frozen=True, slots=True)
class Tier:
    """One retry topic: whose records it holds, for how long, and how many partitions it has. Without a delay: the topic
    that records are replayed to for this group alone.
    """

    topic: str
    source: str
    delay_s: int
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """The retry topics of one consumer. `delays_s` are the steps of the way; `topics` may have more: those that an
    earlier configuration has left, whose records still come back.
    """

    group: str
    delays_s: tuple[int, ...] = ()
    topics: Mapping[str, Tier] = field(default_factory=dict)

    def at(self, source: str, step: int) -> Tier:
        """Where records of this topic go for step number `step`, counted from 1."""
        return self.topics[topic_name(source, self.group, self.delays_s[step - 1])]

    def steps_at(self, tier: Tier) -> list[int]:
        """The steps that end in this topic; none if it is left over."""
        return [step for step, seconds in enumerate(self.delays_s, start=1) if seconds == tier.delay_s]


def next_step(delays_s: tuple[int, ...], behind: int, asked_s: float) -> int | None:
    """The step after `behind` of them: the first whose delay is not shorter than what the downstream asked for, else
    the longest one left; None when there is none left. Steps in between are passed over, as they would come too soon.
    """
    left = range(behind, len(delays_s))
    return max(left, key=lambda index: min(delays_s[index], asked_s), default=-1) + 1 or None


MAX_PARTITION: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1


def text(value: object, limit: int) -> str:
    """A text, cut; empty if it is none. Half of a surrogate pair, which nothing stores or shows, is a question mark."""
    found = value[:limit] if isinstance(value, str) else ""
    return found if found.isascii() else found.encode("utf-8", "replace").decode()


def utf8(value: bytes | None, limit: int) -> str:
    """Bytes as text, cut; what is not UTF-8 becomes replacement characters."""
    return "" if value is None else value[: 4 * limit].decode("utf-8", "replace")[:limit]


def whole(value: object, high: int = MAX_LONG) -> int | None:
    """A whole number from 0 to `high`."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= high else None


def digits(value: bytes | None, high: int = MAX_LONG) -> int | None:
    """A whole number from 0 to `high`, written in ASCII digits."""
    if value is None or not 0 < len(value) <= 19 or not value.isdigit():
        return None
    return whole(int(value), high)


@lru_cache(maxsize=256)
def topic(name: str) -> str | None:
    """A name that Kafka would allow."""
    return None if topic_problem(name) else name


PREFIX: Final = "keepfast-retry-"
STEP: Final = "keepfast-retry-step"
FAILURES: Final = "keepfast-retry-failures"
DUE: Final = "keepfast-retry-due-ms"
GROUP: Final = "keepfast-retry-group"
TOPIC: Final = "keepfast-retry-origin-topic"
PARTITION: Final = "keepfast-retry-origin-partition"
OFFSET: Final = "keepfast-retry-origin-offset"
TOPIC_ID: Final = "keepfast-retry-origin-topic-id"
TIMESTAMP: Final = "keepfast-retry-origin-timestamp-ms"
TIMESTAMP_KIND: Final = "keepfast-retry-origin-timestamp-type"
ATTEMPTS: Final = "keepfast-retry-attempts"
OWN_HEADERS: Final = "keepfast-retry-headers"

MAX_FAILURES: Final = 1_000_000
MAX_ATTEMPTS: Final = 20
"""Listed one by one: the first and the last ones."""
MAX_TYPE: Final = 100
MAX_TOPIC_ID: Final = 200
MAX_ATTEMPTS_BYTES: Final = 16_000
LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""

_MAX_BLOCK: Final = 16


@dataclass(frozen=True, slots=True)
class RetryOrigin:
    """Where the record was before it was moved. `timestamp_kind` is the client's number for the timestamp's type;
    `topic_id` is empty where it is not known.
    """

    topic: str
    partition: int
    offset: int
    timestamp_kind: int
    timestamp_ms: int
    topic_id: str = ""


PastAttempt = tuple[float, str]
"""A failed attempt: when (wall clock) and the type of the error."""


@dataclass(frozen=True, slots=True)
class Past:
    """What became of a record before it came back. `headers` are its own; `origin` is None where it is not known.

    `foreign`: it says that another group has moved it here, whose topics happen to have the same names.
    """

    step: int
    failures: int
    due_ms: int | None
    origin: RetryOrigin | None
    attempts: tuple[PastAttempt, ...]
    headers: tuple[tuple[str, bytes | None], ...]
    foreign: bool = False


def encode(past: Past, *, group: str) -> Headers:
    """All headers of the moved record: its own, then ours."""
    added: list[tuple[str, str]] = [
        (STEP, str(past.step)),
        (FAILURES, str(min(past.failures, MAX_FAILURES))),
        (DUE, str(past.due_ms)),
        (GROUP, group),
    ]
    if past.origin is not None:
        origin = past.origin
        added += [(TOPIC, origin.topic), (PARTITION, str(origin.partition)), (OFFSET, str(origin.offset))]
        if origin.topic_id:
            added.append((TOPIC_ID, origin.topic_id))
        if origin.timestamp_ms >= 0:
            added += [(TIMESTAMP, str(origin.timestamp_ms)), (TIMESTAMP_KIND, str(origin.timestamp_kind))]
    attempts = past.attempts
    if len(attempts) > MAX_ATTEMPTS:
        attempts = (attempts[0], *attempts[1 - MAX_ATTEMPTS :])
    if attempts:
        listed = [[round(at * 1000), error_type[:MAX_TYPE]] for at, error_type in attempts]
        added.append((ATTEMPTS, json.dumps(listed, separators=(",", ":"))))
    added.append((OWN_HEADERS, str(len(past.headers))))
    return (*past.headers, *((name, value.encode("utf-8", "replace")) for name, value in added))


def shortened(headers: Headers) -> Headers:
    """The headers without the list of attempts; unchanged if it is gone already."""
    count = _own(headers)
    if count is None:
        return headers
    kept = tuple(pair for index, pair in enumerate(headers) if index < count or pair[0] != ATTEMPTS)
    return headers if len(kept) == len(headers) else kept


def decode(headers: Headers, *, tier: Tier, tiers: Tiers) -> Past:
    """What the headers of a record in this retry topic say, as far as it can be believed. Never raises."""
    count = _own(headers)
    own = tuple(headers[: len(headers) if count is None else count])
    fields: dict[str, bytes | None] = {} if count is None else dict(headers[count:])
    step = _step(digits(fields.get(STEP), MAX_STEPS), tier, tiers)
    return Past(
        step=step,
        failures=(digits(fields.get(FAILURES), MAX_FAILURES) or max(step, 1)) if tier.delay_s else 0,
        due_ms=digits(fields.get(DUE), LAST_MS),
        origin=_origin(fields, tier),
        attempts=_attempts(fields.get(ATTEMPTS)),
        headers=own,
        foreign=_is_foreign(fields.get(GROUP), tiers.group),
    )


def remaining_s(past: Past, timestamp_ms: int | None, *, wall_s: float, delay_s: float) -> float:
    """How long the record has still to wait. It was written when it was moved, so it is due a delay later at most."""
    latest_ms = None if timestamp_ms is None else timestamp_ms + delay_s * 1000
    due_ms = min((ms for ms in (past.due_ms, latest_ms) if ms is not None), default=None)
    if due_ms is None:
        return delay_s
    return min(max(due_ms / 1000 - wall_s, 0.0), delay_s)


def waiting_s(record: Record, group: str, *, wall_s: float) -> float:
    """How long a record has still to wait if its topic is a retry topic of this group, by the topic's name; else 0."""
    source, mark, delay = record.topic.rpartition(f".{group}.retry.")
    seconds = delay_s(delay) if mark else None
    if seconds is None:
        return 0.0
    past = decode(record.headers, tier=Tier(record.topic, source, seconds, 1), tiers=Tiers(group=group))
    return remaining_s(past, record.timestamp_ms, wall_s=wall_s, delay_s=seconds)


def due_ms(wall_s: float, delay_s: float) -> int:
    """When a record that is moved now is due: rounded up, never too early."""
    return min(math.ceil((wall_s + delay_s) * 1000), LAST_MS)


def _own(headers: Headers) -> int | None:
    """How many headers stand before the block; None if there is no block. A forged count makes no header vanish."""
    if not headers or headers[-1][0] != OWN_HEADERS:
        return None
    count = digits(headers[-1][1], len(headers) - 1)
    if count is None or len(headers) - count > _MAX_BLOCK:
        return None
    return count if all(name.startswith(PREFIX) for name, _ in headers[count:]) else None


def _is_foreign(name: bytes | None, group: str) -> bool:
    """What cannot be a group's name in a topic's name counts as no group."""
    if not name or len(name) > MAX_TOPIC_LENGTH:
        return False
    return topic_problem(utf8(name, MAX_TOPIC_LENGTH)) is None and name != group.encode()


def _step(step: int | None, tier: Tier, tiers: Tiers) -> int:
    """The topic itself says which steps end in it; of a topic that is left over, the header is taken, capped."""
    if not tier.delay_s:
        return 0  # it was replayed for this group: its way begins
    possible = tiers.steps_at(tier)
    if possible:
        return step if step in possible else possible[-1]
    return min(step or len(tiers.delays_s), len(tiers.delays_s))


def _origin(fields: dict[str, bytes | None], tier: Tier) -> RetryOrigin | None:
    partition, offset = digits(fields.get(PARTITION), MAX_PARTITION), digits(fields.get(OFFSET))
    if fields.get(TOPIC) != tier.source.encode() or partition is None or offset is None:
        return None
    timestamp_ms, kind = digits(fields.get(TIMESTAMP), LAST_MS), digits(fields.get(TIMESTAMP_KIND), 2)
    topic_id = utf8(fields.get(TOPIC_ID), MAX_TOPIC_ID)
    if timestamp_ms is None or kind is None:
        return RetryOrigin(tier.source, partition, offset, 0, -1, topic_id)
    return RetryOrigin(tier.source, partition, offset, kind, timestamp_ms, topic_id)


def _attempts(header: bytes | None) -> tuple[PastAttempt, ...]:
    """Entries that make no sense are left out."""
    if header is None or len(header) > MAX_ATTEMPTS_BYTES:
        return ()
    try:
        listed = json.loads(header)
    except (ValueError, RecursionError):
        return ()
    entries: Sequence[object] = listed[:MAX_ATTEMPTS] if isinstance(listed, list) else ()
    found: list[PastAttempt] = []
    for entry in entries:
        if isinstance(entry, list) and len(entry) == 2:
            at_ms, error_type = whole(entry[0], LAST_MS), text(entry[1], MAX_TYPE)
            if at_ms is not None and error_type:
                found.append((at_ms / 1000, error_type.encode("utf-8", "replace").decode()))  # no half characters
    return tuple(found)


class Original:
    """The record as it was before it was moved: for handlers and letters. Implements `core.records.Message`."""

    __slots__ = ("_headers", "_message", "_origin")

    def __init__(self, message: Message, origin: RetryOrigin, headers: Headers) -> None:
        self._message = message
        self._origin = origin
        self._headers = headers

    def topic(self) -> str:
        return self._origin.topic

    def partition(self) -> int:
        return self._origin.partition

    def offset(self) -> int:
        return self._origin.offset

    def key(self) -> bytes | None:
        return self._message.key()

    def value(self) -> bytes | None:
        return self._message.value()

    def headers(self) -> Headers | None:
        return self._headers or None

    def timestamp(self) -> tuple[int, int]:
        return (self._origin.timestamp_kind, self._origin.timestamp_ms)

    def leader_epoch(self) -> int | None:
        return None

    def __len__(self) -> int:
        return len(self._message)


class Returned:
    """A message of a retry topic, as the engine sees it: its place is in that topic, its headers are its own.

    `original` is the same record where it came from; if its headers lack that, where it is now. Implements
    `core.records.Message`; immutable.
    """

    __slots__ = ("_message", "original", "past", "tier")

    def __init__(self, message: Message, tier: Tier, tiers: Tiers) -> None:
        self._message = message
        self.tier = tier
        self.past: Past = decode(read_headers(message), tier=tier, tiers=tiers)
        origin = self.past.origin or RetryOrigin(
            message.topic(), message.partition(), message.offset(), *message.timestamp()
        )
        self.original = Original(message, origin, self.past.headers)

    def topic(self) -> str:
        return self._message.topic()

    def partition(self) -> int:
        return self._message.partition()

    def offset(self) -> int:
        return self._message.offset()

    def key(self) -> bytes | None:
        return self._message.key()

    def value(self) -> bytes | None:
        return self._message.value()

    def headers(self) -> Headers | None:
        return self.past.headers or None

    def timestamp(self) -> tuple[int, int]:
        return self._message.timestamp()

    def leader_epoch(self) -> int | None:
        return self._message.leader_epoch()

    def __len__(self) -> int:
        return len(self._message)


def original(message: Message) -> Message:
    """The record where it came from: the message itself, unless it came back from a retry topic."""
    return message.original if isinstance(message, Returned) else message


def source_of(message: Message) -> str:
    """The consumed topic that a record belongs to, whatever its headers say."""
    return message.tier.source if isinstance(message, Returned) else message.topic()


def moved(
    message: Message,
    *,
    tiers: Tiers,
    step: int,
    wall_s: float,
    failures: int,
    attempts: Iterable[PastAttempt],
    topic_id: str = "",
) -> Outgoing:
    """The record as it goes into the retry topic of this step: key, value and headers exactly, and where it came from:
    `topic_id` is that of the topic it was read from, where that is known.

    Its timestamp is that of the move: the topic's retention must not count from the original's.
    """
    tier = tiers.at(source_of(message), step)
    record = original(message)
    past = Past(
        step=step,
        failures=failures,
        due_ms=due_ms(wall_s, tier.delay_s),
        origin=_returned_origin(message, topic_id),
        attempts=tuple(attempts),
        headers=tuple(read_headers(record)),
    )
    return Outgoing(
        topic=tier.topic,
        value=record.value(),
        key=record.key(),
        headers=encode(past, group=tiers.group),
        partition=record.partition() if record.partition() < tier.partitions else None,
    )


def _returned_origin(message: Message, topic_id: str) -> RetryOrigin | None:
    """None for one that came back without saying where from: the next topic must not believe it either."""
    if isinstance(message, Returned):
        return message.past.origin
    return RetryOrigin(message.topic(), message.partition(), message.offset(), *message.timestamp(), topic_id)
