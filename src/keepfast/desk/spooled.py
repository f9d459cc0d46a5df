"""Letters that Kafka did not accept, in the fallback spool of an app: on the desk like all others.

A spooled letter has a place of its own: the partition `SPOOL`, and a number made from its identity as offset. Its case
is the one that it has in the dead-letter topic, too, so what is done about it stays when the app publishes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from keepfast.core.errors import SpoolError
from keepfast.core.records import SPOOL_PARTITION, Record
from keepfast.deadletters.spool.letters import SpooledLetter
from keepfast.deadletters.spool.store import Head, Reader
from keepfast.desk.letters import StoredLetter

MAX_LETTERS = 10_000
"""So many are on the desk, the oldest; a spool with more is no place to look for single letters."""


class DeskSpool:
    """Any thread may call it; each call opens the spool and closes it. Raises SpoolError."""

    def __init__(self, open_reader: Callable[[], Reader], where: str) -> None:
        self._open_reader = open_reader
        self._lock = threading.Lock()
        self.where = where
        """Its URL, without secrets."""

    def look(self, topics: Collection[str], known: Collection[tuple[str, int]]) -> tuple[set[int], list[StoredLetter]]:
        """The offsets of all letters for these dead-letter topics, and those letters that are not known."""
        with self._reading() as reader:
            heads = reader.heads(MAX_LETTERS, lambda head: head.topic in topics)
            new = [head for head in heads if (head.topic, _offset(head.identity)) not in known]
            return {_offset(head.identity) for head in heads}, [
                StoredLetter.of(record) for head in new if (record := _record(reader, head)) is not None
            ]

    def records(self, topic: str, offsets: Collection[int]) -> Iterator[Record]:
        """The letters at these places; those that are gone are left out."""
        with self._reading() as reader:
            heads = reader.heads(MAX_LETTERS, lambda head: head.topic == topic and _offset(head.identity) in offsets)
            yield from (record for head in heads if (record := _record(reader, head)) is not None)

    @contextmanager
    def _reading(self) -> Iterator[Reader]:
        with self._lock:
            reader = self._open_reader()
            try:
                reader.open()
                yield reader
            finally:
                reader.close()


def _record(reader: Reader, head: Head) -> Record | None:
    """None if it is damaged, or was published meanwhile."""
    try:
        return _as_record(reader.read(head))
    except SpoolError:
        return None


def _as_record(spooled: SpooledLetter) -> Record:
    at_ms = spooled.at_ms if spooled.timestamp_ms is None else spooled.timestamp_ms
    place = spooled.topic, SPOOL_PARTITION, _offset(spooled.identity)
    return Record(*place, spooled.key, spooled.value, spooled.headers, at_ms)


def _offset(identity: bytes) -> int:
    return int.from_bytes(identity[:6], "big")
