"""What the oracle knows: which records exist and became of what, who owns which partition, and what each was given.

Everything is known by a record's number, so that a topic recreated under the same name, or an offset that is read
twice, is not mixed up with another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from keepfast.core.commit_metadata import origin_of
from keepfast.core.crash_guard import Fate, read
from keepfast.core.ports import BEGINNING
from keepfast.core.records import Outgoing, TopicPartition
from keepfast.core.retry_topics import ATTEMPTS, Tiers
from keepfast.testing.fakes import acts, trace
from keepfast.testing.fakes.flights import Flights
from simulation.member import Member
from simulation.oracle.cover import Cover
from simulation.oracle.epochs import Epoch, Lane, PartitionRecords
from simulation.setup import GROUP, Setup
from simulation.workload import NUMBER, ROUNDING_S, Copied, Entry, Workload

OUTAGE = ConnectionRefusedError.__name__
TIMED_OUT = "HandlerTimeout"
FINAL = ("Reject", "DecodeError", TIMED_OUT)
"""How handlers end: the service is down; no retry would help."""

SKIPPED = "an operator has skipped it"

Key = tuple[str, TopicPartition]
"""A member's name and a partition."""


def is_final(setup: Setup, outcome: str) -> bool:
    return outcome in FINAL and not (outcome == TIMED_OUT and setup.timeout.on_timeout == "retry")


def is_outage(setup: Setup, outcome: str) -> bool:
    """Whether the breaker counts it, and nothing is dead-lettered for it. HTTPError: the 503 of a test with a stage."""
    return outcome in (OUTAGE, "HTTPError") or (outcome == TIMED_OUT and setup.timeout.on_timeout == "retry")


