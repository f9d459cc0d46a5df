"""One assignment of one partition: its buffer, its ledger, its holds. Owner: the loop thread."""

from __future__ import annotations

from bisect import bisect_left

from keepfast.core.crash_guard import CrashWatch
from keepfast.core.held_bytes import HeldBytes
from keepfast.core.ledger import WINDOW, Ages, CompletionMap, Ledger
from keepfast.core.ordered import OrderedSet
from keepfast.core.records import Message, TopicPartition
from keepfast.core.runs import FailedRecord, Run

NO_LEASE_NEEDED = 1 << 63
"""Above every offset."""


class Partition:
    """Lives for one ownership epoch. Whoever holds one after `live` went False holds something stale."""

    __slots__ = (
        "ages",
        "awaiting",
        "buffer",
        "buffered_seq",
        "cases",
        "closing",
        "committed",
        "epoch",
        "flight",
        "full_since",
        "held",
        "holds",
        "in_lanes",
        "lease",
        "lease_low",
        "ledger",
        "live",
        "missed",
        "pauses",
        "place",
        "queued",
        "running",
        "skips",
        "topic_id",
        "topic_partitions",
        "watch",
    )

    def __init__(self, place: TopicPartition, *, epoch: int, start: int, resumed: CompletionMap | None = None) -> None:
        self.place = place
        self.epoch = epoch
        self.topic_id = ""  # of the topic that its offsets are about, as known when the epoch began
        self.topic_partitions: int | None = None  # when the group started at its end; goes into commits
        self.ledger = Ledger(start, resumed)
        self.ages = Ages()
        self.missed: tuple[int, float] | None = None  # what the brokers have and did not deliver: offset, since when
        self.skips = bool(resumed)  # the buffer may contain records that are finished already
        self.live = True
        self.closing = False  # being revoked: what runs may finish its record, nothing new starts
        self.holds: set[str] = set()
        self.buffer: list[Message] = []  # taken from in slices: no step per record
        self.buffered_seq = 0  # sequence number of buffer[0]
        self.in_lanes = 0  # records that wait in lanes, behind others of their key
        self.held = HeldBytes()
        self.pauses: set[str] = set()  # who does not want the client to fetch it; each removes its own
        self.full_since: float | None = None
        self.queued = False  # already in the lanes' queue of partitions with something to start
        self.running: OrderedSet[Run] = OrderedSet()
        self.cases: OrderedSet[FailedRecord] = OrderedSet()
        self.awaiting: list[Run | FailedRecord] = []  # finished, lane held until a commit that covers them is confirmed
        self.committed: tuple[int, str] = (start, "")  # what the broker is known to have
        self.watch: CrashWatch | None = None  # the crash guard's; None where it is switched off
        self.flight = -1  # its number in the flight recorder; -1: its records in hand are not noted
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
        self.ages.note(messages)
        if self.ages.many:
            self.ages.written_ms(self.ledger.watermark())

    def behind_s(self, wall_s: float, end: int, *, fetched: bool) -> float | None:
        """How old the oldest record below `end` is that is not finished: 0 if there is none, None if it has no
        timestamp. Whoever wrote a record may have a clock that is ahead of this one; it is no younger than new.

        Of one that was not received only this is known: how long ago it was first missed, if the partition is not
        `fetched`. If it is, a record would be here: what is below the end is the marker of a transaction.
        """
        position = self.ledger.watermark()
        if position <= self.ledger.last:
            written_ms = self.ages.written_ms(position)
            return None if written_ms is None else max(0.0, wall_s - written_ms / 1000)
        if end <= position or fetched:
            self.missed = None
            return 0.0
        if self.missed is None or self.missed[0] != position:
            self.missed = position, wall_s
        return max(0.0, wall_s - self.missed[1])

    @property
    def held_bytes(self) -> int:
        """Of records received and not finished, wherever they are."""
        return self.held.total

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
        return self.buffer[0].offset() if self.buffer else self.ledger.last + 1

    def within_lease(self, count: int) -> int:
        """How many of the first `count` buffered records may start by the lease. Asks for more when it gets short."""
        if not count or self.buffer[count - 1].offset() < self.lease_low:
            return count
        self.run_out()
        return bisect_left(self.buffer, self.lease, hi=count, key=type(self.buffer[0]).offset)

    def lease_until(self, lease: int, low: int) -> None:
        self.lease, self.lease_low = lease, min(low, lease)

    def run_out(self) -> None:
        """The lease is used up, or will be soon: only a commit moves it."""
        if self.watch is not None:
            self.watch.run_out()

    def finish(self, run: Run) -> None:
        """The first `run.done` records of the run are finished."""
        self._finish(run, run.done)

    def take_stock(self, run: Run) -> bool:
        """A run that was told to stop hangs in a record: what it did before is finished. Whether that is anything."""
        if run.current <= run.taken or not self.live or self.closing:
            return False
        self._finish(run, run.current)
        return True

    def _finish(self, run: Run, count: int) -> None:
        first, run.taken = run.taken, count
        whole = first == 0 and count == len(run.seqs)
        seqs = run.seqs if whole else run.seqs[first:count]
        self.ledger.finish(seqs)
        self.held.finish(seqs, run.messages if whole else run.messages[first:count])

    def finish_case(self, case: FailedRecord) -> None:
        self.ledger.finish((case.seq,))
        self.held.finish((case.seq,), (case.message,))
        self.cases.discard(case)

    def close(self) -> None:
        """The epoch is over: nothing of it may be committed, buried or started any more."""
        self.live = False
        self.buffer.clear()
        self.awaiting.clear()
