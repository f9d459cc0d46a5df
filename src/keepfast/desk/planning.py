"""Plans a replay: number of records, destinations, and the letters left out with the reason. Sends nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from keepfast.core import checks
from keepfast.core.errors import ConfigError
from keepfast.core.records import Outgoing
from keepfast.core.replays import ReplayMark
from keepfast.core.retry_topics import Past, RetryOrigin, encode
from keepfast.deadletters import ours
from keepfast.deadletters.letter import TIMESTAMP_TYPES, Headers, Letter
from keepfast.desk.cases import case_id
from keepfast.desk.letter_topic import LetterTopic
from keepfast.desk.selection import FiledLetter

DEFAULT_MAX_REPLAYS: Final = 3
MAX_RATE: Final = 1_000_000
_MAX_REASONS: Final = 100
_OTHER: Final = "for other reasons"
COPY: Final = "a copy of another letter that is sent"

PartitionCount = Callable[[str], int | None]
"""How many partitions a topic has; None if there is no such topic."""

RetryTopicsOf = Callable[[str, str], Mapping[str, int]]
"""The retry topics that exist for a source topic and a group, each with its delay in seconds."""


def no_retry_topics(source: str, group: str) -> Mapping[str, int]:  # noqa: ARG001 - as every RetryTopicsOf
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPolicy:
    """How letters are sent back.

    `topic` None: to the original topic and partition; else there, and the key decides about the partition. `to`
    "group": to the first retry topic of the group that wrote the letter, which no other group reads. Timestamps are
    those of the sending unless `keep_timestamp`: with the original one, a topic with a retention time may delete a
    replayed record before it is read.
    """

    topic: str | None = None
    to: Literal["topic", "group"] = "topic"
    max_replays: int = DEFAULT_MAX_REPLAYS
    """A record that was replayed this many times is left out."""
    rate_per_s: float | None = None
    keep_timestamp: bool = False
    inexact: bool = False
    """Also replay letters whose original bytes are known only as far as JSON preserves them."""

    def __post_init__(self) -> None:
        problems = {
            "max_replays": checks.whole(self.max_replays, 1, 1_000_000),
            "rate": None if self.rate_per_s is None else checks.number(self.rate_per_s, 0, MAX_RATE, above=True),
        }
        found = [f"{name} {problem}." for name, problem in problems.items() if problem]
        if self.to == "group" and self.topic is not None:
            found.append("--to group chooses the topic itself; leave out --topic, or leave out --to.")
        if found:
            raise ConfigError(*found)


class ReplayRouter:
    """Maps a letter to the record to be sent, or to the reason why it is left out. Each record is sent once, even if
    several letters contain it, so a router serves one pass over a topic; `again` makes one for the next pass.
    """

    def __init__(
        self,
        policy: ReplayPolicy,
        *,
        partitions_of: PartitionCount,
        letters_in: str,
        retry_topics_of: RetryTopicsOf = no_retry_topics,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._policy = policy
        self._partitions_of = partitions_of
        self._letters_in = letters_in
        self._retry_topics_of = retry_topics_of
        self._wall = wall
        self._known: dict[str, int | None] = {}
        self._routed: set[bytes] = set()
        self._exhausted: set[bytes] = set()

    @property
    def exhausted_late(self) -> bool:
        """Whether a record was routed before another letter of it reached the maximum number of replays."""
        return not self._routed.isdisjoint(self._exhausted)

    def again(self) -> ReplayRouter:
        """A router for another pass over the same topic. It knows which records were replayed too often."""
        other = ReplayRouter(
            self._policy,
            partitions_of=self._partitions_of,
            letters_in=self._letters_in,
            retry_topics_of=self._retry_topics_of,
            wall=self._wall,
        )
        other._known, other._exhausted = self._known, self._exhausted
        return other

    def route(self, stored: FiledLetter) -> Outgoing | str:
        """Raises ConfigError for a letter that cannot be sent to its group alone, with `to="group"`."""
        letter = stored.letter
        if not letter.exact and not self._policy.inexact:
            return "the original bytes are not known exactly (--inexact sends them as far as they are known)"
        record = self._record(letter)
        if letter.replay_count >= self._policy.max_replays:
            if record is not None:
                self._exhausted.add(record)
            more = letter.replay_count + 1
            return f"replayed {letter.replay_count} times already (--max-replays {more} allows it once more)"
        if record in self._exhausted:
            return "another letter of the same record reached the maximum number of replays (--max-replays)"
        topic, partition = self._destination(letter)
        if topic is None:
            return "the original topic is not known (--topic names one)"
        problem = self._problem(topic, partition)
        if problem:
            return problem
        if record is not None:
            if record in self._routed:
                return COPY
            self._routed.add(record)
        case = case_id(letter, stored.place.topic, stored.place.partition, stored.offset)
        headers = ours.for_replay(letter, ReplayMark(case, "replay", letter.replay_count + 1))
        return Outgoing(
            topic=topic,
            value=letter.value,
            key=letter.key,
            headers=encode(self._past(letter, headers), group=letter.group) if self._to_group else headers,
            partition=partition,
            timestamp_ms=letter.timestamp_ms if self._policy.keep_timestamp and not self._to_group else None,
        )

    @property
    def _to_group(self) -> bool:
        return self._policy.to == "group"

    def _record(self, letter: Letter) -> bytes | None:
        """Identity for deduplication: the record, or the record and the group."""
        record = letter.record_identity
        return record if record is None or not self._to_group else record + letter.group.encode("utf-8", "replace")

    def _destination(self, letter: Letter) -> tuple[str | None, int | None]:
        if self._policy.topic is not None:
            return self._policy.topic, None
        if self._to_group and letter.topic is not None:
            topic = self._retry_topic(letter.topic, letter)
            count = self._partitions(topic)
            fits = letter.partition is not None and count is not None and letter.partition < count
            return topic, letter.partition if fits else None
        return letter.topic, letter.partition

    def _retry_topic(self, source: str, letter: Letter) -> str:
        topics = self._retry_topics_of(source, letter.group) if letter.group else {}
        if topics and letter.record_identity is not None:
            return min(topics, key=lambda name: topics[name])
        if not letter.group:
            why = "a letter among them does not name the group that wrote it"
        elif not topics:
            why = f"group {letter.group} has no retry topics of {source}, the only topics that it alone reads"
        else:
            why = f"a letter of group {letter.group} does not name the place of its record"
        raise ConfigError(
            f"--to group: {why}. Leave it out to send to every group that reads the original topic, or choose letters"
            " of a group that has retry topics with --group."
        )

    def _past(self, letter: Letter, headers: Headers) -> Past:
        """Headers as if the delay of the first retry topic had just passed; later retry topics follow."""
        kind = TIMESTAMP_TYPES.index(letter.timestamp_type)
        timestamp_ms = -1 if letter.timestamp_ms is None else letter.timestamp_ms
        place = letter.topic or "", letter.partition or 0, letter.offset or 0
        return Past(
            step=1,
            failures=1,
            due_ms=round(self._wall() * 1000),
            origin=RetryOrigin(*place, kind, timestamp_ms),
            attempts=(),
            headers=headers,
        )

    def _problem(self, topic: str, partition: int | None) -> str:
        if topic == self._letters_in:
            return f"it would go into {topic} itself, among the letters"
        if topic.startswith("__"):
            return f"topic {topic} is Kafka's own"
        count = self._partitions(topic)
        if count is None:
            return f"topic {topic} does not exist (--topic names another)"
        if partition is not None and partition >= count:
            return f"topic {topic} has no partition {partition} any more (with --topic {topic} the key decides)"
        return ""

    def _partitions(self, topic: str) -> int | None:
        if topic not in self._known:
            self._known[topic] = self._partitions_of(topic)
        return self._known[topic]


@dataclass(slots=True)
class ReplayPlan:
    """The records to be sent, and the letters left out."""

    records: int = 0
    copies: int = 0
    """Letters of records that another letter already contains, such as that of another group."""
    bytes: int = 0
    destinations: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    """Reason → how many."""
    groups: set[str] = field(default_factory=set)
    """Groups that wrote the letters, copies included."""

    @property
    def left_out(self) -> int:
        return self.excluded.total()

    def duration_s(self, rate_per_s: float | None) -> float | None:
        """How long it takes at this rate; None without a rate limit."""
        return None if rate_per_s is None else self.records / rate_per_s

    def add(self, stored: FiledLetter, routed: Outgoing | str) -> None:
        if routed == COPY:
            self.copies += 1
        elif isinstance(routed, str):
            known = routed in self.excluded or len(self.excluded) < _MAX_REASONS
            self.excluded[routed if known else _OTHER] += 1
            return
        else:
            self.records += 1
            self.bytes += len(routed.value or b"") + len(routed.key or b"")
            self.destinations[routed.topic] += 1
        if stored.letter.group:
            self.groups.add(stored.letter.group)


def plan(letter_topic: LetterTopic, router: ReplayRouter, stopped: Callable[[], bool] = lambda: False) -> ReplayPlan:
    """Reads the whole selection. Raises SourceError, ConfigError, and ReadStopped when `stopped` returns True."""
    made = _one_pass(letter_topic, router, stopped)
    return _one_pass(letter_topic, router.again(), stopped) if router.exhausted_late else made


def _one_pass(letter_topic: LetterTopic, router: ReplayRouter, stopped: Callable[[], bool]) -> ReplayPlan:
    made = ReplayPlan()
    for stored in letter_topic.letters(stopped):
        made.add(stored, router.route(stored))
    return made
