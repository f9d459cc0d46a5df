"""What was received of one partition, what of it is finished, and what may be committed.

Records are known by their *sequence number*, counted in order of arrival, so offsets that never arrive (compaction,
transaction markers, aborted records) need no care. Owner: the loop thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from keepfast.core.completion import CompletionMap

_TRIM = 8_192
_TO_DIGITS = bytes.maketrans(b"\x00\x01", b"01")


class Ledger:
    """Starts at the committed offset `start`, with what the completion map found there already says is `finished`."""

    __slots__ = ("_base", "_low", "_offsets", "_resumed", "_start", "_state")

    def __init__(self, start: int, resumed: CompletionMap | None = None) -> None:
        self._start = start
        self._resumed = resumed or None
        self._offsets: list[int] = []
        self._state = bytearray()  # parallel to _offsets: 1 is finished
        self._base = 0  # sequence number of index 0
        self._low = 0  # index: everything before it is finished

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
        return end <= self.last + 1 and self._state.find(0, low, high) < 0

    def finish(self, seqs: Iterable[int]) -> None:
        """These records have reached their terminal fact; saying it again changes nothing."""
        state, base = self._state, self._base
        if isinstance(seqs, range) and len(seqs) > 1:
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
            return self.last + 1
        self._low = low
        return self._offsets[low]

    def unfinished(self) -> int:
        """How many received records are not finished."""
        return self._state.count(0, self._low)

    def completion(self) -> CompletionMap:
        """What is finished above the watermark, including what the map we started with says of records not received
        yet.
        """
        base, resumed = self.watermark(), self._resumed
        if resumed is None and self._state.rfind(1, self._low) < 0:
            return CompletionMap(base)
        bits = self._bits_above(base)
        if resumed is not None:
            kept = resumed.to_int() >> max(0, self.last + 1 - resumed.base) << max(0, self.last + 1 - resumed.base)
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
