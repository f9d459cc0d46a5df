"""What became of records, in plain integers. Owner: the loop thread; any thread may read, a little late."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from keepfast.classify.classification import Classification
from keepfast.core.errors import error_type
from keepfast.core.ports import AskDepths
from keepfast.core.records import Message, read_headers
from keepfast.core.retry_topics import Tiers
from keepfast.core.runs import FailedRecord
from keepfast.deadletters import ours
from keepfast.deadletters.checked import trace_id
from keepfast.telemetry.metrics import BOUNDS_S, DELAY_BOUNDS_S, Exemplar, Tally

MAX_LABELS: Final = 200
"""So many different labels are kept; names of exceptions may be made at run time, and metrics must not grow."""


class Labels(NamedTuple):
    """What a failure is counted under."""

    error_type: str
    classification: str
    code: str

    @classmethod
    def of(cls, failed_record: FailedRecord) -> Labels:
        """By its last failure."""
        name = failed_record.attempts[-1].error_type if failed_record.attempts else ""
        found = failed_record.found
        return cls(name[:100], found.kind, found.code) if found else cls(name[:100], "", "")

    @classmethod
    def of_error(cls, error: BaseException, found: Classification) -> Labels:
        return cls(error_type(error)[:100], found.kind, found.code)


OTHER: Final = Labels("other", "other", "OTHER")


class Labelled:
    """Counts by labels, in bounded memory: what comes when all places are taken is counted as `OTHER`.

    `exemplars` has the last record of each that has a trace.
    """

    __slots__ = ("counts", "exemplars")

    def __init__(self) -> None:
        self.counts: dict[Labels, int] = {}
        self.exemplars: dict[Labels, Exemplar] = {}

    def add(self, labels: Labels, count: int = 1, exemplar: Exemplar | None = None) -> None:
        counts = self.counts
        if labels not in counts and len(counts) >= MAX_LABELS:
            labels = OTHER
        counts[labels] = counts.get(labels, 0) + count
        if exemplar is not None:
            self.exemplars[labels] = exemplar


@dataclass(slots=True)
class FailureCounts:
    """Totals since the start, of failed records.

    An error is one failed attempt, a retry is one more attempt that was decided on, in place or after a retry topic. A
    letter counts as dead-lettered, and a record as moved or discarded, when it is finished so. `sensitive` are those
    discarded because of what was found in them.
    """

    errors: int = 0
    retries: int = 0
    dead_lettered: int = 0
    moved: int = 0
    discarded: int = 0
    sensitive: int = 0
    errors_by: Labelled = field(default_factory=Labelled)
    dead_lettered_by: Labelled = field(default_factory=Labelled)
    moved_by: Labelled = field(default_factory=Labelled)
    discarded_by: Labelled = field(default_factory=Labelled)
    retries_by_attempt: list[int] = field(default_factory=lambda: [0] * 11)
    """By the number of the retry: 1 to 9, and all beyond under 10."""
    delays_by_attempt: dict[int, Tally] = field(default_factory=dict)
    """What was waited for, by the same numbers."""
    unpublished: int = 0
    """Attempts to publish a letter that failed."""

    def failed(self, labels: Labels, exemplar: Exemplar | None = None) -> None:
        """One failed attempt."""
        self.errors += 1
        self.errors_by.add(labels, exemplar=exemplar)

    def retried(self, number: int, delay_s: float) -> None:
        """One more attempt was decided on, after so long."""
        number = min(number, 10)
        self.retries += 1
        self.retries_by_attempt[number] += 1
        delays = self.delays_by_attempt.get(number)
        if delays is None:
            delays = self.delays_by_attempt[number] = Tally(DELAY_BOUNDS_S)
        delays.add(delay_s, DELAY_BOUNDS_S)

    def was_dead_lettered(self, labels: Labels, exemplar: Exemplar | None = None) -> None:
        self.dead_lettered += 1
        self.dead_lettered_by.add(labels, exemplar=exemplar)

    def publish_failed(self) -> None:
        """An attempt to publish a letter."""
        self.unpublished += 1

    def was_moved(self, labels: Labels) -> None:
        self.moved += 1
        self.moved_by.add(labels)

    def was_discarded(self, labels: Labels, *, sensitive: bool) -> None:
        self.discarded += 1
        self.discarded_by.add(labels)
        self.sensitive += sensitive


class TopicCounts(FailureCounts):
    """All that is counted of the records of one topic. `processed` are those that the handler succeeded with,
    `filtered` those that the filter did not let pass, `skipped` those that the inbox knew already.
    """

    def __init__(self) -> None:
        super().__init__()
        self.processed = 0
        self.filtered = 0
        self.skipped = 0
        self.slow: dict[int, Exemplar] = {}
        """By bucket of the handling time: a record that took so long."""

    def finished(self, processed: int, filtered: int, skipped: int = 0) -> None:
        """So many records were handled, so many did not pass the filter, and so many were processed before."""
        self.processed += processed
        self.filtered += filtered
        self.skipped += skipped

    def took(self, elapsed_s: float, example: Exemplar) -> None:
        """A record took so long: an example for its bucket."""
        self.slow[bisect_left(BOUNDS_S, elapsed_s)] = example


class Counts(dict[str, TopicCounts]):
    """By the topic that records are read from; what comes back from a retry topic counts for where it came from.

    Owner: the loop's thread. The loop makes it; others change it by the methods of `TopicCounts` alone, and any thread
    may read.
    """

    def __init__(self, topics: Iterable[str] = (), tiers: Tiers | None = None) -> None:
        super().__init__((topic, TopicCounts()) for topic in topics)
        self.join(tiers)

    def join(self, tiers: Tiers | None) -> None:
        """Records of these retry topics count for the topics that they came from."""
        for tier in tiers.topics.values() if tiers else ():
            self[tier.topic] = self[tier.source]

    def __missing__(self, topic: str) -> TopicCounts:
        counts = self[topic] = TopicCounts()
        return counts

    @property
    def processed(self) -> int:
        """Of all topics."""
        return sum(one.processed for one in self.each())

    @property
    def filtered(self) -> int:
        """Of all topics."""
        return sum(one.filtered for one in self.each())

    @property
    def skipped(self) -> int:
        """Of all topics."""
        return sum(one.skipped for one in self.each())

    def each(self) -> list[TopicCounts]:
        """Each once, though several topics may count for it."""
        return list({id(one): one for one in list(self.values())}.values())

    def total(self) -> FailureCounts:
        """Of all topics together."""
        total = FailureCounts()
        for one in self.each():
            total.errors += one.errors
            total.retries += one.retries
            total.dead_lettered += one.dead_lettered
            total.moved += one.moved
            total.discarded += one.discarded
            total.sensitive += one.sensitive
            total.unpublished += one.unpublished
            for number, count in enumerate(one.retries_by_attempt):
                total.retries_by_attempt[number] += count
            for mine, its in zip(_by_labels(total), _by_labels(one), strict=True):
                for labels, count in its.counts.copy().items():
                    mine.add(labels, count)
        return total


def _by_labels(counts: FailureCounts) -> tuple[Labelled, ...]:
    return counts.errors_by, counts.dead_lettered_by, counts.moved_by, counts.discarded_by


def exemplar_of(message: Message, value: float, wall_s: float) -> Exemplar | None:
    """The record as an example of what is counted; None without a trace."""
    trace = trace_id(ours.last(read_headers(message), ours.TRACEPARENT))
    return Exemplar(trace, value, wall_s) if trace else None


ASK_S, AGAIN_S = 30.0, 5.0
"""How often the depth of dead-letter topics is asked for; the latter while one does not exist."""


class LetterDepths:
    """How many letters the dead-letter topics of a consumer hold, and whether these topics exist: asked for now and
    then, so that it is known before the next letter has to go there. `partitions`: the topics, and how many each has.
    """

    def __init__(self, asks: AskDepths, partitions: Mapping[str, int]) -> None:
        self._asks = asks
        self._partitions = partitions
        self._asked_at = float("-inf")
        self._found: Mapping[str, int | None] = {}

    def has_some(self) -> bool:
        """Whether there is a letter, as of the last answer."""
        return any(self._found.values())

    def look(self, now: float) -> dict[str, int | None]:
        """As of the last answer."""
        every_s = AGAIN_S if None in self._found.values() else ASK_S
        if self._partitions and now - self._asked_at >= every_s:
            self._asked_at = now
            self._asks(dict(self._partitions), self._answered)  # the mapping may grow
        return dict(self._found)

    def _answered(self, depths: Mapping[str, int | None]) -> None:
        """From any thread: replaced as a whole."""
        self._found = {**self._found, **depths}
