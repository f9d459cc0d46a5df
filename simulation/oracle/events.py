"""Rules about events: none without its fact, no fact without its event, each once, in the order that is promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from keepfast.core import events
from keepfast.core.crash_guard import common, read
from keepfast.core.records import TopicPartition
from keepfast.core.runs import Run
from keepfast.engine.commits import COMMIT_REFUSED, TRIP_FAILURES, TRIP_S
from keepfast.engine.guards import BREAKER, STORM
from keepfast.engine.loop import ABANDONED, COMMIT
from keepfast.engine.timeouts import STALE_RUN
from keepfast.testing.fakes import acts, trace
from keepfast.testing.fakes.faults import REFUSAL_CODES
from simulation.member import Member
from simulation.oracle.book import Book
from simulation.oracle.epochs import Epoch
from simulation.oracle.record_events import RecordEventRules
from simulation.oracle.violation import Blame
from simulation.setup import GROUP, Setup
from simulation.workload import Entry

LATE_S = 0.5
"""The loop's clock is read once a turn; a turn takes no longer than this, but for callbacks."""

Hold = tuple[str, str, int]
"""Its name, and the partition; an empty topic is the whole consumer."""


@dataclass(slots=True)
class _Seen:
    """What the fakes saw of one member, and no event has reported yet; and what its events have reported."""

    assigned: trace.Places | None = None
    revoked: trace.Places | None = None
    lost: trace.Places | None = None
    confirmed: dict[TopicPartition, int] = field(default_factory=dict)
    refused: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    """Offset and code of commits that were not confirmed."""
    request: int = 0
    """Positions in the last answer."""
    under_way: dict[TopicPartition, float] = field(default_factory=dict)
    """Since when."""
    requested_at: float = inf
    """Since when the request under way is."""
    last_code: dict[TopicPartition, str] = field(default_factory=dict)
    """Of the last answer."""
    sent: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    """Offset and metadata of a commit that is not answered."""
    stored: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    """What the member knows to be stored: it was read or confirmed, and no other commit has failed since."""
    failures: int = 0
    """Requests in a row that failed for another reason than one partition's."""
    out_of_range: Counter[TopicPartition] = field(default_factory=Counter)
    resets: Counter[TopicPartition] = field(default_factory=Counter)
    """Reported, and not carried out yet."""
    crashes: dict[TopicPartition, events.PreviousOwnerCrashed] = field(default_factory=dict)
    probations: dict[TopicPartition, events.ProbationStarted] = field(default_factory=dict)
    on_probation: set[TopicPartition] = field(default_factory=set)
    topic_ids: dict[str, str] = field(default_factory=dict)
    holds: dict[Hold, float] = field(default_factory=dict)
    """Reported; since when."""
    released_at: dict[str, float] = field(default_factory=dict)
    """By hand."""
    stops: int = 0
    halted: set[str] = field(default_factory=set)
    drains: int = 0
    drained: int = 0
    ended: bool = False


