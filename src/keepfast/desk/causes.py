"""Letters by cause: how many, since when, until when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from keepfast.desk.masking import masked_text
from keepfast.desk.selection import Filed

MAX_TOPICS = 1_000


@dataclass(slots=True)
class Cause:
    """One reason for which records died. Its message is without values, so it can be shown."""

    fingerprint: str
    error_type: str
    message: str
    sample: str
    """Where its first letter lies, as `dlq show` takes it."""
    count: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    codes: Counter[str] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    """Where the originals came from."""
    replayed: int = 0
    """How many of them had been replayed before they died."""

    def add(self, filed: Filed) -> None:
        letter, at_ms = filed.letter, filed.at_ms
        self.count += 1
        if at_ms is not None:
            self.first_ms = at_ms if self.first_ms is None else min(self.first_ms, at_ms)
            self.last_ms = at_ms if self.last_ms is None else max(self.last_ms, at_ms)
        for counter, name in (
            (self.codes, letter.error_code),
            (self.groups, letter.group),
            (self.topics, letter.topic),
        ):
            # Anybody may write letters: what is kept stays bounded.
            if name and (name in counter or len(counter) < MAX_TOPICS):
                counter[name] += 1
        self.replayed += letter.replay_count > 0


def by_cause(letters: Iterable[Filed]) -> list[Cause]:
    """The most frequent first. Letters that say nothing about their error are one cause, without a fingerprint."""
    causes: dict[str, Cause] = {}
    for filed in letters:
        letter = filed.letter
        cause = causes.get(letter.fingerprint)
        if cause is None:
            kind = letter.error_type or ("(no letter)" if letter.format == "unknown" else "(not told)")
            cause = Cause(letter.fingerprint, kind, masked_text(letter.error_message), filed.name)
            causes[letter.fingerprint] = cause
        cause.add(filed)
    return sorted(causes.values(), key=lambda cause: (-cause.count, cause.fingerprint))
