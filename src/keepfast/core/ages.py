"""How old what was received is, by the timestamps that Kafka has of it.

To read the timestamp of every record would cost every record something. So only the first and the last of what comes in
one go are read, and more in between only where these lie apart: a busy partition has two marks a second at most.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from keepfast.core.records import Message

GRAIN_MS: Final = 500
"""Records whose timestamps are not further apart share a mark. What `written_ms` says is true to within two grains."""
MANY: Final = 1_024
"""More marks than this are worth looking whether some are over."""


class Ages:
    """When the received records of one partition were written. Owner: the loop thread."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()  # offset, timestamp in ms: holds until the next mark

    def note(self, messages: list[Message]) -> None:
        """Records were received: at least one, in offset order, above all before."""
        first_ms = _written_ms(messages[0])
        self._mark(messages[0], first_ms)
        if len(messages) > 1:
            self._between(messages, 0, len(messages) - 1, first_ms, _written_ms(messages[-1]))

    def written_ms(self, offset: int) -> int | None:
        """The timestamp of the record at this offset, or of one shortly before it; None where there was none. What lies
        below is forgotten.
        """
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= offset:
            marks.popleft()
        return marks[0][1] if marks and marks[0][0] <= offset else None

    @property
    def many(self) -> bool:
        """Whether it is time to ask, so that old marks are forgotten."""
        return len(self._marks) > MANY

    def _between(self, messages: list[Message], low: int, high: int, low_ms: int, high_ms: int) -> None:
        """Mark what needs one behind `low` and up to `high`."""
        middle = (low + high) // 2
        if middle == low or abs(high_ms - low_ms) <= GRAIN_MS:
            self._mark(messages[high], high_ms)
            return
        middle_ms = _written_ms(messages[middle])
        self._between(messages, low, middle, low_ms, middle_ms)
        self._between(messages, middle, high, middle_ms, high_ms)

    def _mark(self, message: Message, at_ms: int) -> None:
        if at_ms > 0 and (not self._marks or abs(at_ms - self._marks[-1][1]) > GRAIN_MS):
            self._marks.append((message.offset(), at_ms))


def _written_ms(message: Message) -> int:
    """0 where it has no timestamp."""
    kind, at_ms = message.timestamp()
    return at_ms if kind else 0
