"""What a replay would do: how many, where to, what not and why. Nothing is sent here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from holdfast.core import checks
from holdfast.core.errors import ConfigError
from holdfast.core.ports import Outgoing
from holdfast.deadletter import ours
from holdfast.desk.selection import Filed
from holdfast.desk.shelf import Shelf

DEFAULT_MAX_REPLAYS: Final = 3
LARGEST_RATE: Final = 1_000_000
_MOST_REASONS: Final = 100
_OTHER: Final = "for other reasons"

PartitionCount = Callable[[str], int | None]
"""How many partitions a topic has; None if there is no such topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPolicy:
    """How letters are sent back.

    `topic` None: to the original topic and partition; else there, and the key decides about the partition. Timestamps
    are those of the sending unless `keep_timestamp`: with the original one, a topic with a retention time may delete a
    replayed record before anybody has read it.
    """

    topic: str | None = None
    max_replays: int = DEFAULT_MAX_REPLAYS
    """A record that was replayed so often stays: what dies again and again needs another cure."""
    rate_per_s: float | None = None
    keep_timestamp: bool = False
    inexact: bool = False
    """Also letters of which the original bytes are known only as far as JSON keeps them."""

    def __post_init__(self) -> None:
        problems = {
            "max_replays": checks.whole(self.max_replays, 1, 1_000_000),
            "rate": None if self.rate_per_s is None else checks.number(self.rate_per_s, 0, LARGEST_RATE, above=True),
        }
        found = [f"{name} {problem}." for name, problem in problems.items() if problem]
        if found:
            raise ConfigError(*found)


class Router:
    """From a letter to the record that goes back, or to the reason why it does not. Each copy of a letter but the first
    is left out, so one router serves one pass over a shelf.
    """

    def __init__(self, policy: ReplayPolicy, *, partitions_of: PartitionCount, letters_in: str) -> None:
        self._policy = policy
        self._partitions_of = partitions_of
        self._letters_in = letters_in
        self._known: dict[str, int | None] = {}
        self._seen: set[bytes] = set()

    def route(self, filed: Filed) -> Outgoing | str:
        letter = filed.letter
        if not letter.exact and not self._policy.inexact:
            return "the original bytes are not known exactly (--inexact sends them as far as they are known)"
        if letter.replay_count >= self._policy.max_replays:
            more = letter.replay_count + 1
            return f"replayed {letter.replay_count} times already (--max-replays {more} allows it once more)"
        topic, partition = self._destination(filed)
        if topic is None:
            return "the original topic is not known (--topic names one)"
        problem = self._problem(topic, partition)
        if problem:
            return problem
        if letter.id:
            if letter.identity in self._seen:
                return "a copy of another letter that is sent"
            self._seen.add(letter.identity)
        return Outgoing(
            topic=topic,
            value=letter.value,
            key=letter.key,
            headers=ours.for_replay(letter, f"{filed.place.topic}/{filed.place.partition}/{filed.offset}"),
            partition=partition,
            timestamp_ms=letter.timestamp_ms if self._policy.keep_timestamp else None,
        )

    def _destination(self, filed: Filed) -> tuple[str | None, int | None]:
        if self._policy.topic is not None:
            return self._policy.topic, None
        return filed.letter.topic, filed.letter.partition

    def _problem(self, topic: str, partition: int | None) -> str:
        if topic == self._letters_in:
            return f"it would go into {topic} itself, among the letters"
        if topic.startswith("__"):
            return f"topic {topic} is Kafka's own"
        if topic not in self._known:
            self._known[topic] = self._partitions_of(topic)
        count = self._known[topic]
        if count is None:
            return f"topic {topic} does not exist (--topic names another)"
        if partition is not None and partition >= count:
            return f"topic {topic} has no partition {partition} any more (with --topic {topic} the key decides)"
        return ""


@dataclass(slots=True)
class Plan:
    """What would be sent, and what would not."""

    letters: int = 0
    bytes: int = 0
    destinations: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    """Reason → how many."""
    groups: set[str] = field(default_factory=set)
    """Those that buried the records."""

    @property
    def left_out(self) -> int:
        return self.excluded.total()

    def duration_s(self, rate_per_s: float | None) -> float | None:
        """How long it takes at this rate; None if nothing holds it up."""
        return None if rate_per_s is None else self.letters / rate_per_s

    def add(self, filed: Filed, routed: Outgoing | str) -> None:
        if isinstance(routed, str):
            known = routed in self.excluded or len(self.excluded) < _MOST_REASONS
            self.excluded[routed if known else _OTHER] += 1
            return
        self.letters += 1
        self.bytes += len(routed.value or b"") + len(routed.key or b"")
        self.destinations[routed.topic] += 1
        if filed.letter.group:
            self.groups.add(filed.letter.group)


def plan(shelf: Shelf, router: Router, stopped: Callable[[], bool] = lambda: False) -> Plan:
    """Reads all that the shelf has. Raises SourceError, and Stopped when `stopped` says so."""
    made = Plan()
    for filed in shelf.letters(stopped):
        made.add(filed, router.route(filed))
    return made
