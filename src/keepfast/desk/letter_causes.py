"""Letters by cause: how many, since when, until when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from keepfast.desk.masking import masked_text
from keepfast.desk.selection import FiledLetter

MAX_TOPICS = 1_000


@dataclass(slots=True)
class LetterCause:
    """One reason why records were dead-lettered. Its message contains no values, so it can be printed."""

    fingerprint: str
    error_type: str
    message: str
    sample: str
    """Position of its first letter, as `dlq show` accepts it."""
    count: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    codes: Counter[str] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    """Source topics of the original records."""
    replayed: int = 0
    """How many of them had been replayed before."""

    def add(self, stored: FiledLetter) -> None:
        letter, at_ms = stored.letter, stored.at_ms
        self.count += 1
        if at_ms is not None:
            self.first_ms = at_ms if self.first_ms is None else min(self.first_ms, at_ms)
            self.last_ms = at_ms if self.last_ms is None else max(self.last_ms, at_ms)
        for counter, name in (
            (self.codes, letter.error_code),
            (self.groups, letter.group),
            (self.topics, letter.topic),
        ):
            # The topic may contain letters of other writers: what is collected must be bounded.
            if name and (name in counter or len(counter) < MAX_TOPICS):
                counter[name] += 1
        self.replayed += letter.replay_count > 0


def by_cause(letters: Iterable[FiledLetter]) -> list[LetterCause]:
    """The most frequent first. Letters without error fields are one cause, without a fingerprint."""
    causes: dict[str, LetterCause] = {}
    for stored in letters:
        letter = stored.letter
        cause = causes.get(letter.fingerprint)
        if cause is None:
            kind = letter.error_type or ("(no letter)" if letter.format == "unknown" else "(not given)")
            cause = LetterCause(letter.fingerprint, kind, masked_text(letter.error_message), stored.name)
            causes[letter.fingerprint] = cause
        cause.add(stored)
    return sorted(causes.values(), key=lambda cause: (-cause.count, cause.fingerprint))
