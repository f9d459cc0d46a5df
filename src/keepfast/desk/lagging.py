"""Looking at groups from outside: how far behind they are, in records and in seconds, and how they get on.

How a group gets on with a partition, judged by looks at it from outside. Pure: a look brings its own time.

As Burrow does it, no threshold of lag is needed: what counts is whether the group moves while there is something to do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal, Protocol

from keepfast.core.errors import Fault, SourceError
from keepfast.core.records import Record, TopicPartition
from keepfast.kafka.browser import Span

LagState = Literal["ok", "stalled", "stopped", "rewinding", "unknown"]

LEAST_S: Final = 4.0
"""To say that nothing moves, it must have been looked at for so long."""
WINDOW_S: Final = 60.0
"""Looks that are older are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A partition at one moment. `committed` None: the group has no offset there; it would begin at `low` or `end`.
    `owned`: whether a member has it; None: nobody could tell.
    """

    at: float
    low: int
    end: int
    committed: int | None
    owned: bool | None = None

    @property
    def position(self) -> int:
        """Where the group goes on. What was deleted meanwhile is not before it any more."""
        return self.low if self.committed is None else max(self.low, self.committed)

    @property
    def lag(self) -> int:
        return max(0, self.end - self.position)


def state_of(looks: Sequence[Look]) -> LagState:
    """By the looks of the window, oldest first; there must be one.

    `rewinding`: its offset went back. `ok`: it moves, or there was a moment with nothing left to do. `stopped`: there
    is something to do, and no member has the partition. `stalled`: a member has it, and it does not move. `unknown`: it
    was not looked at for long enough.
    """
    offsets = [look.committed for look in looks if look.committed is not None]
    if any(after < before for before, after in pairwise(offsets)):
        return "rewinding"
    if any(look.lag == 0 for look in looks) or looks[-1].position > looks[0].position:
        return "ok"
    if looks[-1].owned is False:
        return "stopped"
    return "stalled" if looks[-1].at - looks[0].at >= LEAST_S else "unknown"


def within(looks: Sequence[Look], now: float) -> list[Look]:
    """Those of the window; at least the last."""
    return [look for look in looks if now - look.at <= WINDOW_S] or list(looks[-1:])


POLL_INTERVAL_S = 15.0
"""For one question."""


class LagBrowser(Protocol):
    """What is needed of `kafka.browser.KafkaBrowser`."""

    def spans(self, topic: str, timeout_s: float) -> dict[int, Span]: ...
    def read(
        self, topic: str, spans: Mapping[int, Span], *, silence_s: float = ...
    ) -> Generator[Record | None, None, None]: ...


class Groups(Protocol):
    """What is needed of `kafka.groups.KafkaGroups`."""

    def committed(
        self, group: str, places: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int | None] | None: ...
    def owned(self, group: str, timeout_s: float) -> set[TopicPartition] | None: ...


@dataclass(frozen=True, slots=True)
class Watched:
    """A group and the topics it reads. `all_of_it`: those are its topics, also where it has committed nothing."""

    group: str
    topics: tuple[str, ...]
    all_of_it: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """How a group gets on with one partition. `lag_s`: how old the first record is that is not finished; None: it could
    not be read.
    """

    group: str
    place: TopicPartition
    look: Look
    state: LagState
    lag_s: float | None


@dataclass(frozen=True, slots=True)
class LagSeen:
    """Everything at one moment. `letters`: dead-letter topic → how many it holds; None: there is no such topic."""

    partitions: tuple[PartitionLag, ...]
    letters: Mapping[str, int | None]
    unseen: tuple[str, ...] = ()
    """Groups whose offsets may not be seen, or that did not answer."""


@dataclass(slots=True)
class LagWatcher:
    """Remembers its looks, so each can be judged by those before. One thread. `now` is monotonic, `wall` is not.

    `look` raises SourceError if the topics cannot be read.
    """

    browser: LagBrowser
    groups: Groups
    watched: Sequence[Watched]
    dead_letter_topics: Sequence[str]
    now: Callable[[], float]
    wall: Callable[[], float]
    _looks: dict[tuple[str, TopicPartition], list[Look]] = field(default_factory=dict)

    def look(self, *, seconds: bool = True) -> LagSeen:
        """`seconds`: also find out how old what waits is; a record of each partition that lags is read for that."""
        spans = {topic: self._spans(topic) for one in self.watched for topic in one.topics}
        found: list[PartitionLag] = []
        unseen: list[str] = []
        for one in self.watched:
            partitions = self._group(one, spans)
            if partitions is None:
                unseen.append(one.group)
            else:
                found += partitions
        if seconds:
            found = self._aged(found)
        letters = {topic: self._depth(topic) for topic in self.dead_letter_topics}
        return LagSeen(tuple(found), letters, tuple(unseen))

    def _spans(self, topic: str) -> dict[int, Span]:
        """Nothing, if there is no such topic: a retry topic is made when it is first needed."""
        try:
            return self.browser.spans(topic, POLL_INTERVAL_S)
        except SourceError as error:
            if error.fault is Fault.MISSING:
                return {}
            raise

    def _depth(self, topic: str) -> int | None:
        spans = self._spans(topic)
        return sum(high - low for low, high in spans.values()) if spans else None

    def _group(self, one: Watched, spans: Mapping[str, dict[int, Span]]) -> list[PartitionLag] | None:
        places = [TopicPartition(topic, partition) for topic in one.topics for partition in spans[topic]]
        committed = self.groups.committed(one.group, places, POLL_INTERVAL_S) if places else {}
        if committed is None:
            return None
        owned = self.groups.owned(one.group, POLL_INTERVAL_S)
        found = []
        for place in places:
            offset = committed.get(place)
            if offset is None and not one.all_of_it:
                continue
            low, end = spans[place.topic][place.partition]
            has = None if owned is None else place in owned
            look = Look(at=self.now(), low=low, end=end, committed=offset, owned=has)
            looks = within([*self._looks.get((one.group, place), ()), look], look.at)
            self._looks[one.group, place] = looks
            lag_s = None if look.lag else 0.0
            found.append(PartitionLag(group=one.group, place=place, look=look, state=state_of(looks), lag_s=lag_s))
        return found

    def _aged(self, partitions: list[PartitionLag]) -> list[PartitionLag]:
        """With the age of the first record that waits, of each that lags."""
        wanted: dict[tuple[str, str], dict[int, Span]] = {}
        for one in partitions:
            if one.look.lag:
                spans = wanted.setdefault((one.group, one.place.topic), {})
                spans[one.place.partition] = one.look.position, one.look.end
        ages = {key: self._ages_s(key[1], spans) for key, spans in wanted.items()}
        return [
            replace(one, lag_s=ages[one.group, one.place.topic].get(one.place.partition)) if one.look.lag else one
            for one in partitions
        ]

    def _ages_s(self, topic: str, spans: Mapping[int, Span]) -> dict[int, float]:
        """By partition, of the first record that is really there: offsets may be gone, or belong to transactions."""
        first: dict[int, float] = {}
        records = self.browser.read(topic, spans, silence_s=POLL_INTERVAL_S)
        try:
            for record in records:
                if record is not None and record.timestamp_ms:
                    first.setdefault(record.partition, max(0.0, self.wall() - record.timestamp_ms / 1000))
                if len(first) == len(spans):
                    break
        except SourceError:
            pass  # what was found is true all the same
        finally:
            records.close()
        return first
