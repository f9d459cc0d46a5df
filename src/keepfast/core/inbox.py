"""Which records were processed: their identities, and the port of what stores them beside the handler's own writes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol
from zlib import crc32

from keepfast.core.records import Headers, Message, Outgoing, read_headers
from keepfast.core.retry_topics import MAX_PARTITION, Returned, digits, original, utf8

ORIGIN: Final = "keepfast-origin"
"""A header that says which record this one repeats: `<topic>/<checksum>/<partition>/<offset>/<source>`. It counts in
that topic alone, and with that value: a service that forwards all headers must not make another record look like it.
"""
RETENTION_DAYS: Final = 14
MAX_KEY: Final = 200
_MAX_ORIGIN: Final = 1_000


class RecordOrigin(NamedTuple):
    """Where a record was first: `source` is the id of its topic, or the name where the broker tells no ids."""

    source: str
    partition: int
    offset: int

    def header(self, topic: str, value: bytes | None) -> tuple[str, bytes]:
        """For a record with this value that repeats it in this topic."""
        return ORIGIN, f"{topic}/{checksum(value)}/{self.partition}/{self.offset}/{self.source}".encode()

    @property
    def note(self) -> tuple[str, bytes]:
        """For a letter, which is about it and does not repeat it."""
        return self.header("", b"")


class RecordIdentity(NamedTuple):
    """One record, as one group sees it. With a business key, `source` is that, and the rest is the same for all."""

    group: str
    source: str
    partition: int
    offset: int


def origin_of(message: Message, topic_id: str) -> RecordOrigin:
    """Where the record was first: as its header says, if that is about this topic and this value; as the retry topic
    says that it came back from; else where it is. `topic_id` is that of the topic it was read from, or empty.
    """
    record = original(message)
    claimed = noted_origin(read_headers(record), topic=record.topic(), value=record.value())
    if claimed is not None:
        return claimed
    if isinstance(message, Returned) and message.past.origin is not None:
        topic_id = message.past.origin.topic_id
    return RecordOrigin(topic_id or record.topic(), record.partition(), record.offset())


def noted_origin(headers: Headers, *, topic: str, value: bytes | None) -> RecordOrigin | None:
    """What the last header of that name says, if it is about this topic and this value."""
    note = next((text for name, text in reversed(headers) if name == ORIGIN), None)
    parts = utf8(note, _MAX_ORIGIN).split("/", 4) if note else ()
    if len(parts) != 5 or parts[0] != topic or parts[1] != checksum(value) or not parts[4]:
        return None
    partition, offset = digits(parts[2].encode(), MAX_PARTITION), digits(parts[3].encode())
    return None if partition is None or offset is None else RecordOrigin(parts[4], partition, offset)


def checksum(value: bytes | None) -> str:
    return "-" if value is None else f"{crc32(value):08x}"


def key_origin(key: str | bytes) -> RecordOrigin:
    """The same for all records with this business key, in whichever topic."""
    text = key if isinstance(key, str) else key.hex()
    if len(text) > MAX_KEY:
        text = blake2b(text.encode(), digest_size=32).hexdigest()
    return RecordOrigin(f"key:{text}", 0, 0)


class Inbox(Protocol):
    """Stores which records were processed, in the database that handlers write to: one transaction has both.

    Its methods are all plain functions, or all coroutine functions; the latter are for `async def` handlers. A plain
    one is called by the threads of handlers, several at a time. Optional attributes: `key`, a function from a
    `RawRecord` to the business key that identifies the event, and `retention_days`; of a plain one also `abort`, a
    function that takes a transaction whose call was abandoned. It is called on another thread, while the handler may be
    using the transaction: it rolls back, and what the handler does with it afterwards fails. `rollback` still follows,
    should the handler ever return.
    """

    transaction: type[Any]
    """What handlers annotate the parameter with that takes the transaction."""

    def begin(self, identities: Sequence[RecordIdentity]) -> Any:
        """Begin a transaction and insert these identities first, so that another process with the same record waits
        for this one's end. Returns the transaction, and those identities that were not there. Whatever it raises fails
        the attempt, and nothing of it may be left open.
        """
        ...

    def commit(self, tx: Any) -> Any:
        """Commit, and release the transaction in any case. If it raises, the record is tried again: whether the commit
        took place is found out by `begin`.
        """
        ...

    def rollback(self, tx: Any) -> Any:
        """Roll back, and release the transaction in any case."""
        ...

    def prune(self, before: datetime) -> Any:
        """Remove identities that were stored before this time; returns how many. Called in the background."""
        ...


def retention_days(inbox: Any) -> float:
    """How long an inbox knows a processed record."""
    return float(getattr(inbox, "retention_days", RETENTION_DAYS))


class OutboxInbox(Inbox, Protocol):
    """An inbox whose transaction also takes what handlers send."""

    def publish(self, tx: Any, outgoing: Sequence[Outgoing]) -> Any:
        """Write these as rows of the outbox, in this order. Called last before `commit`."""
        ...


@dataclass(frozen=True, slots=True)
class Begun:
    """A transaction, and the identities that are new in it."""

    tx: Any
    new: Collection[RecordIdentity]
