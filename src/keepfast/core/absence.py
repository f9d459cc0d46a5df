"""How long something was seen not to be there, by looks that may fail or take their time."""

from __future__ import annotations

from dataclasses import dataclass

MAX_GAP_S = 0.25
"""Between two looks, so much counts at most: of a time without an answer nothing is known."""


@dataclass(slots=True)
class Absence:
    """`seconds` grows with every look that was answered."""

    seconds: float = 0.0
    _seen_at: float | None = None

    def seen(self, now: float) -> None:
        """It was looked for, and is not there."""
        if self._seen_at is not None:
            self.seconds += min(now - self._seen_at, MAX_GAP_S)
        self._seen_at = now
