"""Lag of consumer groups, measured from outside: in records and in seconds, and whether the group makes progress.

The state of a partition follows from samples over a window, without a threshold of lag: as in Burrow, what counts is
whether the committed offset advances while there are records to process. `state_of` is pure: samples carry their time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal, Protocol

from keepfast.core import commit_metadata
from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import CommittedOffset
from keepfast.core.records import Record, TopicPartition
from keepfast.core.retry_topics import waiting_s
from keepfast.kafka.browser import Span

LagState = Literal["ok", "waiting", "stalled", "unassigned", "stopped", "rewinding", "beyond_end", "unknown"]

MIN_OBSERVED_S: Final = 4.0
"""Samples must cover this time before a partition is reported as stalled."""
WINDOW_S: Final = 60.0
"""Older samples are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSample:
    """A partition at one moment. `committed` None: the group has no offset there; it would begin at `low` or `end`.
    `owned`: whether it is assigned to a member; None: unknown. `others`: whether members have others of the group's.
    `finished_above`: how many records above the committed offset are finished, by its completion map.
    """

    at: float
    low: int
    end: int
    committed: int | None
    owned: bool | None = None
    others: bool = False
    finished_above: int = 0

    @property
    def position(self) -> int:
        """The next offset of the group; at least the first offset that still exists."""
        return self.low if self.committed is None else max(self.low, self.committed)

    @property
    def lag(self) -> int:
        return max(0, self.end - self.position)

    @property
    def behind(self) -> int:
        """The part of the lag that is not finished."""
        return max(0, self.lag - self.finished_above)

    @property
    def is_beyond_end(self) -> bool:
        """Whether the committed offset lies beyond the end of the log: its records were deleted with their topic, or
        lost.
        """
        return self.committed is not None and self.committed > self.end


def state_of(samples: Sequence[LagSample]) -> LagState:
    """The state by the samples of the window, oldest first; at least one.

    `beyond_end`: the committed offset has been beyond the end of the log for the whole time, so what is written next
    would not be read. `rewinding`: the committed offset went back. `ok`: it advances, or the lag was 0 at some moment.
    `stopped`: there is lag, and the partition is not assigned; `unassigned`: nor is it, but others are. `stalled`: it
    is assigned, and the offset does not advance. `unknown`: the samples cover too little time.
    """
    if all(sample.is_beyond_end for sample in samples):
        return "beyond_end"
    offsets = [sample.committed for sample in samples if sample.committed is not None]
    if any(after < before for before, after in pairwise(offsets)):
        return "rewinding"
    if any(sample.lag == 0 for sample in samples) or samples[-1].position > samples[0].position:
        return "ok"
    if samples[-1].owned is False:
        return "unassigned" if samples[-1].others else "stopped"
    return "stalled" if samples[-1].at - samples[0].at >= MIN_OBSERVED_S else "unknown"


def state_with(first: Record, state: LagState, group: str, wall_s: float) -> LagState:
    """The state of a partition whose first unfinished record this is, by `state_of` and the delay of a retry topic.

    `waiting`: the record is not due yet, so the offset cannot advance. One that has just become due is not stalled yet.
    """
    if state not in ("stalled", "unknown"):
        return state
    if waiting_s(first, group, wall_s=wall_s) > 0:
        return "waiting"
    return "unknown" if waiting_s(first, group, wall_s=wall_s - MIN_OBSERVED_S) > 0 else state


def finished_above(commit: CommittedOffset, end: int) -> int:
    """How many offsets below `end` the completion map of a commit names as finished; 0 for commits of other clients."""
    if commit.offset is None:
        return 0
    named = commit_metadata.decode(commit.metadata, offset=commit.offset)
    bits = named.to_int() & ((1 << min(max(0, end - named.base), 8 * len(named.bits))) - 1)
    return bits.bit_count()


def within(samples: Sequence[LagSample], now: float) -> list[LagSample]:
    """The samples of the window; at least the last."""
    return [sample for sample in samples if now - sample.at <= WINDOW_S] or list(samples[-1:])


REQUEST_TIMEOUT_S = 15.0


class LagBrowser(Protocol):
    """The part of `kafka.browser.KafkaBrowser` that is used here."""

    def spans(self, topic: str, timeout_s: float) -> dict[int, Span]: ...
    def read(
        self, topic: str, spans: Mapping[int, Span], *, silence_s: float = ...
    ) -> Generator[Record | None, None, None]: ...


class Groups(Protocol):
    """The part of `kafka.groups.KafkaGroups` that is used here."""

    def commits(
        self, group: str, places: Sequence[TopicPartition], timeout_s: float
    ) -> list[CommittedOffset] | None: ...
    def owned(self, group: str, timeout_s: float) -> set[TopicPartition] | None: ...


