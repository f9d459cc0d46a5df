"""What happened in a simulated world, as values: the oracle reads nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from keepfast.core.records import TopicPartition

Places = tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at the simulated second `at`. `member` below is the name of the process concerned."""

    at: float


@dataclass(frozen=True, slots=True)
class Produced(Event):
    """A record reached its partition's log."""

    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class LogStartMoved(Event):
    """Records below `offset` were deleted."""

    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Compacted(Event):
    """This record was removed from the middle of the log."""

    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class TopicRecreated(Event):
    """The topic is a new one of the same name; its logs are empty."""

    topic: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class Generation(Event):
    """A rebalance reached a new generation with these members (member ids, not names)."""

    group: str
    generation: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Evicted(Event):
    """The coordinator dropped a member; `why` is session, rebalance, poll_interval, left or fenced."""

    group: str
    member: str
    member_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Assigned(Event):
    """`on_assigned` is about to be called."""

    member: str
    generation: int
    places: Places


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The member began to fetch a partition at this offset."""

    member: str
    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Reset(Event):
    """The member moved its position deliberately."""

    member: str
    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class RevokedBegin(Event):
    """`on_revoked` is about to be called."""

    member: str
    generation: int
    places: Places


@dataclass(frozen=True, slots=True)
class RevokedEnd(Event):
    """`on_revoked` returned; the partitions are let go."""

    member: str
    generation: int
    places: Places


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """`on_lost` is about to be called."""

    member: str
    places: Places


@dataclass(frozen=True, slots=True)
class Delivered(Event):
    """A record was handed to the member by `poll` or `sweep`."""

    member: str
    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class CommitSent(Event):
    """The member asked for this commit."""

    member: str
    generation: int
    place: TopicPartition
    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class CommitAccepted(Event):
    """The coordinator stored it, whatever the client was told afterwards."""

    member: str
    generation: int
    place: TopicPartition
    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class CommitRefused(Event):
    """The coordinator did not store it."""

    member: str
    generation: int
    place: TopicPartition
    offset: int
    code: str


@dataclass(frozen=True, slots=True)
class CommitAnswered(Event):
    """`on_committed` is about to be called; `code` is empty for a confirmed position."""

    member: str
    place: TopicPartition
    offset: int
    code: str


@dataclass(frozen=True, slots=True)
class LetterWritten(Event):
    """A produced record is in its topic's log; `number` is the sink's count of sends."""

    member: str
    number: int
    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class LetterAcked(Event):
    """The sender was told that its record is there."""

    member: str
    number: int
    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class LetterFailed(Event):
    """The sender was told that its record is not there (it may be, all the same)."""

    member: str
    number: int
    code: str


@dataclass(frozen=True, slots=True)
class ProcessCrashed(Event):
    """The process is gone, as by kill -9."""

    member: str


@dataclass(frozen=True, slots=True)
class ProcessStopped(Event):
    """SIGSTOP."""

    member: str


@dataclass(frozen=True, slots=True)
class Continued(Event):
    """SIGCONT."""

    member: str


@dataclass(frozen=True, slots=True)
class ClientClosed(Event):
    """The member's source is closed."""

    member: str


@dataclass(frozen=True, slots=True)
class Frozen(Event):
    """The broker stopped answering; `data` says whether fetches and produces stopped, too."""

    data: bool


@dataclass(frozen=True, slots=True)
class Thawed(Event):
    """The broker answers again."""


class Trace:
    """The events in order, and how often each kind of fault occurred."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.faults: Counter[str] = Counter()
        self.listeners: list[Callable[[Event], None]] = []

    def add(self, event: Event) -> None:
        self.events.append(event)
        for listener in self.listeners:
            listener(event)

    def fault(self, kind: str) -> None:
        self.faults[kind] += 1

    def fault_table(self) -> list[tuple[str, int]]:
        """Kinds of faults with their counts, sorted by name."""
        return sorted(self.faults.items())
