"""What a record is: the client's message as the engine sees it, a frozen copy, and a record to be produced."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Final, Literal, NamedTuple, Protocol

Headers = Sequence[tuple[str, bytes | None]]


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


SPOOL_PARTITION: Final = -1
"""Where letters for a dead-letter topic are that wait in a spool; their offsets are numbers of the desk's own."""
SPOOL_NAME: Final = "spool"


class RecordPlace(NamedTuple):
    """One record of one partition."""

    topic: str
    partition: int
    offset: int

    @property
    def name(self) -> str:
        """Partition and offset, as commands show and accept them."""
        return f"{SPOOL_NAME if self.partition == SPOOL_PARTITION else self.partition}:{self.offset}"


class Message(Protocol):
    """The client's own message object, method for method, so that the hot path copies nothing.

    `len(message)` is the size of the value in bytes. Instances are immutable and may be read by any thread.
    """

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def leader_epoch(self) -> int | None: ...
    def __len__(self) -> int: ...


def deliveries_of(message: Message) -> int:
    """How often a queue has delivered it, this time included; 1 for a record of no queue."""
    count: Callable[[], int | None] | None = getattr(message, "delivery_count", None)
    return (count() or 1) if count is not None else 1


@dataclass(frozen=True, slots=True)
class Record:
    """A frozen copy of a message: for letters, tests and anything that outlives the run."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None

    @classmethod
    def of(cls, message: Message) -> Record:
        kind, timestamp_ms = message.timestamp()
        return cls(
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            key=message.key(),
            value=message.value(),
            headers=tuple(read_headers(message)),
            timestamp_ms=timestamp_ms if kind else None,
        )

    def header(self, name: str) -> bytes | None:
        """The value of the last header of that name; None if there is none."""
        return next((value for known, value in reversed(self.headers) if known == name), None)


@dataclass(frozen=True, slots=True)
class RecordMessage:
    """A record as a message. Implements `Message`. Its timestamp counts as that of its creation."""

    record: Record

    def topic(self) -> str:
        return self.record.topic

    def partition(self) -> int:
        return self.record.partition

    def offset(self) -> int:
        return self.record.offset

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value

    def headers(self) -> Headers | None:
        return list(self.record.headers) or None

    def timestamp(self) -> tuple[int, int]:
        return (0, -1) if self.record.timestamp_ms is None else (1, self.record.timestamp_ms)

    def leader_epoch(self) -> int | None:
        return None

    def __len__(self) -> int:
        return len(self.record.value or b"")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to be produced. `partition` None leaves the choice to the client's partitioner (murmur2, as Java's)."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Output:
    """A record to be produced in the transaction that commits the record it is due to. `kind` of a failed record that
    is forwarded; empty for what a handler sends.
    """

    __slots__ = ("kind", "outgoing", "size")

    def __init__(self, outgoing: Outgoing, kind: Literal["", "dead-letter", "move"] = "") -> None:
        self.outgoing = outgoing
        self.kind: Literal["", "dead-letter", "move"] = kind
        headers = sum(len(name) + len(value or b"") for name, value in outgoing.headers)
        self.size = len(outgoing.value or b"") + len(outgoing.key or b"") + headers + OUTPUT_OVERHEAD


OUTPUT_OVERHEAD = 300
"""Bytes that an output costs beside its contents."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """All in-sync replicas have it."""

    topic: str
    partition: int
    offset: int


UNREADABLE_NAME = "\ufffd"
"""Stands for the name of a header whose bytes are not UTF-8: the client does not expose them."""


# Called this way the interpreter always looks whether the call left an error behind. In code that has run often it
# calls `message.headers()` without looking, and the error would strike whatever is called next.
_headers_of = methodcaller("headers")


def read_headers(message: Message) -> Headers:
    """The headers of a message. Read them with this, never by `message.headers()`.

    A name that is not UTF-8 (brokers do not check) makes the client raise SystemError the first time, and leave a tuple
    with a hole where the name belongs: to unpack it, or to touch its first element, crashes the interpreter. The hole
    shows in the number of objects that the tuples refer to, which can be counted without touching them.
    """
    headers: Headers | None
    try:
        headers = _headers_of(message)
    except SystemError:
        headers = _headers_of(message)
    if not headers:
        return ()
    if len(gc.get_referents(*headers)) == 2 * len(headers):
        return headers
    return [pair if len(gc.get_referents(pair)) == 2 else (UNREADABLE_NAME, pair[1]) for pair in headers]
