"""Into a retry topic and back: what is published there, and the message that comes from there."""

from __future__ import annotations

from collections.abc import Iterable

from keepfast.core.ports import Outgoing
from keepfast.core.records import Headers, Message, read_headers
from keepfast.core.retry_headers import Origin, Past, Told, decode, due_ms, encode
from keepfast.core.retry_topics import Tier, Tiers


class Original:
    """The record as it was before it was moved: for handlers and letters. Implements `core.records.Message`."""

    __slots__ = ("_headers", "_message", "_origin")

    def __init__(self, message: Message, origin: Origin, headers: Headers) -> None:
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

    def __len__(self) -> int:
        return len(self._message)


class Returned:
    """A message of a retry topic, as the engine sees it: its place is in that topic, its headers are its own.

    `original` is the same record where it came from; where its headers do not tell that, where it is now. Implements
    `core.records.Message`; immutable.
    """

    __slots__ = ("_message", "original", "past", "tier")

    def __init__(self, message: Message, tier: Tier, tiers: Tiers) -> None:
        self._message = message
        self.tier = tier
        self.past: Past = decode(read_headers(message), tier=tier, tiers=tiers)
        origin = self.past.origin or Origin(
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

    def __len__(self) -> int:
        return len(self._message)


def original(message: Message) -> Message:
    """The record where it came from: the message itself, unless it came back from a retry topic."""
    return message.original if isinstance(message, Returned) else message


def source_of(message: Message) -> str:
    """The consumed topic that a record belongs to, whatever its headers say."""
    return message.tier.source if isinstance(message, Returned) else message.topic()


def moved(
    message: Message, *, tiers: Tiers, step: int, wall_s: float, failures: int, attempts: Iterable[Told]
) -> Outgoing:
    """The record as it goes into the retry topic of this step: key, value and headers exactly, and where it came from.

    Its timestamp is that of the move: the topic's retention must not count from the original's.
    """
    tier = tiers.at(source_of(message), step)
    record = original(message)
    past = Past(
        step=step,
        failures=failures,
        due_ms=due_ms(wall_s, tier.delay_s),
        origin=_origin(message),
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


def _origin(message: Message) -> Origin | None:
    """None for one that came back without saying where from: the next topic must not believe it either."""
    if isinstance(message, Returned):
        return message.past.origin
    return Origin(message.topic(), message.partition(), message.offset(), *message.timestamp())