@dataclass(frozen=True, slots=True)
class WatchedGroup:
    """A group and the topics it reads. `uncommitted_too`: report partitions without a committed offset as well."""

    group: str
    topics: tuple[str, ...]
    uncommitted_too: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """Lag of a group in one partition. `lag_s`: age of the first unfinished record; None: it could not be read."""

    group: str
    place: TopicPartition
    sample: LagSample
    state: LagState
    lag_s: float | None


@dataclass(frozen=True, slots=True)
class LagReport:
    """One measurement. `letters`: dead-letter topic → number of letters; None: the topic does not exist."""

    partitions: tuple[PartitionLag, ...]
    letters: Mapping[str, int | None]
    unreadable: tuple[str, ...] = ()
    """Groups whose offsets could not be read."""


@dataclass(slots=True)
class LagWatcher:
    """Keeps the samples of a window. One thread. `now` is monotonic, `wall` is not.

    `sample` raises SourceError if the topics cannot be read.
    """

    browser: LagBrowser
    groups: Groups
    watched: Sequence[WatchedGroup]
    dead_letter_topics: Sequence[str]
    now: Callable[[], float]
    wall: Callable[[], float]
    _samples: dict[tuple[str, TopicPartition], list[LagSample]] = field(default_factory=dict)

    def sample(self, *, seconds: bool = True) -> LagReport:
        """Measure once. `seconds`: also the age of the first unfinished record, and whether it waits in a retry
        topic; reads one record of each partition that lags.
        """
        spans = {topic: self._spans(topic) for one in self.watched for topic in one.topics}
        found: list[PartitionLag] = []
        unreadable: list[str] = []
        for one in self.watched:
            partitions = self._group(one, spans)
            if partitions is None:
                unreadable.append(one.group)
            else:
                found += partitions
        if seconds:
            found = self._with_first_records(found)
        letters = {topic: self._depth(topic) for topic in self.dead_letter_topics}
        return LagReport(tuple(found), letters, tuple(unreadable))

    def _spans(self, topic: str) -> dict[int, Span]:
        """Empty if the topic does not exist: a retry topic is created when it is first needed."""
        try:
            return self.browser.spans(topic, REQUEST_TIMEOUT_S)
        except SourceError as error:
            if error.fault is Fault.MISSING:
                return {}
            raise

    def _depth(self, topic: str) -> int | None:
        spans = self._spans(topic)
        return sum(high - low for low, high in spans.values()) if spans else None

    def _group(self, one: WatchedGroup, spans: Mapping[str, dict[int, Span]]) -> list[PartitionLag] | None:
        places = [TopicPartition(topic, partition) for topic in one.topics for partition in spans[topic]]
        commits = self.groups.commits(one.group, places, REQUEST_TIMEOUT_S) if places else []
        if commits is None:
            return None
        committed = {found.place: found for found in commits}
        owned = self.groups.owned(one.group, REQUEST_TIMEOUT_S)
        found = []
        for place in places:
            commit = committed.get(place)
            offset = commit.offset if commit is not None else None
            if offset is None and not one.uncommitted_too:
                continue
            low, end = spans[place.topic][place.partition]
            has = None if owned is None else place in owned
            sample = LagSample(
                at=self.now(),
                low=low,
                end=end,
                committed=offset,
                owned=has,
                others=bool(owned),
                finished_above=finished_above(commit, end) if commit is not None else 0,
            )
            samples = within([*self._samples.get((one.group, place), ()), sample], sample.at)
            self._samples[one.group, place] = samples
            lag_s = None if sample.lag else 0.0
            found.append(
                PartitionLag(group=one.group, place=place, sample=sample, state=state_of(samples), lag_s=lag_s)
            )
        return found

    def _with_first_records(self, partitions: list[PartitionLag]) -> list[PartitionLag]:
        """Adds what the first unfinished record says to each partition that lags: its age, and whether it waits."""
        wanted: dict[tuple[str, str], dict[int, Span]] = {}
        for one in partitions:
            if one.sample.lag:
                spans = wanted.setdefault((one.group, one.place.topic), {})
                spans[one.place.partition] = one.sample.position, one.sample.end
        first = {key: self._first_records(key[1], spans) for key, spans in wanted.items()}
        wall_s = self.wall()
        found = []
        for one in partitions:
            record = first.get((one.group, one.place.topic), {}).get(one.place.partition)
            if record is None:
                found.append(one)
                continue
            lag_s = max(0.0, wall_s - record.timestamp_ms / 1000) if record.timestamp_ms else None
            found.append(replace(one, lag_s=lag_s, state=state_with(record, one.state, one.group, wall_s)))
        return found

    def _first_records(self, topic: str, spans: Mapping[int, Span]) -> dict[int, Record]:
        """The first existing record by partition: offsets may be deleted, or belong to transactions."""
        first: dict[int, Record] = {}
        records = self.browser.read(topic, spans, silence_s=REQUEST_TIMEOUT_S)
        try:
            for record in records:
                if record is not None:
                    first.setdefault(record.partition, record)
                if len(first) == len(spans):
                    break
        except SourceError:
            pass  # report those that were read
        finally:
            records.close()
        return first