class EventRules:
    """Compares events with facts. Those of records: `RecordEventRules`."""

    def __init__(self, book: Book, blame: Blame, setup: Setup) -> None:
        self._book = book
        self._blame = blame
        self._setup = setup
        self._records = RecordEventRules(book, blame, setup)
        self._members: dict[str, _Seen] = {}
        self._topic_ids: dict[str, set[str]] = {}
        self._facts: dict[type[trace.Fact], Callable[[Any], None]] = {
            trace.AssignCalled: self._assign_called,
            trace.RevokedBegin: self._revoke_begins,
            trace.RevokedEnd: self._revoke_ends,
            trace.LostCalled: self._lost_called,
            trace.Started: self._begins,
            trace.Reset: self._begins,
            trace.CommitSent: self._commit_sent,
            trace.CommitAnswered: self._commit_answered,
            trace.TopicReplaced: self._topic_replaced,
            acts.OutOfRange: self._out_of_range,
            acts.ReleaseSeen: self._release_taken,
            acts.StopSeen: self._stop_taken,
            acts.Ended: self._has_ended,
        }
        self._reports: dict[type[events.Event], Callable[[str, Any, float], None]] = {
            events.Assigned: self._assigned,
            events.Revoked: self._revoked,
            events.Lost: self._lost,
            events.PartitionReset: self._partition_reset,
            events.Sought: self._sought,
            events.SubscriptionChanged: self._subscription_changed,
            events.TopicRecreated: self._topic_recreated,
            events.PreviousOwnerCrashed: self._previous_owner_crashed,
            events.ProbationStarted: self._probation_started,
            events.ProbationEnded: self._probation_ended,
            events.Committed: self._committed,
            events.CommitFailed: self._commit_failed,
            events.Held: self._held,
            events.Released: self._released,
            events.BreakerOpened: lambda member, event, now: self._put(member, event, (BREAKER, "", -1), now),
            events.StormGuardTripped: lambda member, event, now: self._put(member, event, (STORM, "", -1), now),
            events.BreakerClosed: self._guard_ended,
            events.StormGuardReleased: self._guard_ended,
            events.Halted: self._halted,
            events.DrainStarted: self._drain_started,
            events.DrainFinished: self._drain_finished,
        }

    def _seen(self, member: str) -> _Seen:
        if member not in self._members:
            self._members[member] = _Seen(topic_ids=dict(self._book.members[member].plan.topic_ids))
        return self._members[member]

    def given(self, epoch: Epoch, entry: Entry) -> None:
        """The client handed a record to the loop."""
        self._records.given(epoch, entry)

    def record_of(self, member: str, event: events.RecordEvent) -> Entry | None:
        """The record that the event is about; where none is in a retry topic twice."""
        return self._records.record_of(member, event)

    def seen(self, fact: trace.Fact) -> None:
        """A fact, before the book has it."""
        self._records.seen(fact)
        look = self._facts.get(type(fact))
        if look is not None:
            look(fact)

    def emitted(self, member: str, event: events.Event, now: float) -> None:
        """The member's loop has reported something."""
        if (event.consumer, event.group) != (member, GROUP):
            self._blame("event", f"{member} reports {event} in the name of another")
        if self._seen(member).ended:
            self._blame("event", f"{member} reports {event} after its end")
        self._records.emitted(member, event, now)
        compare = self._reports.get(type(event))
        if compare is not None:
            compare(member, event, now)

    def stepped(self, member: Member) -> None:
        """A turn of its loop is over: what had to be reported at once was."""
        name = member.name
        seen = self._seen(name)
        self._records.stepped(name)
        for what in (seen.assigned, seen.revoked, seen.lost):
            if what is not None:
                self._blame("event", f"{name} does not report what became of {list(map(str, what))}")
        if seen.confirmed:
            self._blame("event", f"{name} does not report the commits {seen.confirmed}")
        self._all_refusals_reported(name, seen)
        if bool(seen.stops) != bool(seen.drains):
            self._blame("event", f"{name} was stopped {seen.stops} times and reports {seen.drains} drains")
        for topic, topic_id in member.loop.identities.ids.items():
            if seen.topic_ids.setdefault(topic, topic_id) != topic_id:
                self._blame("event", f"{name} takes {topic} for {topic_id}, and does not report it")
        self._holds_are_true(member, seen)

    def _holds_are_true(self, member: Member, seen: _Seen) -> None:
        loop = member.loop
        true = {(hold, "", -1) for hold in (COMMIT, ABANDONED, BREAKER, STORM) if hold in loop.holds}
        true |= {(STALE_RUN, *place) for place in loop.overdue.waiting}
        true |= {(COMMIT_REFUSED, *one.place) for one in loop.ownership if COMMIT_REFUSED in one.holds}
        if true != set(seen.holds):
            self._blame("event", f"{member.name} is held by {sorted(true)} and reports {sorted(seen.holds)}")

    # -- partitions

    def _assign_called(self, fact: trace.AssignCalled) -> None:
        self._seen(fact.member).assigned = fact.places

    def _assigned(self, member: str, event: events.Assigned, now: float) -> None:  # noqa: ARG002 - as all of them
        seen = self._seen(member)
        self._same(member, event, event.partitions, seen.assigned)
        seen.assigned = None

    def _revoke_begins(self, fact: trace.RevokedBegin) -> None:
        self._seen(fact.member).revoked = fact.places

    def _revoked(self, member: str, event: events.Revoked, now: float) -> None:  # noqa: ARG002
        seen = self._seen(member)
        self._same(member, event, event.partitions, seen.revoked)
        seen.revoked = None
        for place in event.partitions:
            if seen.resets[place]:
                continue  # its epoch is over, and the next one has not begun
            code = seen.last_code.get(place, "")
            known = not code or place in seen.stored
            confirmed = place not in seen.under_way and known
            if not confirmed and place not in event.unconfirmed:
                why = code or "not answered"
                self._blame("event", f"{member} reports {event}; the last commit of {place} was {why}")
            if confirmed and place in event.unconfirmed and self._all_committed(member, place):
                self._blame("event", f"{member} reports {event}; the last commit of {place} was confirmed")

    def _all_committed(self, member: str, place: TopicPartition) -> bool:
        """Whether the last commit is stored, has all that is finished, and takes the lease back, as one at the end
        must.
        """
        epoch = self._book.epochs.get((member, place))
        if epoch is None or epoch.accepted is None:
            return False
        accepted, entries = epoch.accepted, self._book.entries
        owes_lease = read(accepted.guard, accepted.offset).lease is not None
        return (
            accepted == epoch.sent
            and not owes_lease
            and all(entries[number].offset in accepted for number in epoch.finished)
        )

    def _revoke_ends(self, fact: trace.RevokedEnd) -> None:
        if self._seen(fact.member).revoked is not None:
            self._blame("event", f"{fact.member} does not report that it let go of {list(map(str, fact.places))}")
        self._forget(fact.member, fact.places)

    def _lost_called(self, fact: trace.LostCalled) -> None:
        self._seen(fact.member).lost = fact.places
        self._forget(fact.member, fact.places)

    def _lost(self, member: str, event: events.Lost, now: float) -> None:  # noqa: ARG002
        seen = self._seen(member)
        self._same(member, event, event.partitions, seen.lost)
        seen.lost = None

    def _same(self, member: str, event: events.Event, partitions: events.Partitions, seen: trace.Places | None) -> None:
        if seen is None or set(partitions) != set(seen) or len(partitions) != len(seen):
            self._blame("event", f"{member} reports {event}; the client reported {seen}")

    def _forget(self, member: str, places: trace.Places) -> None:
        """Reports about their commits end with the assignment; a complaint of the client may come later."""
        seen = self._seen(member)
        for place in places:
            seen.holds.pop((COMMIT_REFUSED, *place), None)
            for known in (seen.last_code, seen.sent, seen.stored, seen.under_way, seen.resets):
                known.pop(place, None)

    def _out_of_range(self, fact: acts.OutOfRange) -> None:
        self._seen(fact.member).out_of_range[fact.place] += 1

    def _partition_reset(self, member: str, event: events.PartitionReset, now: float) -> None:  # noqa: ARG002
        seen, place = self._seen(member), TopicPartition(event.topic, event.partition)
        if event.reason == "offset_out_of_range":
            if not seen.out_of_range[place]:
                self._blame("event", f"{member} reports {event}, and the client has not reported it")
            seen.out_of_range[place] -= 1
        elif event.topic not in self._book.recreated_at:
            self._blame("event", f"{member} reports {event}, and the topic was not recreated")
        seen.resets[place] += 1
        if seen.resets[place] > 1:
            self._blame("event", f"{member} reports {event} again, and has not begun again since")

    def _sought(self, member: str, event: events.Sought, now: float) -> None:  # noqa: ARG002
        epoch = self._book.epochs.get((member, TopicPartition(event.topic, event.partition)))
        if epoch is None or epoch.before is None or epoch.start != event.to:
            self._blame("event", f"{member} reports {event}, and it was not ordered")

    def _begins(self, fact: trace.Started | trace.Reset) -> None:
        """A new epoch: at its commit, or elsewhere, which is reported if there was a position."""
        seen, key = self._seen(fact.member), (fact.member, fact.place)
        if self._book.members[fact.member].loop.ownership.get(fact.place) is None:
            if self._book.is_sought(fact):
                self._forget(fact.member, (fact.place,))
            return  # it only waits there for its position
        offset, metadata = self._book.read.get(key, (None, ""))
        before = self._book.epochs.get(key)
        elsewhere = offset is not None and offset != fact.offset
        reading = type(fact) is trace.Reset and before is not None and bool(before.given)
        reset = bool(seen.resets[fact.place])
        if (elsewhere or reading) and not reset:
            self._blame("event", f"{fact.member} begins {fact.place} at {fact.offset} without having reported a reset")
        self._forget(fact.member, (fact.place,))
        if offset == fact.offset and not reset:
            seen.stored[fact.place] = offset, metadata

    def begun(self, fact: trace.Started | trace.Reset) -> None:
        """The book has it: whether the fate of the last owner was reported."""
        seen, epoch = self._seen(fact.member), self._book.epochs.get((fact.member, fact.place))
        crash, probation = seen.crashes.pop(fact.place, None), seen.probations.pop(fact.place, None)
        if epoch is None or self._book.members[fact.member].loop.ownership.get(fact.place) is None:
            return
        on, suspicion = self._setup.max_deliveries is not None, epoch.suspicion
        if (crash is not None) != (on and suspicion.died):
            self._blame("event", f"{epoch} reports {crash}; what it found says {suspicion.died}")
        if crash is not None and epoch.covered is not None:
            lease = read(epoch.covered.guard, epoch.covered.offset).lease or 0
            hand = suspicion.fate.in_hand
            spans = common(hand, ((epoch.covered.offset, lease),)) if hand is not None else None
            in_hand = None if spans is None else sum(end - first for first, end in spans)
            if (crash.in_flight, crash.in_flight_below) != (in_hand, lease if hand is None else None):
                self._blame("event", f"{epoch} reports {crash}; in flight were {hand}, leased up to {lease}")
        if (probation is not None) != (on and bool(suspicion.until or suspicion.suspects)):
            what = f"{suspicion.until}, {suspicion.suspects}"
            self._blame("event", f"{epoch} reports {probation}; suspects are those below, or in, {what}")

    def _topic_replaced(self, fact: trace.TopicReplaced) -> None:
        self._topic_ids.setdefault(fact.topic, set()).add(fact.topic_id)

    def _subscription_changed(self, member: str, event: events.SubscriptionChanged, now: float) -> None:  # noqa: ARG002
        if event.removed or not event.added or not set(event.added) <= self._book.renewed & set(self._setup.later):
            self._blame("event", f"{member} reports {event}; topics only appear: {sorted(self._book.renewed)}")

    def _topic_recreated(self, member: str, event: events.TopicRecreated, now: float) -> None:  # noqa: ARG002
        known = self._seen(member).topic_ids
        if event.topic not in self._book.recreated_at or event.old_id != known.get(event.topic):
            self._blame("event", f"{member} reports {event}; it knew {known.get(event.topic)}")
        known[event.topic] = event.new_id

    def _previous_owner_crashed(self, member: str, event: events.PreviousOwnerCrashed, now: float) -> None:  # noqa: ARG002
        crashes, place = self._seen(member).crashes, TopicPartition(event.topic, event.partition)
        if place in crashes:
            self._blame("event", f"{member} reports {event} twice")
        crashes[place] = event

    def _probation_started(self, member: str, event: events.ProbationStarted, now: float) -> None:  # noqa: ARG002
        seen, place = self._seen(member), TopicPartition(event.topic, event.partition)
        if place in seen.on_probation:
            self._blame("event", f"{member} reports {event}, and that of before has not ended")
        seen.on_probation.add(place)
        seen.probations[place] = event

    def _probation_ended(self, member: str, event: events.ProbationEnded, now: float) -> None:  # noqa: ARG002
        seen, place = self._seen(member), TopicPartition(event.topic, event.partition)
        if place not in seen.on_probation:
            self._blame("event", f"{member} reports {event}, and none has started")
        seen.on_probation.discard(place)
        epoch = self._book.epochs.get((member, place))
        if epoch is not None and not event.handed_over:
            epoch.suspicion.end_search()
        if not event.handed_over and (epoch is None or epoch.has_suspects()):
            self._blame("event", f"{member} reports {event}, and suspects are left in {epoch}")

    # -- commits

    def _commit_sent(self, fact: trace.CommitSent) -> None:
        seen = self._seen(fact.member)
        seen.under_way[fact.place] = seen.requested_at = fact.at
        seen.sent[fact.place] = fact.offset, fact.metadata

    def _commit_answered(self, fact: trace.CommitAnswered) -> None:
        seen = self._seen(fact.member)
        seen.under_way.pop(fact.place, None)
        seen.requested_at = inf
        seen.request += 1
        epoch, key = self._book.commits.get((fact.member, fact.place)), (fact.member, fact.place)
        # Otherwise it is about records that were read before a reset, which may not be carried out yet.
        current = epoch is self._book.epochs.get(key) and not seen.resets[fact.place]
        if current:
            self._learn_from_answer(seen, fact)
        if not fact.code:
            seen.confirmed[fact.place] = fact.offset
            seen.failures = 0
        else:
            if epoch is not None and current:
                seen.refused[fact.place] = fact.offset, fact.code
            seen.failures += fact.code not in REFUSAL_CODES

    @staticmethod
    def _learn_from_answer(seen: _Seen, fact: trace.CommitAnswered) -> None:
        seen.last_code[fact.place] = fact.code
        sent = seen.sent.pop(fact.place, None)
        if sent is not None and not fact.code:
            seen.stored[fact.place] = sent
        elif seen.stored.get(fact.place) != sent:
            seen.stored.pop(fact.place, None)

    def _committed(self, member: str, event: events.Committed, now: float) -> None:  # noqa: ARG002
        seen = self._seen(member)
        if event.offsets != seen.confirmed:
            self._blame("event", f"{member} reports {event}; confirmed is {seen.confirmed}")
        seen.confirmed = {}

    def _commit_failed(self, member: str, event: events.CommitFailed, now: float) -> None:  # noqa: ARG002
        seen, place = self._seen(member), TopicPartition(event.topic, event.partition)
        if seen.refused.pop(place, None) != (event.offset, event.code):
            self._blame("event", f"{member} reports {event}, and it was not answered like this")

    def _all_refusals_reported(self, member: str, seen: _Seen) -> None:
        """An error of one partition is the client's answer for all of a request: those are tried again, alone."""
        for place, (offset, code) in seen.refused.items():
            if code not in REFUSAL_CODES or seen.request == 1:
                self._blame("event", f"{member} does not report that {place} was not committed at {offset}: {code}")
        seen.refused, seen.request = {}, 0

    # -- holds

    def _put(self, member: str, event: events.Event, hold: Hold, now: float) -> None:
        holds = self._seen(member).holds
        if hold in holds:
            self._blame("event", f"{member} reports {event}; it has reported that before")
        holds[hold] = now

    def _take(self, member: str, event: events.Event, hold: Hold) -> float:
        since = self._seen(member).holds.pop(hold, None)
        if since is None:
            self._blame("event", f"{member} reports {event}, and has not reported that hold")
        return since or 0.0

    def _held(self, member: str, event: events.Held, now: float) -> None:
        seen, place = self._seen(member), TopicPartition(event.topic, event.partition)
        self._put(member, event, (event.hold, *place), now)
        match event.hold:
            case name if name == COMMIT_REFUSED:
                true = seen.last_code.get(place, "") == event.code != ""
            case name if name == COMMIT:
                true = seen.failures >= TRIP_FAILURES or now - seen.requested_at >= TRIP_S - LATE_S
            case name if name == ABANDONED:
                given_up = self._book.given_up
                calls = [call for call in given_up if self._is_of(member, call)]
                true = len(calls) >= self._setup.timeout.max_abandoned
            case name if name == STALE_RUN:
                runs = self._out(self._book.members[member])
                true = any(not part.partition.live for run in runs for part in run.parts)
            case _:
                true = False
        if not true:
            self._blame("event", f"{member} reports {event}, and there is no reason for it")

    @staticmethod
    def _out(member: Member) -> list[Run]:
        """The runs that are out as far as the loop knows: also those that came back after it emptied its mailbox. Since
        then it may have waited for a broker, as for a seek.
        """
        back = [item for item in member.seat.mailbox.items if isinstance(item, Run) and not item.abandoned]
        return [*member.executor.out, *member.executor.await_sends(), *back]

    def _is_of(self, member: str, call: int) -> bool:
        epoch, _ = self._book.calls.get(call, (None, None))
        return epoch is not None and epoch.member == member

    def _released(self, member: str, event: events.Released, now: float) -> None:  # noqa: ARG002
        place = TopicPartition(event.topic, event.partition)
        self._take(member, event, (event.hold, *place))
        if event.hold == COMMIT_REFUSED and self._seen(member).last_code.get(place):
            self._blame("event", f"{member} reports {event}, and no commit of it was confirmed")

    def _release_taken(self, fact: acts.ReleaseSeen) -> None:
        self._seen(fact.member).released_at[fact.hold] = fact.at

    def _guard_ended(self, member: str, event: events.BreakerClosed | events.StormGuardReleased, now: float) -> None:
        hold = BREAKER if isinstance(event, events.BreakerClosed) else STORM
        held_s = now - self._take(member, event, (hold, "", -1))
        by_hand = now - self._seen(member).released_at.get(hold, -inf) <= LATE_S
        if abs(event.held_s - held_s) > LATE_S or (event.by == "operator" and not by_hand):
            self._blame("event", f"{member} reports {event}; it was held for {held_s:.3f} s, by hand: {by_hand}")

    # -- the end

    def _halted(self, member: str, event: events.Halted, now: float) -> None:  # noqa: ARG002
        self._seen(member).halted.add(event.kind)

    def _stop_taken(self, fact: acts.StopSeen) -> None:
        self._seen(fact.member).stops += 1

    def _drain_started(self, member: str, event: events.DrainStarted, now: float) -> None:  # noqa: ARG002
        seen = self._seen(member)
        seen.drains += 1
        if seen.drains > 1 or not seen.stops:
            self._blame("event", f"{member} reports {event}, number {seen.drains} after {seen.stops} orders to stop")

    def _drain_finished(self, member: str, event: events.DrainFinished, now: float) -> None:  # noqa: ARG002
        seen, book = self._seen(member), self._book
        seen.drained += 1
        if seen.drained > 1 or not seen.drains:
            self._blame("event", f"{member} reports {event}, number {seen.drained} after {seen.drains} drains")
        running = [call for call in book.calls if call not in book.given_up and self._is_of(member, call)]
        if not event.unfinished and running:
            self._blame("event", f"{member} reports {event}, and its calls {running} have not ended")

    def _has_ended(self, fact: acts.Ended) -> None:
        seen = self._seen(fact.member)
        seen.ended = True
        if fact.kind == "stopped" and not seen.drained:
            self._blame("event", f"{fact.member} has stopped, and does not report that its drain is over")
        if fact.kind not in ("stopped", "deadline") and fact.kind not in seen.halted:
            self._blame("event", f"{fact.member} has ended as {fact.kind}, and reports {seen.halted}")