class Book:
    """Updated by the events of the trace, after the rules have looked at them."""

    def __init__(self, setup: Setup, workload: Workload, flights: Flights) -> None:
        self._flights = flights
        self._order = setup.order
        self._retries_timeouts = setup.timeout.on_timeout == "retry"
        self._workload = workload
        self.tiers = workload.tiers or Tiers(group="")
        self.entries = workload.entries
        self.members: dict[str, Member] = {}
        self.records_by_place: dict[TopicPartition, PartitionRecords] = {}
        self.held: set[Key] = set()
        self.epochs: dict[Key, Epoch] = {}
        self.read: dict[Key, tuple[int | None, str]] = {}
        self.out_of_range: set[Key] = set()
        self.calls: dict[int, tuple[Epoch | None, Entry]] = {}
        self.given_up: set[int] = set()  # calls whose end is of no consequence
        self.alone: dict[int, tuple[str, float]] = {}  # calls of suspects that run alone: whose, and since when
        self.busy: dict[tuple[str, Lane], int] = {}
        self.letters: dict[tuple[str, int], tuple[Epoch | None, Entry]] = {}
        self.in_transaction: dict[int, Entry] = {}
        """Letters and moves that are part of a commit, by their identity; `sink.sent` keeps them."""
        self.commits: dict[Key, Epoch | None] = {}
        self.stopping: dict[str, float] = {}
        self.active_at: dict[str, float] = {}
        self.began_at: dict[str, float] = {}
        self.lost_for_policy = 0
        self.copies: dict[Entry, list[Entry]] = {}
        self.recreated_at: dict[str, float] = {}  # topic → when
        self.first_counts: dict[str, int] = {}  # topic → its partitions when the group's first commit of it was stored
        self.renewed: set[str] = set()  # topics that were created or recreated after that
        self.seeks: dict[Key, int] = {}  # what operators have ordered, and is neither done nor refused
        self._updates: dict[type[trace.Fact], Callable[[Any], None]] = {
            trace.LogStartMoved: self._log_start_moved,
            trace.Compacted: self._compacted,
            trace.AssignCalled: self._assigned,
            trace.Started: self._started,
            trace.Reset: self._started,
            trace.RevokedEnd: self._let_go,
            trace.LostCalled: self._let_go,
            trace.ProcessCrashed: self._gone,
            trace.ClientClosed: self._gone,
            acts.Ended: self._gone,
            trace.CommitSent: self._commit_sent,
            trace.CommitAccepted: self._commit_accepted,
            trace.LetterWritten: self._letter_written,
            trace.LetterAcked: self._letter_acked,
            trace.LetterFailed: self._letter_failed,
            acts.OffsetsRead: self._offsets_read,
            acts.OutOfRange: self._out_of_range,
            acts.LetterSent: self._letter_sent,
            acts.HandlerBegan: self._handler_began,
            acts.HandlerEnded: self._handler_ended,
            acts.TimedOut: self._timed_out,
            acts.StaleGivenUp: self._let_be,
            acts.StopSeen: self._stop_taken,
        }

    def update(self, event: trace.Fact) -> None:
        update = self._updates.get(type(event))
        if update is not None:
            update(event)

    def lane(self, entry: Entry) -> Lane | None:
        """What the record must be in order with; None where it is free."""
        if self._order == "partition":
            return entry.place
        return (entry.place.topic, entry.key) if self._order == "key" and entry.key is not None else None

    def records_of(self, place: TopicPartition) -> PartitionRecords:
        if place not in self.records_by_place:
            self.records_by_place[place] = PartitionRecords()
        return self.records_by_place[place]

    def letter(self, member: str, number: int) -> tuple[Outgoing, Entry]:
        outgoing = self.members[member].seat.sink.sent[number]
        return outgoing, self.in_transaction.get(id(outgoing)) or self._entry_of(member, outgoing)

    def handed(self, member: str, number: int) -> tuple[Outgoing, Entry]:
        """The same of a letter that went to the spool."""
        outgoing = self.members[member].spools.handed[number]
        return outgoing, self._entry_of(member, outgoing)

    def root_of(self, outgoing: Outgoing) -> Entry:
        """The record that was produced."""
        found = next(value for name, value in outgoing.headers if name == NUMBER)
        return self.entries[int(found or b"")]

    def _entry_of(self, member: str, outgoing: Outgoing) -> Entry:
        forwarder = self.members[member].loop.failures.forwarder
        record = next((one for one in forwarder if outgoing is one.whole or outgoing is one.outgoing), None)
        if record is not None:
            return self._workload.of(record.failed_record.message)
        root = self.root_of(outgoing)
        return next(filter(lambda entry: self._is_settling(member, entry), self.copies.get(root, ())), root)

    def _is_settling(self, member: str, entry: Entry) -> bool:
        """Whether it was sent already, and is sent again in another form."""
        epoch = self.epochs.get((member, entry.place))
        return epoch is not None and entry.number in epoch.letters and entry.number not in epoch.finished

    def given(self, member: str, entry: Entry, now: float) -> Epoch | None:
        """The client handed a record to the loop."""
        epoch = self.epochs.get((member, entry.place))
        if epoch is not None:
            epoch.given[entry.number] = now
            epoch.by_offset[entry.offset] = entry
            if not epoch.knows_finished(entry):
                epoch.waiting[entry.number] = entry
                epoch.waiting_bytes += entry.size
                lane = self.lane(entry)
                if lane is not None:
                    epoch.lanes.setdefault(lane, deque()).append(entry)
        return epoch

    # -- updates

    def _log_start_moved(self, event: trace.LogStartMoved) -> None:
        records = self.records_of(event.place)
        records.start = event.offset
        records.excuse("it was deleted", below=event.offset)

    def _compacted(self, event: trace.Compacted) -> None:
        records = self.records_of(event.place)
        records.gone.add(event.offset)
        entry = records.by_offset.get(event.offset)
        if entry is not None and entry.open:
            entry.excused = "it was compacted away"

    def _assigned(self, event: trace.AssignCalled) -> None:
        for place in event.places:
            self.held.add((event.member, place))
            self.read.pop((event.member, place), None)
            self.out_of_range.discard((event.member, place))

    def _offsets_read(self, event: acts.OffsetsRead) -> None:
        if self.members[event.member].loop.ownership.get(event.place) is not None:
            return  # it has its position, and was asked about because of another partition of its topic
        self.read[event.member, event.place] = (event.offset, event.metadata)

    def _out_of_range(self, event: acts.OutOfRange) -> None:
        self.out_of_range.add((event.member, event.place))

    def _started(self, event: trace.Started | trace.Reset) -> None:
        key = (event.member, event.place)
        sought, before = self.is_sought(event), self.epochs.pop(key, None)
        self._end(before, event.at)
        if sought:
            del self.seeks[key]
            self.epochs[key] = Epoch(event.member, event.place, event.offset, None, event.at, before=before)
            self.records_of(event.place).excuse(SKIPPED, below=event.offset)
            return
        offset, metadata = self.read.get(key, (None, ""))
        covered = None
        if offset is not None and offset == event.offset:
            topic_id = self.members[event.member].loop.identities.ids.get(event.place.topic, "")
            covered = Cover(offset, metadata, topic_id)
        fate, left_by = self._fate(event.member, event.place, covered)
        last = max(self.records_of(event.place).by_offset, default=-1)
        self.epochs[key] = Epoch(
            event.member, event.place, event.offset, covered, event.at, fate=fate, left_by=left_by, end=last + 1
        )
        if covered is None and event.offset != BEGINNING and self.may_skip(event):
            self.lost_for_policy += 1
            self.records_of(event.place).excuse("the policy says to begin behind it", below=event.offset)

    def is_sought(self, event: trace.Started | trace.Reset) -> bool:
        """Whether it starts there because of an operator."""
        key = event.member, event.place
        return isinstance(event, trace.Reset) and key in self.epochs and self.seeks.get(key) == event.offset

    def may_skip(self, event: trace.Started | trace.Reset) -> bool:
        """Whether what lies below this start need not be read: the group has never begun with this partition."""
        place, key = event.place, (event.member, event.place)
        if place.topic in self.tiers.topics or place.topic in self.renewed or key in self.out_of_range:
            return False
        first_count = self.first_counts.get(place.topic)
        return self.read.get(key, (None, ""))[0] is None and (first_count is None or place.partition < first_count)

    def is_of_today(self, topic: str, metadata: str, offset: int) -> bool:
        """Whether a commit says something about the topic that has this name now."""
        topic_id = origin_of(metadata, offset=offset).topic_id
        return not topic_id or topic_id == self._workload.topic_id(topic)

    def knows_topic(self, member: str, topic: str) -> bool:
        """Whether the member knows which topic has this name now."""
        return self.members[member].loop.identities.ids.get(topic, "") == self._workload.topic_id(topic)

    def _fate(self, member: str, place: TopicPartition, covered: Cover | None) -> tuple[Fate, str]:
        """The answer to the member about the owner of the lease that it found, and who that was."""
        token = "" if covered is None else read(covered.guard, covered.offset).token
        topic_id = self.members[member].loop.identities.ids.get(place.topic, "")
        return self._flights.fate(member, token, GROUP, place, topic_id), self._flights.owner(token)

    def _let_go(self, event: trace.RevokedEnd | trace.LostCalled) -> None:
        for place in event.places:
            self.held.discard((event.member, place))
            self._end(self.epochs.pop((event.member, place), None), event.at)

    def _gone(self, event: trace.ProcessCrashed | trace.ClientClosed | acts.Ended) -> None:
        for key in [key for key in self.held if key[0] == event.member]:
            self.held.discard(key)
            self._end(self.epochs.pop(key, None), event.at)

    @staticmethod
    def _end(epoch: Epoch | None, at: float) -> None:
        if epoch is not None:
            epoch.alive, epoch.ended_at = False, at

    def _commit_sent(self, event: trace.CommitSent) -> None:
        epoch = self.epochs.get((event.member, event.place))
        self.commits[event.member, event.place] = epoch
        if epoch is not None:
            epoch.sent = Cover(event.offset, event.metadata)

    def _commit_accepted(self, event: trace.CommitAccepted) -> None:
        if event.late:
            return
        epoch = self.commits.get((event.member, event.place))
        self.first_counts.setdefault(event.place.topic, self._workload.partition_count(event.place.topic))
        if epoch is not None:
            if epoch.before is not None and epoch.accepted is None:
                epoch.before.sought_away = True
                self._reopen(epoch)
            epoch.accepted = cover = Cover(event.offset, event.metadata)
            for lane in [lane for lane, entry in epoch.uncommitted.items() if entry.offset in cover]:
                del epoch.uncommitted[lane]
                epoch.freed_at[lane] = event.at

    def _reopen(self, epoch: Epoch) -> None:
        """A seek is stored, perhaps after the next one has begun: what that skips, or what was finished since, stays
        as it is.
        """
        records, later = self.records_of(epoch.place), self.epochs.get((epoch.member, epoch.place))
        since = [epoch]
        while later is not None and later is not epoch:
            since.append(later)
            later = later.before
        records.reopen(at=epoch.start, but=set().union(*(one.finished | one.discarded for one in since)))
        if later is epoch and len(since) > 1:
            records.excuse(SKIPPED, below=since[1].start)

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
        self._free(event, epoch, entry)
        if event.outcome in ("ok", "Discard") and not (epoch is not None and epoch.sought_away):
            entry.terminal = entry.terminal or ("handled" if event.outcome == "ok" else "discarded")
        if epoch is None:
            return
        epoch.running.discard(entry.number)
        if event.outcome in ("ok", "Discard"):
            self.finish(epoch, entry, event.at)
        else:
            self._attempt_failed(epoch, entry, event)

    def _attempt_failed(self, epoch: Epoch, entry: Entry, event: acts.HandlerEnded | acts.TimedOut) -> None:
        epoch.outcomes[entry.number] = event.outcome
        failures = epoch.failures[entry.number] = epoch.failures.get(entry.number, 0) + 1
        epoch.failed_at[entry.number] = event.at
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

    def _let_be(self, event: acts.TimedOut | acts.StaleGivenUp) -> None:
        """The loop continues without this call."""
        epoch, entry = self.calls[event.call]
        self.given_up.add(event.call)
        self.active_at[event.member] = event.at
        self._free(event, epoch, entry)

    def _free(
        self, event: acts.HandlerEnded | acts.TimedOut | acts.StaleGivenUp, epoch: Epoch | None, entry: Entry
    ) -> None:
        """The call holds its lane no more; a run of an earlier epoch has held it in all that the member owns now."""
        lane = self.lane(entry)
        if lane is None or self.busy.get((event.member, lane)) != event.call:
            return
        del self.busy[event.member, lane]
        if epoch is None or not epoch.alive:
            for (name, _), other in self.epochs.items():
                if name == event.member:
                    other.freed_at[lane] = event.at

    def _timed_out(self, event: acts.TimedOut) -> None:
        epoch, entry = self.calls[event.call]
        self._let_be(event)
        if epoch is not None:
            epoch.running.discard(entry.number)
            self._attempt_failed(epoch, entry, event)
            if not self._retries_timeouts:
                del epoch.due[entry.number]
                epoch.timed_out[entry.number] = event.at

    def finish(self, epoch: Epoch, entry: Entry, at: float) -> None:
        epoch.finished.add(entry.number)
        epoch.finished_at = at
        if epoch.waiting.pop(entry.number, None) is not None:
            epoch.waiting_bytes -= entry.size
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

    def _letter_written(self, event: trace.LetterWritten) -> None:
        """A record in a retry topic is a record of its own, which a member has to finish."""
        tier = self.tiers.topics.get(event.place.topic)
        if tier is None:
            return
        epoch, entry = self.letters[event.member, event.number]
        before = entry.copied
        failed_at = epoch.failed_at.get(entry.number, event.at) if epoch is not None else 0.0
        copied = Copied(
            root=entry.root,
            step=(before.step if before else 0) + 1,
            failures=(before.failures if before else 0) + (epoch.failures.get(entry.number, 0) if epoch else 0),
            due_at=failed_at + tier.delay_s if epoch is not None else 0.0,
            open_at=event.at + tier.delay_s + ROUNDING_S,
        )
        copy = self._workload.copy(entry, event.place, event.offset, copied)
        self.copies.setdefault(entry.root, []).append(copy)
        self.records_of(event.place).add(copy)

    def _letter_failed(self, event: trace.LetterFailed) -> None:
        """What is too large for a retry topic, even without its attempts, stays where it is."""
        outgoing = self.members[event.member].seat.sink.sent[event.number]
        if outgoing.topic not in self.tiers.topics or event.code != "MSG_SIZE_TOO_LARGE":
            return
        own = int(outgoing.headers[-1][1] or b"")  # what was forged may have a header of that name of its own
        if ATTEMPTS not in dict(outgoing.headers[own:]):
            epoch, entry = self.letters.pop((event.member, event.number))
            if epoch is not None:
                epoch.letters.discard(entry.number)
                epoch.stays.add(entry.number)
                epoch.due[entry.number] = event.at

    def _letter_acked(self, event: trace.LetterAcked) -> None:
        if (event.member, event.number) not in self.letters:
            return  # from a spool: its record is finished already
        epoch, entry = self.letters.pop((event.member, event.number))
        if epoch is not None and epoch.sought_away:
            return
        entry.terminal = entry.terminal or ("moved" if event.place.topic in self.tiers.topics else "dead-lettered")
        self.active_at[event.member] = event.at
        if epoch is not None and entry.number not in epoch.finished:
            self.finish(epoch, entry, event.at)

    def _stop_taken(self, event: acts.StopSeen) -> None:
        self.stopping[event.member] = event.at
