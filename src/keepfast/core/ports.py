"""The edges of the engine: what it needs from a client, an executor, a mailbox and a clock.

Each protocol has one conformance suite (`tests/conformance`), run against the real thing and the simulator's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol

from keepfast.core.errors import SinkError, SourceError, SpoolError
from keepfast.core.records import Message, Outgoing, Output, Receipt, TopicPartition
from keepfast.core.runs import Run

BEGINNING = -2
"""As the offset of a position to start from: the first record there is."""


@dataclass(slots=True, unsafe_hash=True)
class Position:
    """Where to commit or to start: the next offset to read, and the text that travels with the commit. `outputs`: what
    must be produced with it or not at all; only for sources that commit in transactions.

    Never changed. It is not frozen, nor are the others that are made for each commit: that would take five times as
    long.
    """

    place: TopicPartition
    offset: int
    metadata: str = ""
    outputs: tuple[Output, ...] = field(default=(), compare=False)
    finished: Sequence[int] = field(default=(), compare=False)
    """Offsets to acknowledge, one by one; only for sources of a queue, which have no position."""
    leader_epoch: int | None = field(default=None, compare=False)
    """The leader epoch of the log at the offset, by which the broker detects that it was cut; None: unknown."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What the group has committed for a partition; `offset` is None when there is no commit."""

    place: TopicPartition
    offset: int | None
    metadata: str = ""
    leader_epoch: int | None = field(default=None, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class CommitOutcome:
    """The broker's answer to one commit request: partitions it took, and those it did not, each with its error. Never
    changed.
    """

    confirmed: tuple[Position, ...]
    failed: tuple[tuple[Position, SourceError], ...] = ()


NO_ANSWER: Final = "NO_ANSWER"
"""The code of the error that says that a broker does not answer. It is repeated as long as that is so."""

PRODUCER_HANGS: Final = "PRODUCER_HANGS"
"""The code of the error that says that a call of the transactions' producer does not return."""

NO_ANSWER_EVERY_S: Final = 5.0
"""How often, unless the user's properties of the client say otherwise."""

THROTTLED: Final = "THROTTLED"
"""The code of the error that says that a broker delays its answers to this client by a quota, repeated as that one."""


class Listener(Protocol):
    """Callbacks of a source, always from inside `poll`, `sweep` or `close`, on the thread that called it.

    The adapter guards every call: an exception that leaves a listener never reaches the client (which would destroy
    records it has already handed out); it is kept and raised by the next `poll` or `sweep` before that touches the
    client.
    """

    def on_assigned(self, places: Sequence[TopicPartition]) -> None:
        """New partitions. Call `Source.start` for each of them before returning. May get an empty sequence."""

    def on_revoked(self, places: Sequence[TopicPartition]) -> None:
        """Still ours until this returns: drain and commit inside. The adapter releases (unassigns) afterwards."""

    def on_lost(self, places: Sequence[TopicPartition]) -> None:
        """Another member owns them already: commit nothing. The adapter unassigns afterwards."""

    def on_committed(self, outcome: CommitOutcome) -> None:
        """The answer to the one commit request under way."""

    def on_commit_repeated(self) -> None:
        """The client has sent a commit more than once, because its connection broke before the answer: the network may
        still deliver the first copy, after others that followed. Not every source can tell. May come seconds later.
        """

    def on_end(self, place: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        """Every record below this offset that the source will ever give of this start of the partition was returned by
        earlier calls: what lies between the last one and this offset are markers of transactions, records of aborted
        ones, or gaps that compaction left. Not every source can tell, nor the leader epoch of the log there.
        """

    def on_replaced(self) -> None:
        """The client has failed, or was to be replaced: a new one is about to join the group. All partitions of the
        last one are lost or revoked by now.
        """

    def on_error(self, error: SourceError, place: TopicPartition | None) -> None:
        """Something went wrong that is not a record: out of range, unknown topic, refused, fenced, brokers away."""


class Source(Protocol):
    """The consuming client. One owner thread: the loop's. Nothing here raises the client library's own exceptions."""

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Join the group; called again, outside callbacks, it changes what is read: partitions of topics that stay are
        kept. No topics: read nothing, and be no member. Raises SourceError.
        """

    def poll(self, timeout_s: float) -> Message | None:
        """Wait for one record or the answer to a commit, at most timeout_s; serves callbacks. 0 never waits."""
        ...

    def sweep(self, limit: int) -> list[Message]:
        """Take what is already fetched, at most `limit`; never waits; serves callbacks.

        Only good records come back, and only of partitions that were started and not yet stopped.
        """
        ...

    @property
    def emptied(self) -> bool:
        """Whether the last `poll` or `sweep` took all that the client had fetched. False if that is not known."""
        ...

    def serve(self, timeout_s: float) -> float:
        """Inside on_revoked only, where polling is impossible: wait at most timeout_s for the commit under way.

        Calls `on_committed` if the broker is known to hold what was sent. If not, the answer comes from a later `poll`
        or `sweep`, perhaps for partitions that are no longer ours. Returns for how many seconds the broker has held
        nothing of it whenever it was asked, and answered; 0 where that is not known, or of no interest any more.
        """
        ...

    def start(self, positions: Sequence[Position]) -> None:
        """Begin fetching these partitions at these offsets (inside on_assigned). Clears any earlier pause of them.

        A position with a leader epoch is checked: if the log was cut below it since, that is reported as an offset out
        of range. Not every source can do that.
        """

    def reset(self, position: Position) -> None:
        """Drop what was fetched of a started partition and continue from another offset; keeps it paused if it was."""

    def refetch(self, position: Position) -> None:
        """Continue fetching a started partition that is not paused, from its own position, whatever state the client
        has it in. Raises SourceError.
        """

    @property
    def reports_ends(self) -> bool:
        """Whether `on_end` is called: else offsets without a record look like records that do not come."""
        ...

    def renew(self) -> bool:
        """Replace the client with a new one in the next `poll` or `sweep`: `on_revoked` is called with all partitions,
        then `on_replaced`. Returns False where the client is not ours to replace.
        """
        ...

    def pause(self, places: Sequence[TopicPartition]) -> None: ...
    def resume(self, places: Sequence[TopicPartition]) -> None: ...

    def committed(self, places: Sequence[TopicPartition], timeout_s: float) -> list[CommittedOffset]:
        """Ask the group's coordinator. Raises SourceError; an error of one partition is an error, never 'no commit'."""
        ...

    def edges(self, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """The first offset of the log and the next one to be written. Raises SourceError."""
        ...

    def ends(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        """The next offset to be written of each, in one question. Raises SourceError, also if it is about one alone."""
        ...

    def beginnings(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        """The first offset of each log, in one question. Raises SourceError, also if it is about one alone."""
        ...

    def at_time(self, place: TopicPartition, at_ms: int, timeout_s: float) -> int | None:
        """The first offset whose record is not older than this; None if there is none. Raises SourceError."""
        ...

    def seen_ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends as the client knows them from its last fetches: makes no request and never waits, also in callbacks.
        Those it knows nothing of are left out. Raises SourceError.
        """
        ...

    def commit(self, positions: Sequence[Position]) -> None:
        """Send one commit request and return at once; `on_committed` answers, exactly once, from a later call.

        At most one may be under way. If even sending fails, the outcome still comes through `on_committed`.

        A source that commits in transactions stores all positions and produces all their outputs, or nothing: a failure
        means that nothing of it will ever be there. If it cannot know, it calls `on_lost` with all partitions first.
        """

    def close(self, *, leave: bool = True) -> None:
        """Leave the group. Final: callbacks may come during it. May block for a while when the broker is down.

        Without `leave`, a static member (one with a `group_instance_id`) keeps its place until its session ends: it
        gets its partitions back if it returns under its name by then. Others leave in any case.
        """


class QueueSource(Source, Protocol):
    """The consuming client of a queue (a share group). It hands out records of any partition, each locked for a time,
    and the next ones only when each of the last ones is acknowledged or released. There are no assignments and no
    positions: `commit` acknowledges `Position.finished`, and what fails is not sent again.

    `poll` hands out the first of the records that were acquired together, `sweep` the others. `serve` waits for the
    answer to an acknowledgement without acquiring anything, at any time.
    """

    def release(self, places: Sequence[TopicPartition]) -> None:
        """Records of these partitions that are not acknowledged are given back; their locks may have run out."""


Delivery = Callable[[Receipt | SinkError], None]


class Sink(Protocol):
    """The producing client: idempotent, acks=all. Any thread may call it."""

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        """Never blocks, never raises: calls `delivered` exactly once, from any thread, perhaps before this returns."""

    def close(self, timeout_s: float) -> None:
        """Flush what is under way for at most timeout_s."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The spool has it, and will have it after a crash."""


OnKept = Callable[[Kept | SpoolError], None]


class Spool(Protocol):
    """Where letters wait that Kafka does not take; whatever is behind it sends them on when it can. Any thread."""

    def keep(self, outgoing: Outgoing, answer: OnKept) -> None:
        """Never blocks, never raises: calls `answer` exactly once, from any thread, perhaps before this returns."""

    def has(self, outgoing: Outgoing) -> bool:
        """Whether this letter (or a copy of it) is kept, or was sent on not long ago. Never blocks."""
        ...


AskEnds = Callable[[Sequence[TopicPartition], Callable[[Mapping[TopicPartition, int]], None]], None]
"""Asks for the next offset to be written of each: returns at once, and answers at most once, from any thread."""

AskDepths = Callable[[Mapping[str, int], Callable[[Mapping[str, int | None]], None]], None]
"""Asks for the records in each of these topics, given with the number of their partitions: returns at once, and answers
at most once, from any thread. None: there is no such topic. Left out: it is not known.
"""

AskExisting = Callable[[Collection[str], Callable[[Mapping[str, bool]], None]], None]
"""Asks which of these topics exist: returns at once, and answers at most once, from any thread; names of which that is
not known are left out.
"""

AskUnowned = Callable[[Collection[str], Callable[[frozenset[TopicPartition] | None], None]], None]
"""Asks which partitions of these topics no member of the group has: returns at once, and answers at most once, from any
thread. None: that is not known, as during a rebalance.
"""


class TopicIds(Protocol):
    """Says which topic a name stands for: one that was deleted and created again has another id."""

    def ask(self, topics: Sequence[str], answer: Callable[[Mapping[str, str | None]], None]) -> None:
        """Never blocks, never raises. Calls `answer` at most once, from any thread, with the id of each topic: empty if
        the topic exists and its id is not known, None if there is no such topic. What could not be asked is left out.
        """


class Mailbox(Protocol):
    """Where workers and sinks leave word for the loop."""

    def post(self, item: Any) -> None:
        """Any thread; never blocks. A list counts as its items, in order."""

    def collect(self, timeout_s: float) -> list[Any]:
        """Loop thread: wait for the first item, at most timeout_s (0: not at all), and take all that are there, in
        order.
        """
        ...


class Executor(Protocol):
    """Runs the user's code somewhere else; each run comes back through the mailbox. The loop thread calls it, and
    nothing of it blocks.
    """

    grace_s: float
    """How long a worker may take to come back from a run that was given up, before it counts as lost."""

    def submit(self, runs: list[Run], out: int) -> None:
        """`out` is how many runs are out now, these included; runs that were given up are not."""

    def lively(self) -> bool:
        """Whether workers could work since this was last asked. False while something keeps all of them from it."""
        ...

    def where(self, run: Run) -> TracebackType | None:
        """Where in the code the run is now, the innermost place last; None if it is not known."""
        ...

    def blocker(self) -> tuple[TracebackType | None, list[Run]]:
        """While not `lively`: where in the code the thread is that keeps all workers from working, and the runs whose
        handlers stand on its stack; they may be another consumer's. None and empty if it is not known.
        """
        ...

    def give_up(self, run: Run) -> None:
        """The record in flight took too long: end it if that is possible. Either way the worker does not count any
        more, so another may be started in its place; and the run still comes back, whenever its record ends.
        """

    def regain(self, run: Run) -> None:
        """A run that was given up has come back: its worker counts again."""


class Clock(Protocol):
    def monotonic(self) -> float: ...
    def wall(self) -> float: ...
