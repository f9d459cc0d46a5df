"""The broker's own book of a group: every commit and every generation, read from its log, in order.

Unlike asking for the committed offset now and then, this sees each commit there ever was.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache, cached_property

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from keepfast.core.commit_metadata import CompletionMap, decode
from tests.scenarios.journal import Id
from tests.support.waiting import DEADLINE_S, wait_until

OFFSETS_TOPIC = "__consumer_offsets"
READ_TIMEOUT_S = 20.0


@cache
def _decoded(metadata: str, offset: int) -> CompletionMap:
    return decode(metadata, offset=offset)


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit as the broker stored it; `at_ms` is the broker's wall clock."""

    topic: str
    partition: int
    offset: int
    metadata: str
    at_ms: int

    @property
    def finished_above(self) -> CompletionMap:
        return _decoded(self.metadata, self.offset)

    def covers(self, record: Id) -> bool:
        """Whether it says that this record is finished."""
        if (record.topic, record.partition) != (self.topic, self.partition):
            return False
        return record.offset < self.offset or record.offset in self.finished_above


@dataclass(frozen=True)
class History:
    """`generations` are those that the broker stored, in order, from 1: each rebalance makes a new one. Under KIP-848
    they are the group's epochs.
    """

    commits: tuple[Commit, ...]
    generations: tuple[int, ...]

    @cached_property
    def _by_place(self) -> dict[tuple[str, int], list[Commit]]:
        found: dict[tuple[str, int], list[Commit]] = {}
        for commit in self.commits:
            found.setdefault((commit.topic, commit.partition), []).append(commit)
        return found

    def of(self, topic: str, partition: int) -> list[Commit]:
        return self._by_place.get((topic, partition), [])


def read_history(bootstrap: str, group: str) -> History:
    """Everything that the broker has stored about this group until now."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"history-of-{group}",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    try:
        return _parse(group, _read_all(reader))
    finally:
        reader.close()


def _read_all(reader: Consumer) -> list[Message]:
    topics = reader.list_topics(OFFSETS_TOPIC, timeout=DEADLINE_S).topics
    ends: dict[int, int] = {}
    for partition in topics[OFFSETS_TOPIC].partitions:
        low, high = reader.get_watermark_offsets(TopicPartition(OFFSETS_TOPIC, partition), timeout=DEADLINE_S)
        if high > low:
            ends[partition] = high
    reader.assign([TopicPartition(OFFSETS_TOPIC, partition, OFFSET_BEGINNING) for partition in ends])
    found: list[Message] = []

    def at_the_end() -> bool:
        return all(where.offset >= ends[where.partition] for where in reader.position(_places(ends)))

    def read() -> None:
        for message in reader.consume(10_000, 0.05):
            error = message.error()
            assert error is None, error
            found.append(message)

    wait_until(at_the_end, f"{OFFSETS_TOPIC} is read", between=read)
    return found


def _places(ends: dict[int, int]) -> list[TopicPartition]:
    return [TopicPartition(OFFSETS_TOPIC, partition) for partition in ends]


class _Bytes:
    """Reads the broker's format, field by field."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, code: str) -> int:
        [value] = struct.unpack_from(f">{code}", self._data, self._at)
        self._at += struct.calcsize(f">{code}")
        return int(value)

    def text(self, *, compact: bool = False) -> str:
        """Compact: the length is a variable number of bytes, and one more than it is."""
        length = self._varint() - 1 if compact else self.number("h")
        if length < 0:
            return ""
        value = self._data[self._at : self._at + length]
        self._at += length
        return value.decode()

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.number("B")
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
            shift += 7


def _parse(group: str, messages: list[Message]) -> History:
    commits: list[Commit] = []
    generations: list[int] = []
    for message in messages:
        key, value = message.key(), message.value()
        if key is None or value is None:
            continue
        head = _Bytes(bytes(key))
        kind = head.number("h")
        if kind in (0, 1) and head.text() == group:
            commits.append(_commit(head.text(), head.number("i"), _Bytes(bytes(value))))
        elif kind == 2 and head.text() == group:
            body = _Bytes(bytes(value))
            body.text(compact=body.number("h") >= 4)
            generations.append(body.number("i"))
        elif kind == 3 and head.text() == group:
            body = _Bytes(bytes(value))
            body.number("h")
            generations.append(body.number("i"))
    # A group is stored when it is made, before anybody is in it: that is generation 0.
    return History(tuple(commits), tuple(dict.fromkeys(number for number in generations if number > 0)))


def _commit(topic: str, partition: int, body: _Bytes) -> Commit:
    version = body.number("h")
    offset = body.number("q")
    if version >= 3:
        body.number("i")  # the leader's epoch
    # The binding sends the NUL that ends the text in C along with it, and does not show it when it reads.
    metadata = body.text(compact=version >= 4).removesuffix("\0")
    return Commit(topic, partition, offset, metadata, body.number("q"))
