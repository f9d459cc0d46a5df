"""What the oracle knows: which records exist and became of what, who owns which partition, and what each was given.

Everything is known by a record's number, so that a topic made anew under the same name, or an offset that is read
twice, is not mixed up with another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from holdfast.core.policies import Order
from holdfast.core.ports import BEGINNING, Outgoing
from holdfast.core.records import TopicPartition
from holdfast.testing.simulator import acts, trace
from holdfast.testing.simulator.member import Member
from holdfast.testing.simulator.oracle.cover import Cover
from holdfast.testing.simulator.oracle.suspicion import Suspicion
from holdfast.testing.simulator.workload import NUMBER, Entry

OUTAGE = ConnectionRefusedError.__name__
FINAL = ("Reject", "DecodeError", "HandlerTimeout")
"""How handlers end: the service is away; no retry would help."""

Lane = Hashable
Key = tuple[str, TopicPartition]
"""A member's name and a partition."""


class Shelf:
    """The records of one partition, in order of their offsets."""

    __slots__ = ("_low", "by_offset", "entries", "floor", "gone", "start")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.by_offset: dict[int, Entry] = {}
        self.floor = 0  # below it lie offsets that a former topic of this name used
        self.start = 0  # of the log
        self.gone: set[int] = set()  # compacted away
        self._low = 0

    def exists(self, offset: int) -> bool:
        """Whether a record is to be read there."""
        return offset >= self.start and offset in self.by_offset and offset not in self.gone

    def add(self, entry: Entry) -> None:
        if entry.offset < self.floor:
            entry.excused = "its offset was used by a former topic"
        self.entries.append(entry)
        self.by_offset[entry.offset] = entry

    def first_open(self) -> Entry | None:
        """The lowest record that nobody has finished and nobody is excused from."""
        while self._low < len(self.entries) and not self.entries[self._low].open:
            self._low += 1
        return self.entries[self._low] if self._low < len(self.entries) else None

    def excuse(self, why: str, *, below: int) -> None:
        for entry in self.entries:
            if entry.offset < below and entry.open:
                entry.excused = why

    def renew(self, end: int) -> None:
        """The topic is made anew."""
        self.excuse("the topic was deleted", below=end + 1)
        self.entries, self.by_offset, self._low = [], {}, 0
        self.start, self.gone = 0, set()
        self.floor = max(self.floor, end)


class Epoch:
    """One stretch of reading by one member, from a position on: what it was handed and what it did with it."""

    def __init__(self, member: str, place: TopicPartition, start: int, covered: Cover | None, at: float) -> None:
        self.member = member
        self.place = place
        self.start = start
        self.covered = covered
        self.begun_at = at
        self.alive = True
        self.given: dict[int, float] = {}  # number → when
        self.finished: set[int] = set()
        self.lanes: dict[Lane, deque[Entry]] = {}  # what was given and is not finished, in order
        self.waiting: dict[int, Entry] = {}  # the same, whatever its lane
        self.waiting_bytes = 0
        self.running: set[int] = set()
        self.failures: dict[int, int] = {}
        self.due: dict[int, float] = {}
        self.outcomes: dict[int, str] = {}  # of the last attempt
        self.letters: set[int] = set()
        self.timed_out: dict[int, float] = {}  # number → when
        self.last_of_lane: dict[Lane, Entry] = {}
        self.uncommitted: dict[Lane, Entry] = {}  # lanes whose last record no stored commit covers yet
        self.freed_at: dict[Lane, float] = {}
        self.finished_at = at
        self.sent: Cover | None = None
        self.accepted: Cover | None = None
        self.suspicion = Suspicion(covered)

    def knows_finished(self, entry: Entry) -> bool:
        return entry.number in self.finished or (self.covered is not None and entry.offset in self.covered)

    def has_suspects(self) -> bool:
        """Whether records in hand may have been in flight when an owner died for the second time."""
        return any(entry.offset < self.suspicion.until for entry in self.waiting.values())

    def lowest(self) -> Entry | None:
        return min(self.waiting.values(), key=lambda entry: entry.offset) if self.waiting else None

    def __str__(self) -> str:
        return f"{self.member} on {self.place} from {self.start}"


