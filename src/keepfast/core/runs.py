"""Work in flight. Owner: the loop thread.

A *partition* is one assignment: its buffer, its ledger, its holds. A *run* is what a worker gets: records of one
partition. A *failed record* holds its lane until it is finished.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from keepfast.core.commit_metadata import WINDOW, CompletionMap
from keepfast.core.crash_guard import CrashWatch
from keepfast.core.errors import SinkError, named_in
from keepfast.core.ledger import Ages, HeldBytes, Ledger
from keepfast.core.records import Message, Outgoing, Output, TopicPartition
from keepfast.core.retry_topics import Returned
from keepfast.core.verdicts import Classification, Verdict

T = TypeVar("T")


class OrderedSet(dict[T, None]):
    """What the engine needs of a set, walked in the order in which its members came: a walk must not depend on where
    objects lie in memory. The members are the keys.
    """

    __slots__ = ()

    add = dict.setdefault  # whose default is None

    def discard(self, member: T) -> None:
        self.pop(member, None)


NO_LEASE_NEEDED = 1 << 63
"""Above every offset."""


class HeldReplays(Protocol):
    """The replayed records of a partition: they are finished when it is reported what became of them."""

    def hold_back(
        self, seqs: Sequence[int], messages: list[Message], filtered: Collection[int]
    ) -> tuple[Sequence[int], list[Message]]:
        """These are done, those at positions `filtered` without a call: returns those that are finished now."""
        ...

    def holds_back(self, failed_record: FailedRecord) -> bool:
        """It has reached its verdict, or succeeded: whether it is finished later."""
        ...


class Partition:
    """Lives for one ownership epoch. After `live` became False it is stale."""

    __slots__ = (
        "ages",
        "awaiting",
        "buffer",
        "buffered_seq",
        "closing",
        "committed",
        "epoch",
        "failed_records",
        "flight",
        "full_seq",
        "full_since",
        "held",
        "holds",
        "in_lanes",
        "lease",
        "lease_low",
        "ledger",
        "live",
        "missed",
        "output_bytes",
        "outputs",
        "pauses",
        "place",
        "queued",
        "replays",
        "reporting",
        "running",
        "skips",
        "spared",
        "topic_id",
        "topic_partitions",
        "unreported",
        "watch",
    )

    def __init__(
        self,
        place: TopicPartition,
        *,
        epoch: int,
        start: int,
        resumed: CompletionMap | None = None,
        topic_id: str = "",
        topic_partitions: int | None = None,
        committed: tuple[int, str] | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self.place = place
        self.epoch = epoch
        self.topic_id = topic_id  # of the topic that its offsets are about, as known when the epoch began
        self.topic_partitions = topic_partitions  # when the group started at its end; goes into commits
        self.ledger = Ledger(start, resumed, leader_epoch)
        self.ages = Ages()
        self.missed: tuple[int, float] | None = None  # what the brokers have and did not deliver: offset, since when
        self.skips = bool(resumed)  # the buffer may contain records that are finished already
        self.spared = False  # of a queue: others are more likely to have killed their process at the last delivery
        self.live = True
        self.closing = False  # being revoked: what runs may finish its record, nothing new starts
        self.holds: set[str] = set()
        self.buffer: list[Message] = []  # taken from in slices: no step per record
        self.buffered_seq = 0  # sequence number of buffer[0]
        self.in_lanes = 0  # records that wait in lanes, behind others of their key
        self.held = HeldBytes()
        self.pauses: set[str] = set()  # who does not want the client to fetch it; each removes its own
        self.full_since: float | None = None
        self.full_seq = 0  # `buffered_seq` at that time
        self.queued = False  # already in the lanes' queue of partitions with something to start
        self.running: OrderedSet[Run] = OrderedSet()
        self.failed_records: OrderedSet[FailedRecord] = OrderedSet()
        self.replays: HeldReplays | None = None  # None until a replayed record is received
        self.reporting = 0  # records that are done, and finished when the desk knows it
        self.unreported: dict[int, list[Output]] = {}  # these, by offset: what they gave is committed with them
        self.awaiting: list[Run | FailedRecord] = []  # finished, lane held until a commit that covers them is confirmed
        self.committed = committed or (start, "")  # what the broker is known to have
        self.outputs: list[Output] = []  # due to what is finished, for the transaction that commits it
        self.output_bytes = 0  # of these, and of those under way
        self.watch: CrashWatch | None = None  # the crash guard's; None where it is switched off
        self.flight = -1  # its number in the flight recorder; -1: its records in flight are not noted
        self.lease = NO_LEASE_NEEDED  # offsets from here on may not start before a commit moves it,
        self.lease_low = NO_LEASE_NEEDED  # and from here on it is time to ask for that

    def feed(self, messages: list[Message]) -> None:
        """Enter received records, in offset order. What was received before is not entered again."""
        offsets = list(map(type(messages[0]).offset, messages))
        if offsets[0] <= self.ledger.last:
            last = self.ledger.last
            messages = [message for message in messages if message.offset() > last]
            offsets = [offset for offset in offsets if offset > last]
            if not messages:
                return
        first = self.ledger.receive(offsets)
        if not self.buffer:
            self.buffered_seq = first
        self.buffer.extend(messages)
        self.held.receive(first, messages)
        self.ages.note(first, messages)
        self.ledger.epochs.note(messages)
        if self.ages.many:
            self.ledger.watermark()
            self.ages.written_ms(self.ledger.lowest)

    def behind_s(self, wall_s: float, end: int, *, fetched: bool) -> float | None:
        """How old the oldest record below `end` is that is not finished: 0 if there is none, None if it has no
        timestamp. The producer's clock may be ahead of this one; a record is never younger than new.

        Of one that was not received only this is known: how long ago it was first missed, if the partition is not
        `fetched`. If it is, a record would be here: below the end is a marker whose end is not reported yet, or an
        open transaction.
        """
        position = self.ledger.watermark()
        if position <= self.ledger.last:
            written_ms = self.ages.written_ms(self.ledger.lowest)
            return None if written_ms is None else max(0.0, wall_s - written_ms / 1000)
        if end <= position or fetched:
            self.missed = None
            return 0.0
        if self.missed is None or self.missed[0] != position:
            self.missed = position, wall_s
        return max(0.0, wall_s - self.missed[1])

    @property
    def held_bytes(self) -> int:
        """Of records received and not finished, wherever they are, and of outputs that are not committed."""
        return self.held.total + self.output_bytes

    @property
    def paused(self) -> bool:
        return bool(self.pauses)

    @property
    def startable(self) -> bool:
        return self.live and not self.closing and not self.holds

    def window_end(self) -> int:
        """Offsets from here on may not start yet, or the completion map would not fit."""
        return self.ledger.watermark() + WINDOW

    @property
    def handed(self) -> int:
        """No record from this offset on has been handed out to the lanes."""
        return self.buffer[0].offset() if self.buffer else self.ledger.next_offset

    def within_lease(self, count: int) -> int:
        """How many of the first `count` buffered records may start by the lease. Asks for more when it gets short."""
        if not count or self.buffer[count - 1].offset() < self.lease_low:
            return count
        self.run_out()
        return bisect_left(self.buffer, self.lease, hi=count, key=type(self.buffer[0]).offset)

    def lease_until(self, lease: int, low: int) -> None:
        self.lease = lease
        self.lease_low = min(low, lease)

    def attach(self, watch: CrashWatch, flight: int) -> None:
        """The crash guard watches it: nothing of it starts before a commit has moved the lease."""
        self.watch, self.flight = watch, flight
        self.lease_until(0, 0)

    def run_out(self) -> None:
        """The lease is used up, or will be soon: only a commit moves it."""
        if self.watch is not None:
            self.watch.run_out()

    def finish(self, run: Run) -> None:
        """The first `run.done` records of the run are finished."""
        self._finish(run, run.done)

    def take_stock(self, run: Run) -> bool:
        """A run that was asked to stop hangs in a record: what it did before is finished. Whether that is anything."""
        if run.current <= run.taken or not self.live or self.closing:
            return False
        self._finish(run, run.current)
        return True

    def _finish(self, run: Run, count: int) -> None:
        first, run.taken = run.taken, count
        seqs, messages = run.seqs, run.messages
        if first or count < len(seqs):
            seqs, messages = seqs[first:count], messages[first:count]
        done = messages
        if self.replays is not None:
            seqs, messages = self.replays.hold_back(seqs, messages, {at - first for at in run.filtered})
            if len(messages) < len(done):
                finished = set(map(id, messages))
                self.unreported |= {message.offset(): [] for message in done if id(message) not in finished}
        if seqs:
            self.ledger.finish(seqs)
            self.held.finish(seqs, messages)
        if run.outputs:
            self.take_outputs(run, done)

    def take_outputs(self, run: Run, messages: Sequence[Message]) -> None:
        """These records of the run are done: what they gave is committed with them, when they are finished."""
        done = set(map(id, messages))
        for message, outgoing in run.outputs:
            if id(message) in done:
                output, later = Output(outgoing), self.unreported.get(message.offset())
                if later is None:
                    self.add_output(output)
                else:
                    later.append(output)
                    self.output_bytes += output.size

    def add_output(self, output: Output) -> None:
        """Its record is finished, or will be before the next commit."""
        self.outputs.append(output)
        self.output_bytes += output.size

    def outputs_back(self, outputs: Sequence[Output]) -> None:
        """Their transaction was aborted: the next one takes them."""
        self.outputs[:0] = outputs

    def outputs_done(self, outputs: Sequence[Output]) -> None:
        """Their transaction is committed."""
        self.output_bytes -= sum(output.size for output in outputs)

    def add_failed(self, failed_record: FailedRecord) -> None:
        """It holds its lane from now on."""
        self.failed_records.add(failed_record)

    def drop_failed(self, failed_record: FailedRecord) -> None:
        """Nothing more is done about it here: the next owner reads it again."""
        self.failed_records.discard(failed_record)

    def finish_failed(self, failed_record: FailedRecord) -> None:
        self.failed_records.discard(failed_record)
        if self.replays is None or not self.replays.holds_back(failed_record):
            self.finish_reported(failed_record.seq, failed_record.message)
        else:
            self.unreported[failed_record.message.offset()] = []

    def finish_reported(self, seq: int, message: Message) -> None:
        """It is done, and the desk knows it if it must."""
        self.ledger.finish((seq,))
        self.held.finish((seq,), (message,))
        self.outputs += self.unreported.pop(message.offset(), ())

    def close(self) -> None:
        """The epoch is over: nothing of it may be committed, dead-lettered or started any more."""
        self.live = False
        self.buffer.clear()
        self.awaiting.clear()
        self.outputs.clear()
        self.unreported.clear()


KEPT_ATTEMPTS = 20


class NotBegun(Exception):
    """Raised in place of calling the user's function: the run was asked to stop while its record waited its turn. No
    failure: the record counts as never begun.
    """


class FilteredOut(Exception):
    """Raised in place of calling the user's function: the consumer's filter does not let the record pass. No failure:
    the record is finished.
    """


@dataclass(frozen=True, slots=True)
class Attempt:
    """One failed attempt: when (wall clock) and with what. Not the exception: its frames would keep payloads alive.

    `message` is masked, one line and bounded; `raised_at` is `file:line` in the user's code; `took_s` is how long the
    handler took. Each is empty where it is not known.
    """

    at: float
    error_type: str
    message: str = ""
    raised_at: str = ""
    took_s: float | None = None


class Sends(Protocol):
    """What one attempt has sent with `ctx.send`."""

    def wait(self) -> SinkError | None:
        """Block until every send is answered, or they are closed. Returns the first failure."""
        ...

    async def wait_async(self) -> SinkError | None:
        """As `wait`, without blocking the event loop."""
        ...

    def close(self, answered: Callable[[SinkError | None], None]) -> None:
        """Refuse further sends, and call `answered` exactly once, when all are answered: with the first failure, or
        None. Never blocks; `answered` is called from any thread, perhaps before this returns.
        """


class FailedRecord:
    """A record that failed at least once; it holds its lane until it is finished. Owner: the loop thread.

    `verdict` is sticky: once it is DeadLetter or Move, only the publishing is repeated, never the handler.
    `failures` and `attempts` of a record that came back from a retry topic begin with those before it.
    """

    __slots__ = (
        "attempts",
        "begun_at",
        "dropped",
        "failures",
        "found",
        "keys",
        "message",
        "partition",
        "seq",
        "stays",
        "still_s",
        "verdict",
    )

    def __init__(
        self, partition: Partition, seq: int, message: Message, keys: tuple[bytes, ...], begun_at: float
    ) -> None:
        self.partition = partition
        self.seq = seq
        self.message = message
        self.keys = keys
        self.begun_at = begun_at
        past = message.past if isinstance(message, Returned) else None
        self.failures = past.failures if past else 0
        self.attempts = [Attempt(*one) for one in past.attempts] if past else []
        self.found: Classification | None = None  # how the rules classified the last failure
        self.verdict: Verdict | None = None
        self.stays = False  # too large for a retry topic: what is left of its way is here
        self.dropped = False
        self.still_s: float | None = None  # how long guards had held everything when it first failed

    def note(self, attempt: Attempt) -> None:
        """One more failure. The first attempt and the last ones are kept: a record may be retried forever."""
        self.failures += 1
        self.attempts.append(attempt)
        if len(self.attempts) > KEPT_ATTEMPTS:
            del self.attempts[1]


LaneOf = Callable[[Message], Hashable]
"""What the record must be in order with; None where it is free."""


class SelectedRecords:
    """Records that are handed over in one call. It reads like one message whose value is the list of their values."""

    __slots__ = ("_values", "messages")

    def __init__(self, messages: Sequence[Message], values: list[Any]) -> None:
        self.messages = messages
        self._values = values

    def value(self) -> list[Any]:
        return self._values


class Run:
    """Records of one partition handed to a worker in one go, in order; several lanes may travel in one run.

    While it is out, the worker alone writes `current`, `attempt`, `done`, `filtered`, `skipped`, `failure`, `failed_s`,
    `waits`, `abort`, `sends`, `sending`, `outputs` and `elapsed_s`; the loop alone writes `stop`, `abandoned` and
    `taken` and adds to `messages`. The worker writes `current` and *then* reads `stop` before each record, so
    once the loop has set `stop` and read `current`, nothing behind that record will be started. Otherwise the loop
    thread owns it. Once `abandoned`, it stays with its worker: the loop continues with a stand-in.
    """

    __slots__ = (
        "abandoned",
        "abort",
        "attempt",
        "batch",
        "begun_at",
        "current",
        "done",
        "elapsed_s",
        "failed_record",
        "failed_s",
        "failure",
        "filtered",
        "keys",
        "messages",
        "outputs",
        "partition",
        "sending",
        "sends",
        "seqs",
        "skipped",
        "stop",
        "taken",
        "waits",
    )

    def __init__(
        self,
        partition: Partition,
        messages: list[Message],
        seqs: Sequence[int],
        keys: dict[bytes, None],
        failed_record: FailedRecord | None = None,
    ) -> None:
        self.partition = partition
        self.messages = messages
        self.seqs = seqs
        self.keys = keys
        self.failed_record = failed_record
        self.batch: Run | None = None  # which it is a part of
        self.attempt = 1 if failed_record is None else failed_record.failures + 1
        self.begun_at = 0.0
        self.stop = False
        self.current = -1
        self.done = 0
        self.filtered: Sequence[int] = ()  # positions, of those that are done, that did not pass the filter
        self.skipped: Sequence[int] = ()  # positions of those that were processed before, as the inbox says
        self.failure: BaseException | None = None
        self.failed_s = 0.0  # how long the attempt took that failed
        self.elapsed_s = 0.0
        self.waits = False  # for its turn, or for its transaction then: in flight, and the handler has not begun
        self.abort: Callable[[], None] | None = None  # rolls its transaction back; any thread, and may block
        self.sends: Sends | None = None  # of the attempt in flight, or of the last one
        self.outputs: Sequence[tuple[Message, Outgoing]] = ()  # what its records gave that are done, for a transaction
        self.sending = False  # the handler is over, and what it sent is not acknowledged yet
        self.abandoned = False
        self.taken = 0  # so many of its first records are finished although it is still out

    @property
    def parts(self) -> Sequence[Run]:
        """The runs that its records belong to, one after another."""
        return (self,)

    @property
    def stopped(self) -> bool:
        """Whether what has not begun must not begin any more."""
        return self.stop

    @property
    def given(self) -> Sequence[int] | None:
        """Positions in `messages` of what the handler of a batch got; None: of all."""
        return None

    @property
    def call_size(self) -> int:
        """How many records a call of the handler gets."""
        return 1

    def in_hand(self) -> Sequence[tuple[Partition, int]]:
        """Partitions and offsets of the records that its worker is at."""
        at = self.current
        return [(self.partition, self.messages[at].offset())] if 0 <= at < len(self.messages) else ()

    def stale_holders(self) -> Sequence[Run | FailedRecord]:
        """What holds its lanes, of partitions whose epoch is over."""
        return () if self.partition.live else (self.failed_record or self,)

    @classmethod
    def again(cls, failed_record: FailedRecord) -> Run:
        """The next attempt of a failed record: on its own, in the lane that this holds."""
        return cls(failed_record.partition, [failed_record.message], (failed_record.seq,), {}, failed_record)

    @property
    def may_grow(self) -> bool:
        """Whether its worker would find records that are added to it."""
        return self.failed_record is None and self.batch is None and not self.stop and self.failure is None

    def enter(self) -> None:
        """It goes out to a worker."""
        self.partition.running.add(self)

    def leave(self) -> None:
        """It is back from its worker."""
        self.partition.running.discard(self)

    def give(self, message: Message, outgoing: Sequence[Outgoing]) -> None:
        """The worker: the attempt at this record went well, and these are to be produced with its commit."""
        if not isinstance(self.outputs, list):
            self.outputs = []
        self.outputs += [(message, one) for one in outgoing]

    def filter_out(self, position: int) -> None:
        """The worker: the record there does not pass the filter. Called before `done` counts it."""
        if not isinstance(self.filtered, list):
            self.filtered = []
        self.filtered.append(position)

    def skip(self, positions: Iterable[int]) -> None:
        """The worker: the inbox says of these, of the records that a call is about, that they were processed before.
        They count when they are done.
        """
        self.skipped = [*self.skipped, *(self.current + position for position in positions)]

    @property
    def skipped_count(self) -> int:
        """How many of those that are done were processed before."""
        return sum(position < self.done for position in self.skipped)

    @property
    def handled(self) -> int:
        """How many of those that are done the handler was called for."""
        return self.done - len(self.filtered)

    def select(self, decode: Callable[[Message], Any], lane_of: LaneOf) -> SelectedRecords | None:  # noqa: ARG002 - see Batch
        """The worker: what is handed over in one call of a batch handler; None if nothing is done about this run. It is
        empty if no record passes the filter (`decode` raises FilteredOut): then there is no call, and the run has
        succeeded. Raises what `decode` raises, unless the run can continue without that record.
        """
        self.current = 0
        if self.stop or not self.messages:
            return None
        try:
            return SelectedRecords(self.messages, [decode(message) for message in self.messages])
        except FilteredOut:  # of a record that is retried alone
            self.filter_out(0)
            return SelectedRecords((), [])

    def unselect(self) -> None:
        """The worker: what was selected is not handed over, as if the run had been asked to stop before."""

    def succeeded(self) -> None:
        """The worker: what was selected is done."""
        self.done = len(self.messages)

    def judged_by(self, error: BaseException) -> BaseException:
        """What to judge the run by, if its call raised this: what the handler says of the only record of a call."""
        return named_in(error, 1).get(0, error)

    def stand_in(self, done: int, failure: BaseException, now: float) -> Run:
        """The same run as if it came back now, with this failure at record `done`, whatever its worker writes."""
        other = Run(self.partition, list(self.messages), self.seqs, self.keys, self.failed_record)
        other.begun_at = self.begun_at
        other.current = other.done = done
        other.filtered = [position for position in self.filtered if position < done]
        other.skipped = [position for position in self.skipped if position < done]
        if self.outputs:
            before = set(map(id, self.messages[:done]))
            other.outputs = [one for one in tuple(self.outputs) if id(one[0]) in before]
        other.failure = failure
        other.taken = self.taken
        other.failed_s = other.elapsed_s = now - self.begun_at  # so it was no quick one
        return other

    def rest(self, messages: list[Message], seqs: Sequence[int]) -> None:
        """Make it a run over what is left, as if it had never been out."""
        self.messages = messages
        self.seqs = seqs
        self.batch = None
        self.stop = False
        self.current = -1
        self.done = 0
        self.filtered = ()
        self.skipped = ()
        self.taken = 0
        self.failure = None
        self.sends = None
        self.outputs = ()
        self.sending = False
        self.elapsed_s = 0.0


class InFlight(dict[Run, None]):
    """Every run that was started and has not come back, wherever it is, in the order of the starts. Owner: the loop
    thread. Others read it and change it by its methods alone.

    `given_up` are runs that nothing waits for although a worker still has them, and since when (monotonic).
    """

    __slots__ = ("given_up",)

    def __init__(self) -> None:
        super().__init__()
        self.given_up: dict[Run, float] = {}

    def start(self, runs: Sequence[Run], now: float) -> None:
        """These go out to workers."""
        for run in runs:
            run.begun_at = now
            run.enter()
            self[run] = None

    def back(self, run: Run) -> None:
        """It is back from its worker."""
        self.pop(run, None)
        run.leave()

    def give_up(self, run: Run, now: float) -> None:
        """Its worker keeps it, and does not count."""
        self.back(run)
        self.given_up[run] = now

    def regain(self, run: Run) -> float:
        """One that was given up has come back. Returns since when it was given up."""
        return self.given_up.pop(run)

    def stand_in(self, run: Run) -> None:
        """This one is out in place of a run that was given up, since that was started."""
        run.enter()
        self[run] = None
