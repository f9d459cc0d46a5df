"""What was received of one partition, what of it is finished, and what may be committed.

Records are known by their *sequence number*, counted in order of arrival, so offsets that never arrive (compaction,
transaction markers, aborted records) need no care between records. Behind the last one they count as finished once the
source has reported that nothing else lies there (`reach`). Owner: the loop thread.

How old what was received is, by the timestamps that Kafka has of it.

To read the timestamp of every record would cost every record something. So only the first and the last of what comes in
one go are read, and all in between only where these lie apart: a busy partition has two marks a second at most.

The leader epochs of what was received: a commit carries one, so that a later start detects that the log was cut.

How many bytes are in memory: of the records that were received and are not finished.

Values and keys are counted exactly. Headers are estimated by one record of each chunk that was received in one go: to
read those of every record would cost more than everything else that is done with a record here. Owner: the loop thread.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import compress
from typing import Final

from keepfast.core.commit_metadata import CompletionMap
from keepfast.core.records import Message, read_headers

GRAIN_MS: Final = 500
"""Records whose timestamps are not further apart share a mark. What `written_ms` says is true to within two grains."""
MANY: Final = 1_024
"""More marks than this are worth looking whether some are over."""


class Ages:
    """When the received records of one partition were written. They are known by their sequence numbers. Owner: the
    loop thread.
    """

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        # A sequence number, and the timestamps in ms from there on, record by record; the last holds until the next.
        self._marks: deque[tuple[int, list[int]]] = deque()

    def note(self, first: int, messages: list[Message]) -> None:
        """Records were received: at least one, in offset order, above all before; the first has this number."""
        first_ms, last_ms = _written_ms(messages[0]), _written_ms(messages[-1])
        if abs(last_ms - first_ms) > GRAIN_MS:
            stamps = map(type(messages[0]).timestamp, messages)
            self._marks.append((first, [at_ms if kind else 0 for kind, at_ms in stamps]))
        elif first_ms > 0 and (not self._marks or abs(first_ms - self._marks[-1][1][-1]) > GRAIN_MS):
            self._marks.append((first, [first_ms]))

    def written_ms(self, seq: int) -> int | None:
        """The timestamp of this record, or of one shortly before it; None where there was none. What lies below is
        forgotten.
        """
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= seq:
            marks.popleft()
        if not marks or marks[0][0] > seq:
            return None
        first, stamps = marks[0]
        return stamps[min(seq - first, len(stamps) - 1)] or None

    @property
    def many(self) -> bool:
        """Whether it is time to ask, so that old marks are forgotten."""
        return len(self._marks) > MANY


def _written_ms(message: Message) -> int:
    """0 where it has no timestamp."""
    kind, at_ms = message.timestamp()
    return at_ms if kind else 0


class LeaderEpochs:
    """The leader epoch of each position in one partition, as steps: from an offset on, this epoch. Owner: the loop
    thread.

    A commit carries the epoch of the record at its offset, or of the last one below it if nothing follows. Never the
    last one below a gap: behind that may be offsets of a later epoch, and the broker would take the commit for one of
    another log.
    """

    __slots__ = ("_last", "_steps")

    def __init__(self, start: int, epoch: int | None) -> None:
        self._steps = deque([(start, epoch)])
        self._last = epoch

    def note(self, messages: Sequence[Message]) -> None:
        """Enter received records: at least one, in offset order, above all before."""
        first, last = messages[0].leader_epoch(), messages[-1].leader_epoch()
        if first == last == self._last:
            return
        for message in messages if first != last else messages[:1]:
            self.step(message.offset(), message.leader_epoch())

    def step(self, offset: int, epoch: int | None) -> None:
        """From this offset on, the log has this epoch; None: unknown."""
        if epoch != self._last:
            if self._steps[-1][0] == offset:
                self._steps.pop()
            self._steps.append((offset, epoch))
            self._last = epoch

    def at(self, offset: int) -> int | None:
        """The epoch for a commit at `offset`, which is never below an earlier one: older steps are forgotten."""
        steps = self._steps
        while len(steps) > 1 and steps[1][0] <= offset:
            steps.popleft()
        return steps[0][1]


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


_TRIM = 8_192
_TO_DIGITS = bytes.maketrans(b"\x00\x01", b"01")


class Ledger:
    """Starts at the committed offset `start`, with what the completion map found there already says is `finished`.
    `epoch`: the leader epoch of that commit.
    """

    __slots__ = ("_base", "_end", "_low", "_offsets", "_resumed", "_start", "_state", "epochs")

    def __init__(self, start: int, resumed: CompletionMap | None = None, epoch: int | None = None) -> None:
        self._start = start
        self.epochs = LeaderEpochs(start, epoch)
        self._resumed = resumed or None
        self._offsets: list[int] = []
        self._state = bytearray()  # parallel to _offsets: 1 is finished
        self._base = 0  # sequence number of index 0
        self._low = 0  # index: everything before it is finished
        self._end = start  # every record below it was received

    def receive(self, offsets: Sequence[int]) -> int:
        """Enter newly received offsets, ascending and above all before; returns the first one's sequence number.

        Those that the completion map names are entered as finished.
        """
        if offsets and offsets[0] <= self.last:
            raise ValueError(f"offset {offsets[0]} was received after {self.last}")
        first = self._base + len(self._offsets)
        self._offsets.extend(offsets)
        self._state.extend(bytes(len(offsets)))
        resumed = self._resumed
        if resumed is not None and offsets:
            for index, offset in enumerate(offsets, first - self._base):
                if offset in resumed:
                    self._state[index] = 1
            if offsets[-1] >= resumed.end - 1:
                self._resumed = None
        return first

    @property
    def last(self) -> int:
        """The highest offset received so far, or the one before the start."""
        return self._offsets[-1] if self._offsets else self._start - 1

    @property
    def next_offset(self) -> int:
        """The lowest offset that the next record can have."""
        return max(self.last + 1, self._end)

    def reach(self, end: int, epoch: int | None = None) -> bool:
        """Every record below this offset was received. Returns whether that is more than was known. `epoch`: the leader
        epoch there.
        """
        if end < 0 or end <= self.next_offset:
            return False
        self._end = end
        self.epochs.step(end, epoch)
        if self._resumed is not None and end >= self._resumed.end:
            self._resumed = None
        return True

    @property
    def resuming(self) -> bool:
        """Whether records may still arrive that are already finished by the completion map."""
        return self._resumed is not None

    def offset_of(self, seq: int) -> int:
        return self._offsets[seq - self._base]

    def is_finished(self, seq: int) -> bool:
        return seq < self._base or self._state[seq - self._base] == 1

    def are_finished(self, first: int, end: int) -> bool:
        """Whether all records from offset `first` to before `end` are finished; what is not received yet is not."""
        low, high = bisect_left(self._offsets, first), bisect_left(self._offsets, end)
        return end <= self.next_offset and self._state.find(0, low, high) < 0

    def finish(self, seqs: Sequence[int]) -> None:
        """These records have reached their terminal fact; saying it again changes nothing."""
        state, base = self._state, self._base
        if len(seqs) > 1 and isinstance(seqs, range):
            seqs = range(max(seqs.start, base), seqs.stop)  # what was trimmed is finished
            if seqs:
                state[seqs.start - base : seqs.stop - base] = b"\x01" * len(seqs)
            return
        for seq in seqs:
            if seq >= base:
                state[seq - base] = 1

    def watermark(self) -> int:
        """The offset that may be committed: every received record below it is finished."""
        low = self._state.find(0, self._low)
        if low < 0:
            self._low = len(self._state)
            return self.next_offset
        self._low = low
        return self._offsets[low]

    @property
    def lowest(self) -> int:
        """The sequence number of the record at the watermark, as it was asked for last."""
        return self._base + self._low

    def finished_offsets(self) -> list[int]:
        """Of those that are received and not trimmed, in order."""
        return list(compress(self._offsets, self._state))

    def unfinished_offsets(self) -> list[int]:
        """Of those that are received, in order."""
        return [offset for offset, finished in zip(self._offsets, self._state, strict=True) if not finished]

    def unfinished(self) -> int:
        """How many received records are not finished."""
        return self._state.count(0, self._low)

    def unfinished_below(self, end: int) -> int:
        """How many offsets below `end` are not finished: received records, and everything that was not received and
        that the completion map at the start did not name.
        """
        unread, resumed = max(0, end - max(self.next_offset, 0)), self._resumed
        if resumed is not None and unread:
            named = resumed.to_int() >> max(0, self.next_offset - resumed.base)
            unread -= (named & ((1 << min(unread, named.bit_length())) - 1)).bit_count()
        return unread + self.unfinished()

    def completion(self) -> CompletionMap:
        """What is finished above the watermark, including what the map we started with says of records not received
        yet.
        """
        base, resumed = self.watermark(), self._resumed
        if resumed is None and self._state.rfind(1, self._low) < 0:
            return CompletionMap(base)
        bits = self._bits_above(base)
        if resumed is not None:
            received = max(0, self.next_offset - resumed.base)
            kept = resumed.to_int() >> received << received
            shift = base - resumed.base
            bits |= kept >> shift if shift >= 0 else kept << -shift
        return CompletionMap.from_int(base, bits)

    def _bits_above(self, base: int) -> int:
        low = self._low
        high = self._state.rfind(1, low) + 1
        if high <= low:
            return 0
        offsets = self._offsets
        if offsets[high - 1] - base == high - 1 - low:  # no gaps: one pass in C
            return int(self._state[low:high].translate(_TO_DIGITS)[::-1], 2)
        bits = 0
        for index in range(low, high):
            if self._state[index]:
                bits |= 1 << (offsets[index] - base)
        return bits

    def trim(self) -> None:
        """Forget what lies below the watermark, once it is worth it. Loop: after a commit was confirmed."""
        if self._low < _TRIM or self._low == 0:
            return
        keep = self._low - 1  # the last finished one stays: `last` needs it when nothing else is there
        del self._offsets[:keep]
        del self._state[:keep]
        self._base += keep
        self._low -= keep