class Book:
    """Updated by the events of the trace, after the rules have looked at them."""

    def __init__(self, order: Order, entries: list[Entry]) -> None:
        self._order = order
        self.entries = entries
        self.members: dict[str, Member] = {}
        self.shelves: dict[TopicPartition, Shelf] = {}
        self.held: set[Key] = set()
        self.epochs: dict[Key, Epoch] = {}
        self.read: dict[Key, tuple[int | None, str]] = {}
        self.out_of_range: set[Key] = set()
        self.calls: dict[int, tuple[Epoch | None, Entry]] = {}
        self.given_up: set[int] = set()  # calls whose end is of no consequence
        self.busy: dict[tuple[str, Lane], int] = {}
        self.letters: dict[tuple[str, int], tuple[Epoch | None, Entry]] = {}
        self.commits: dict[Key, Epoch | None] = {}
        self.stopping: dict[str, float] = {}
        self.active_at: dict[str, float] = {}
        self.began_at: dict[str, float] = {}
        self.lost_for_policy = 0
        self._updates: dict[type[trace.Event], Callable[[Any], None]] = {
            trace.LogStartMoved: self._log_start_moved,
            trace.Compacted: self._compacted,
            trace.Assigned: self._assigned,
            trace.Started: self._started,
            trace.Reset: self._started,
            trace.RevokedEnd: self._let_go,
            trace.Lost: self._let_go,
            trace.Crashed: self._gone,
            trace.Closed: self._gone,
            acts.Ended: self._gone,
            trace.CommitSent: self._commit_sent,
            trace.CommitAccepted: self._commit_accepted,
            trace.LetterAcked: self._letter_acked,
            acts.OffsetsRead: self._offsets_read,
            acts.OutOfRange: self._out_of_range,
            acts.LetterSent: self._letter_sent,
            acts.HandlerBegan: self._handler_began,
            acts.HandlerEnded: self._handler_ended,
            acts.TimedOut: self._timed_out,
            acts.StopTaken: self._stop_taken,
        }

    def update(self, event: trace.Event) -> None:
        update = self._updates.get(type(event))
        if update is not None:
            update(event)

    def lane(self, entry: Entry) -> Lane | None:
        """What the record must be in order with; None where it is free."""
        if self._order == "partition":
            return entry.place
        return (entry.place.topic, entry.key) if self._order == "key" and entry.key is not None else None

    def shelf(self, place: TopicPartition) -> Shelf:
        if place not in self.shelves:
            self.shelves[place] = Shelf()
        return self.shelves[place]

    def letter(self, member: str, number: int) -> tuple[Outgoing, Entry]:
        outgoing = self.members[member].seat.sink.sent[number]
        found = next(value for name, value in outgoing.headers if name == NUMBER)
        return outgoing, self.entries[int(found or b"")]

    def given(self, member: str, entry: Entry, now: float) -> Epoch | None:
        """The client handed a record to the loop."""
        epoch = self.epochs.get((member, entry.place))
        if epoch is not None:
            epoch.given[entry.number] = now
            if not epoch.knows_finished(entry):
                epoch.waiting[entry.number] = entry
                epoch.waiting_bytes += len(entry.value or b"")
                lane = self.lane(entry)
                if lane is not None:
                    epoch.lanes.setdefault(lane, deque()).append(entry)
        return epoch

    # -- updates

    def _log_start_moved(self, event: trace.LogStartMoved) -> None:
        shelf = self.shelf(event.place)
        shelf.start = event.offset
        shelf.excuse("it was deleted", below=event.offset)

    def _compacted(self, event: trace.Compacted) -> None:
        shelf = self.shelf(event.place)
        shelf.gone.add(event.offset)
        entry = shelf.by_offset.get(event.offset)
        if entry is not None and entry.open:
            entry.excused = "it was compacted away"

    def _assigned(self, event: trace.Assigned) -> None:
        for place in event.places:
            self.held.add((event.member, place))
            self.read.pop((event.member, place), None)
            self.out_of_range.discard((event.member, place))

    def _offsets_read(self, event: acts.OffsetsRead) -> None:
        self.read[event.member, event.place] = (event.offset, event.metadata)

    def _out_of_range(self, event: acts.OutOfRange) -> None:
        self.out_of_range.add((event.member, event.place))

    def _started(self, event: trace.Started | trace.Reset) -> None:
        key = (event.member, event.place)
        self._end(self.epochs.pop(key, None))
        offset, metadata = self.read.get(key, (None, ""))
        covered = None
        if offset is not None and offset == event.offset:
            topic_id = self.members[event.member].plan.topic_ids.get(event.place.topic, "")
            covered = Cover(offset, metadata, topic_id)
        self.epochs[key] = Epoch(event.member, event.place, event.offset, covered, event.at)
        if covered is None and event.offset != BEGINNING:
            self.lost_for_policy += 1
            self.shelf(event.place).excuse("the policy says to begin behind it", below=event.offset)

    def _let_go(self, event: trace.RevokedEnd | trace.Lost) -> None:
        for place in event.places:
            self.held.discard((event.member, place))
            self._end(self.epochs.pop((event.member, place), None))

    def _gone(self, event: trace.Crashed | trace.Closed | acts.Ended) -> None:
        for key in [key for key in self.held if key[0] == event.member]:
            self.held.discard(key)
            self._end(self.epochs.pop(key, None))

    @staticmethod
    def _end(epoch: Epoch | None) -> None:
        if epoch is not None:
            epoch.alive = False

    def _commit_sent(self, event: trace.CommitSent) -> None:
        epoch = self.epochs.get((event.member, event.place))
        self.commits[event.member, event.place] = epoch
        if epoch is not None:
            epoch.sent = Cover(event.offset, event.metadata)

    def _commit_accepted(self, event: trace.CommitAccepted) -> None:
        epoch = self.commits.get((event.member, event.place))
        if epoch is not None:
            epoch.accepted = cover = Cover(event.offset, event.metadata)
            for lane in [lane for lane, entry in epoch.uncommitted.items() if entry.offset in cover]:
                del epoch.uncommitted[lane]
                epoch.freed_at[lane] = event.at

    def _handler_began(self, event: acts.HandlerBegan) -> None:
        entry = self.entries[event.number]
        epoch = self.epochs.get((event.member, event.place))
        self.calls[event.call] = (epoch, entry)
        self.began_at[event.member] = event.at
        lane = self.lane(entry)
        if lane is not None:
            self.busy[event.member, lane] = event.call
        if epoch is not None:
            epoch.running.add(entry.number)
            epoch.timed_out.pop(entry.number, None)

    def _handler_ended(self, event: acts.HandlerEnded) -> None:
        epoch, entry = self.calls.pop(event.call)
        if event.call in self.given_up:
            self.given_up.discard(event.call)
            return
        self.active_at[event.member] = event.at
        lane = self.lane(entry)
        if lane is not None and self.busy.get((event.member, lane)) == event.call:
            del self.busy[event.member, lane]
        if event.outcome in ("ok", "Discard"):
            entry.terminal = entry.terminal or ("handled" if event.outcome == "ok" else "discarded")
        if epoch is None:
            return
        epoch.running.discard(entry.number)
        if event.outcome in ("ok", "Discard"):
            self._finish(epoch, entry, event.at)
        else:
            epoch.outcomes[entry.number] = event.outcome
            failures = epoch.failures[entry.number] = epoch.failures.get(entry.number, 0) + 1
            plan = self.members[event.member].plan
            delay_s = plan.retry.delay_ms(failures - 1, 0.0) / 1000
            if plan.rate is not None:
                delay_s = max(delay_s, plan.rate.min_delay_ms / 1000)
            epoch.due[entry.number] = event.at + (entry.after_s if event.outcome == "RetryLater" else delay_s)

    @staticmethod
    def take_back(epoch: Epoch, entry: Entry) -> None:
        """The last failure does not count, and so there is no retry that would be due."""
        epoch.failures[entry.number] -= 1
        epoch.due.pop(entry.number, None)

    def _timed_out(self, event: acts.TimedOut) -> None:
        epoch, entry = self.calls[event.call]
        self.given_up.add(event.call)
        self.active_at[event.member] = event.at
        lane = self.lane(entry)
        if lane is not None and self.busy.get((event.member, lane)) == event.call:
            del self.busy[event.member, lane]
        if epoch is not None:
            epoch.running.discard(entry.number)
            epoch.failures[entry.number] = epoch.failures.get(entry.number, 0) + 1
            epoch.outcomes[entry.number] = event.outcome
            epoch.timed_out[entry.number] = event.at

    def _finish(self, epoch: Epoch, entry: Entry, at: float) -> None:
        epoch.finished.add(entry.number)
        epoch.finished_at = at
        if epoch.waiting.pop(entry.number, None) is not None:
            epoch.waiting_bytes -= len(entry.value or b"")
        lane = self.lane(entry)
        if lane is None:
            return
        epoch.last_of_lane[lane] = epoch.uncommitted[lane] = entry
        epoch.freed_at[lane] = at
        queue = epoch.lanes.get(lane)
        while queue and queue[0].number in epoch.finished:
            queue.popleft()

    def _letter_sent(self, event: acts.LetterSent) -> None:
        _, entry = self.letter(event.member, event.number)
        epoch = self.epochs.get((event.member, entry.place))
        self.letters[event.member, event.number] = (epoch, entry)
        if epoch is not None:
            epoch.letters.add(entry.number)

    def _letter_acked(self, event: trace.LetterAcked) -> None:
        epoch, entry = self.letters.pop((event.member, event.number))
        entry.terminal = entry.terminal or "buried"
        self.active_at[event.member] = event.at
        if epoch is not None:
            self._finish(epoch, entry, event.at)

    def _stop_taken(self, event: acts.StopTaken) -> None:
        self.stopping[event.member] = event.at
