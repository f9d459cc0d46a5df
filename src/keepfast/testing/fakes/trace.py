"""What happened in a simulated world, as values: the oracle reads nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from keepfast.core.records import TopicPartition

Places = tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened at the simulated second `at`. `member` below is the name of the process concerned."""

    at: float


@dataclass(frozen=True, slots=True)
class Produced(Fact):
    """A record reached its partition's log."""

    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class LogStartMoved(Fact):
    """Records below `offset` were deleted."""

    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Compacted(Fact):
    """This record was removed from the middle of the log."""

    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class TopicReplaced(Fact):
    """The topic is a new one of the same name; its logs are empty."""

    topic: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class Generation(Fact):
    """A rebalance reached a new generation with these members (member ids, not names)."""

    group: str
    generation: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Evicted(Fact):
    """The coordinator dropped a member; `why` is session, rebalance, poll_interval, left or fenced."""

    group: str
    member: str
    member_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Neglected(Fact):
    """The client of this member does not fetch this partition any more, and says nothing about it."""

    member: str
    place: TopicPartition


@dataclass(frozen=True, slots=True)
class Refetched(Fact):
    """The client fetches this partition again by order of its member, from its own position."""

    member: str
    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class ClientReplaced(Fact):
    """The client was replaced by a new one; `on_revoked` follows, if it has partitions."""

    member: str


@dataclass(frozen=True, slots=True)
class AssignCalled(Fact):
    """`on_assigned` is about to be called."""

    member: str
    generation: int
    places: Places


@dataclass(frozen=True, slots=True)
class Started(Fact):
    """The member began to fetch a partition at this offset."""

    member: str
    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Reset(Fact):
    """The member moved its position deliberately."""

    member: str
    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class RevokedBegin(Fact):
    """`on_revoked` is about to be called."""

    member: str
    generation: int
    places: Places


@dataclass(frozen=True, slots=True)
class RevokedEnd(Fact):
    """`on_revoked` returned; the partitions are released."""

    member: str
    generation: int
    places: Places


@dataclass(frozen=True, slots=True)
class LostCalled(Fact):
    """`on_lost` is about to be called."""

    member: str
    places: Places


@dataclass(frozen=True, slots=True)
class ProducerGivenUp(Fact):
    """A call of the member's transactions did not return: `on_error` is called, and its partitions are lost."""

    member: str


@dataclass(frozen=True, slots=True)
class Delivered(Fact):
    """A record was handed to the member by `poll` or `sweep`."""

    member: str
    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class CommitSent(Fact):
    """The member asked for this commit."""

    member: str
    generation: int
    place: TopicPartition
    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class CommitAccepted(Fact):
    """The coordinator stored it, whatever answer the client got. `late`: it is the first copy of a commit that was sent
    again, and the network has held it back.
    """

    member: str
    generation: int
    place: TopicPartition
    offset: int
    metadata: str
    late: bool = False


@dataclass(frozen=True, slots=True)
class CommitRefused(Fact):
    """The coordinator did not store it."""

    member: str
    generation: int
    place: TopicPartition
    offset: int
    code: str


@dataclass(frozen=True, slots=True)
class CommitAnswered(Fact):
    """`on_committed` is about to be called; `code` is empty for a confirmed position."""

    member: str
    place: TopicPartition
    offset: int
    code: str


@dataclass(frozen=True, slots=True)
class LetterWritten(Fact):
    """A produced record is in its topic's log; `number` is the sink's count of sends."""

    member: str
    number: int
    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class LetterAcked(Fact):
    """The sender got an acknowledgement."""

    member: str
    number: int
    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class LetterFailed(Fact):
    """The sender got an error (the record may be written nevertheless)."""

    member: str
    number: int
    code: str


@dataclass(frozen=True, slots=True)
class ProcessCrashed(Fact):
    """The process was killed, as by kill -9."""

    member: str


@dataclass(frozen=True, slots=True)
class ProcessStopped(Fact):
    """SIGSTOP."""

    member: str


@dataclass(frozen=True, slots=True)
class Continued(Fact):
    """SIGCONT."""

    member: str


@dataclass(frozen=True, slots=True)
class ClientClosed(Fact):
    """The member's source is closed."""

    member: str


@dataclass(frozen=True, slots=True)
class Frozen(Fact):
    """The broker stopped answering; `data` says whether fetches and produces stopped, too."""

    data: bool


@dataclass(frozen=True, slots=True)
class Thawed(Fact):
    """The broker answers again."""


class Trace:
    """The events in order, and how often each kind of fault occurred."""

    def __init__(self) -> None:
        self.events: list[Fact] = []
        self.faults: Counter[str] = Counter()
        self.listeners: list[Callable[[Fact], None]] = []

    def add(self, event: Fact) -> None:
        self.events.append(event)
        for listener in self.listeners:
            listener(event)

    def fault(self, kind: str) -> None:
        self.faults[kind] += 1

    def fault_table(self) -> list[tuple[str, int]]:
        """Kinds of faults with their counts, sorted by name."""
        return sorted(self.faults.items())
