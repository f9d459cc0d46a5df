"""How many bytes of one partition are in memory: of the records that were received and are not finished.

Values and keys are counted exactly. Headers are estimated by one record of each chunk that was received in one go: to
read those of every record would cost more than everything else that is done with a record here. Owner: the loop thread.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from keepfast.core.records import Message, read_headers


def header_bytes(message: Message) -> int:
    """Of the names and values of its headers."""
    return sum(len(name) + len(value or b"") for name, value in read_headers(message))


def size_of(message: Message) -> int:
    """Of its value, key and headers, exactly. Not for every record: see the module."""
    return len(message) + len(message.key() or b"") + header_bytes(message)


def _plain_bytes(messages: Sequence[Message]) -> int:
    """Of their values and keys."""
    keys = type(messages[0]).key
    try:
        key_bytes = sum(map(len, map(keys, messages)))  # type: ignore[arg-type]
    except TypeError:  # a record without a key
        key_bytes = sum(map(len, filter(None, map(keys, messages))))
    return sum(map(len, messages)) + key_bytes


def _ascending(seqs: Sequence[int], messages: Sequence[Message]) -> tuple[Sequence[int], Sequence[Message]]:
    """The same records in order of their sequence numbers."""
    ordered = sorted(seqs)
    if ordered == seqs:
        return seqs, messages
    return ordered, list(map(dict(zip(seqs, messages, strict=True)).__getitem__, ordered))


class _Chunk:
    """Records that were received in one go: how many are unfinished, the bytes of their values and keys, and those of
    the headers of each.
    """

    __slots__ = ("headers_each", "left", "plain")

    def __init__(self, messages: Sequence[Message]) -> None:
        self.left = len(messages)
        self.plain = _plain_bytes(messages)
        self.headers_each = header_bytes(messages[len(messages) // 2])


SINGLE: Final = 16
"""Records that are finished one by one are taken off so many at a time."""


class HeldBytes:
    """Records are known by their sequence numbers, which have no gaps."""

    __slots__ = ("_chunks", "_firsts", "_messages", "_seqs", "_total")

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._firsts: list[int] = []  # parallel to _chunks: the first sequence number of each
        self._total = 0
        self._seqs: list[int] = []  # finished one by one, and not taken off yet,
        self._messages: list[Message] = []  # with these messages

    @property
    def total(self) -> int:
        """What is held."""
        if self._seqs:
            self._take_off_singles()
        return self._total

    def receive(self, first: int, messages: Sequence[Message]) -> None:
        """These records came, at least one; the first of them has this sequence number."""
        chunk = _Chunk(messages)
        self._chunks.append(chunk)
        self._firsts.append(first)
        self._total += chunk.plain + chunk.left * chunk.headers_each

    def finish(self, seqs: Sequence[int], messages: Sequence[Message]) -> None:
        """These records are finished: their sequence numbers, and as many messages."""
        if len(seqs) > 1:
            self._take_off(seqs, messages)
        else:
            self._seqs += seqs
            self._messages += messages
            if len(self._seqs) >= SINGLE:
                self._take_off_singles()

    def _take_off_singles(self) -> None:
        seqs, self._seqs = self._seqs, []
        messages, self._messages = self._messages, []
        self._take_off(seqs, messages)

    def _take_off(self, seqs: Sequence[int], messages: Sequence[Message]) -> None:
        if not isinstance(seqs, range):
            seqs, messages = _ascending(seqs, messages)
        count, begun = len(seqs), 0
        while begun < count:  # chunk by chunk: no step per record
            behind = bisect_right(self._firsts, seqs[begun])
            end = count if behind == len(self._firsts) else bisect_left(seqs, self._firsts[behind], begun)
            if behind:
                self._take_off_chunk(behind - 1, messages[begun:end])
            begun = end

    def _take_off_chunk(self, at: int, messages: Sequence[Message]) -> None:
        chunk, count = self._chunks[at], len(messages)
        # A chunk usually ends as a whole, and then nothing has to be counted again.
        plain = chunk.plain if count == chunk.left else _plain_bytes(messages)
        chunk.left -= count
        chunk.plain -= plain
        self._total -= plain + count * chunk.headers_each
        if not at and not chunk.left:
            over = next((at for at, chunk in enumerate(self._chunks) if chunk.left), len(self._chunks))
            del self._chunks[:over], self._firsts[:over]
