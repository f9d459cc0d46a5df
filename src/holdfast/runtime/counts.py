"""What became of records in trouble, in plain integers. Owner: the loop thread; anybody may read, a little late."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from holdfast.core.classification import Classification
from holdfast.core.runs import Case

MOST_LABELS: Final = 200
"""So many different labels are told apart; names of exceptions may be made at run time, and metrics must not grow."""


class Labels(NamedTuple):
    """What a failure is counted under."""

    error_type: str
    classification: str
    code: str

    @classmethod
    def of(cls, case: Case) -> Labels:
        """By its last failure."""
        name = case.attempts[-1].error_type if case.attempts else ""
        found = case.found
        return cls(name[:100], found.kind, found.code) if found else cls(name[:100], "", "")

    @classmethod
    def of_error(cls, error: BaseException, found: Classification) -> Labels:
        return cls(type(error).__name__[:100], found.kind, found.code)


OTHER: Final = Labels("other", "other", "OTHER")


class Labelled:
    """Counts by labels, in bounded memory: what comes when all places are taken is counted as `OTHER`."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[Labels, int] = {}

    def add(self, labels: Labels) -> None:
        counts = self.counts
        if labels not in counts and len(counts) >= MOST_LABELS:
            labels = OTHER
        counts[labels] = counts.get(labels, 0) + 1


@dataclass(slots=True)
class CaseCounts:
    """Totals since the start.

    An error is one failed attempt, a retry is one more attempt that was decided on, in place or after a retry topic. A
    letter counts as buried, and a record as moved or discarded, when it is finished so. `sensitive` are those discarded
    because of what was found in them.
    """

    errors: int = 0
    retries: int = 0
    buried: int = 0
    moved: int = 0
    discarded: int = 0
    sensitive: int = 0
    errors_by: Labelled = field(default_factory=Labelled)
    buried_by: Labelled = field(default_factory=Labelled)
    moved_by: Labelled = field(default_factory=Labelled)
    discarded_by: Labelled = field(default_factory=Labelled)
    retries_by_attempt: list[int] = field(default_factory=lambda: [0] * 11)
    """By the number of the retry: 1 to 9, and all beyond under 10."""

    def failed(self, labels: Labels) -> None:
        """One failed attempt."""
        self.errors += 1
        self.errors_by.add(labels)

    def retried(self, number: int) -> None:
        self.retries += 1
        self.retries_by_attempt[min(number, 10)] += 1

    def was_buried(self, labels: Labels) -> None:
        self.buried += 1
        self.buried_by.add(labels)

    def was_moved(self, labels: Labels) -> None:
        self.moved += 1
        self.moved_by.add(labels)

    def was_discarded(self, labels: Labels, *, sensitive: bool) -> None:
        self.discarded += 1
        self.discarded_by.add(labels)
        self.sensitive += sensitive
