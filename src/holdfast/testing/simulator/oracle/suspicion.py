"""What a new owner has to suspect, by what it found: worked out here once more, apart from the engine."""

from __future__ import annotations

from holdfast.core.crash_guard import Guard, read
from holdfast.testing.simulator.oracle.cover import Cover


class Suspicion:
    """Of one epoch. Records below `until` that are not finished are suspects; `mark` is what a death left behind.

    `confirmed` and `stored` are what the broker was last known to hold, by the owner, and what it really holds.
    """

    __slots__ = ("confirmed", "found", "mark", "stored", "until")

    def __init__(self, covered: Cover | None) -> None:
        offset = 0 if covered is None else covered.offset
        self.found = found = read("" if covered is None else covered.guard, offset)
        self.confirmed = Guard()
        self.stored = found
        self.mark = found.mark if found.mark and found.mark > offset else 0
        self.until = found.until if found.until and found.until > offset else 0
        if found.lease and found.lease > offset:
            if self.mark:
                self.until = max(self.until, self.mark, found.lease)
            self.mark = max(self.mark, found.lease)

    def charges(self) -> set[int]:
        """Offsets of which the broker holds a start that the owner found no word of."""
        found = self.found.starts
        return {offset for offset, count in self.stored.starts.items() if count > found.get(offset, 0)}
