"""What a new owner has to suspect, by what it found: worked out here once more, apart from the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from keepfast.core.crash_guard import Fate, Guard, Spans, covers, inherited, read
from simulation.oracle.cover import Cover


class Suspicion:
    """Of one epoch. Records below `until` that are not finished are suspects, and so are those in `suspects`; `mark` is
    what a death left behind, and `in_hand` what was noted there.

    `found` is what the owner begins with; of its counts, one that was taken ahead of a start without a crash is
    taken back. `confirmed` and `stored` are what the broker was last known to hold, by the owner, and what it really
    holds. `fate` is what the owner learned about the previous one.
    """

    __slots__ = ("confirmed", "died", "fate", "found", "in_hand", "left_by", "mark", "stored", "suspects", "until")

    def __init__(self, covered: Cover | None, fate: Fate, *, left_by: str, member: str) -> None:
        offset = 0 if covered is None else covered.offset
        found = read("" if covered is None else covered.guard, offset)
        left = bool(found.lease and found.lease > offset)
        self.fate, self.left_by = fate, left_by
        self.died = left and fate.dead and not found.draining
        after = inherited(found, offset, fate)
        self.in_hand: Spans = after.in_hand
        self.suspects: Spans = after.suspects
        spared = left and (not self.died or (fate.in_hand is not None and not covers(fate.in_hand, found.charged or 0)))
        self.found = replace(found, starts=_without(found.charged, found.starts)) if spared else found
        self.confirmed = found if left_by == member else Guard()  # its own lease still holds, word for word
        self.stored = found
        self.mark = found.mark if found.mark and found.mark > offset else 0
        self.until = found.until if found.until and found.until > offset else 0
        if found.lease and self.died and fate.in_hand is None:
            if self.mark:
                self.until = max(self.until, self.mark, found.lease)
            self.mark = max(self.mark, found.lease)

    def carry_over(self, before: Suspicion) -> None:
        """The same owner continues, at another position. What it suspects from now on, its first commit has to tell."""
        self.found, self.stored = before.found, before.stored

    def is_suspect(self, offset: int) -> bool:
        return offset < self.until or covers(self.suspects, offset)

    def charges(self) -> set[int]:
        """Offsets of which the broker holds a start that the owner found no word of."""
        found = self.found.starts
        return {offset for offset, count in self.stored.starts.items() if count > found.get(offset, 0)}


def _without(charged: int | None, starts: Mapping[int, int]) -> dict[int, int]:
    """The counts without the one that was taken ahead of a start."""
    return {offset: count - (offset == charged) for offset, count in starts.items()}
