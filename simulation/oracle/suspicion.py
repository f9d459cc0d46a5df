"""What a new owner has to suspect, by what it found: worked out here once more, apart from the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from keepfast.core.crash_guard import ONE_BY_ONE, Fate, Guard, Spans, common, covers, inherited, read
from simulation.oracle.cover import Cover


class Suspicion:
    """Of one epoch. Records below `until` that are not finished are suspects, and so are those in `suspects`; `mark` is
    what a death left behind, and `in_hand` what was noted there.

    `found` is what the owner begins with; of its counts, one that was taken ahead of a start without a crash is
    taken back. After one that was not, nothing else was in flight. `confirmed` and `stored` are what the broker was
    last known to hold, by the owner, and what it really holds. `fate` is what the owner learned about the previous one.
    """

    __slots__ = (
        "confirmed", "died", "end", "fate", "found", "half", "in_hand", "left_by", "mark", "narrowed", "start",
        "stored", "suspects", "until",
    )  # fmt: skip

    def __init__(self, covered: Cover | None, fate: Fate, *, left_by: str, member: str, end: int) -> None:
        offset = 0 if covered is None else covered.offset
        self.start, self.end = offset, end
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
        if found.lease and self.died and fate.in_hand is None and found.charged is None:
            if self.mark:
                self.until = max(self.until, self.mark, found.lease)
            self.mark = max(self.mark, found.lease)
        self.narrowed = after.narrowed
        self.half = 0
        self.begin_search()

    def count(self, end: float) -> int:
        """How many offsets below `end` are suspects, as the owner has to count them."""
        return sum(self.is_suspect(offset) for offset in range(self.start, int(min(end, max(self.until, self._last)))))

    @property
    def _last(self) -> int:
        return self.suspects[-1][1] if self.suspects else 0

    def begin_search(self) -> None:
        """The suspects are known: no more than half of them may be tried together."""
        self.half = (self.count(inf) + 1) // 2

    def limit(self, until: int) -> None:
        """The owner has seen where the log ends, and begins its search with fewer."""
        self.until = until
        self.suspects = common(self.suspects, ((self.start, max(self.start, self.end, until)),))
        self.begin_search()

    def end_search(self) -> None:
        """Forget the suspects where they were too many to run one by one to the last: all of them were handed out, and
        what a lane holds back of them is not waited for.
        """
        if 2 * self.half > ONE_BY_ONE:
            self.until, self.suspects = 0, ()

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
