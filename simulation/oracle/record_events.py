"""Rules about events of records: each has its fact, and what a commit covers was reported as finished before, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

from keepfast.classify.rules.codes import CRASHED
from keepfast.core import events, verdicts
from keepfast.core.records import RecordPlace, TopicPartition
from keepfast.testing.fakes import acts, trace
from keepfast.testing.fakes.sink import OUTPUT
from simulation.oracle.book import Book
from simulation.oracle.cover import Cover
from simulation.oracle.epochs import Epoch
from simulation.oracle.guards import uncounted
from simulation.oracle.violation import Blame
from simulation.setup import Setup
from simulation.workload import Entry, dropped_by_filter

EARLY_S = 0.01
"""The loop reads its clock once a turn: what it reports is a little later."""

Key = tuple[str, int, int, str]
"""How events name a record: where it came from, and the retry topic that it was in."""


@dataclass(slots=True)
class _Seen:
    """What the fakes saw of the records that an epoch was given, and no event has reported yet; by number."""

    unreported: dict[int, Entry] = field(default_factory=dict)
    """Given, and not reported as finished."""
    succeeded: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)
    """How the last attempt ended."""
    acked: dict[int, list[tuple[str, int, int]]] = field(default_factory=dict)
    """Where the broker has acknowledged it."""
    kept: set[int] = field(default_factory=set)
    not_published: dict[int, list[str]] = field(default_factory=dict)
    """Codes of the broker's refusals, or "spool"."""
    verdicts: dict[int, verdicts.Verdict | None] = field(default_factory=dict)
    """As reported last."""
    not_before: dict[int, float] = field(default_factory=dict)
    """When it may be tried or sent again, as reported last."""


class RecordEventRules:
    """Compares events of records with what handlers, sinks and spools did."""

    def __init__(self, book: Book, blame: Blame, setup: Setup) -> None:
        self._book = book
        self._blame = blame
        self._setup = setup
        self._epochs: dict[Epoch, _Seen] = {}
        self._handed: dict[tuple[str, int], tuple[Epoch | None, Entry]] = {}
        self._owed: dict[str, tuple[type[events.Event], Key]] = {}
        """The next event of a member: some follow at once on others."""
        self._batches: dict[str, list[tuple[acts.BatchEnded, list[Epoch]]]] = {}
        """Calls that failed, and where their records came from."""
        self._batch_calls: dict[int, Epoch | None] = {}
        self._timed_out: dict[str, list[acts.TimedOut | acts.BatchTimedOut | acts.StaleGivenUp]] = {}
        self._facts: dict[type[trace.Fact], Callable[[Any], None]] = {
            acts.HandlerBegan: self._began,
            acts.HandlerEnded: self._ended,
            acts.TimedOut: self._was_given_up,
            acts.StaleGivenUp: self._was_given_up,
            acts.BatchBegan: self._batch_began,
            acts.BatchEnded: self._batch_ended,
            acts.BatchTimedOut: self._was_given_up,
            acts.LoopRefused: self._refused,
            acts.LetterSent: self._sent,
            acts.LetterHanded: self._was_handed,
            acts.LetterKept: self._was_kept,
            acts.LetterNotKept: self._was_not_kept,
            trace.LetterAcked: self._was_acked,
            trace.LetterFailed: self._has_failed,
            trace.CommitSent: self._committed,
        }
        self._reports: dict[type[events.Event], Callable[[str, Any, float], None]] = {
            events.RunFinished: self._run_finished,
            events.RecordFailed: self._record_failed,
            events.RetryScheduled: self._retry_scheduled,
            events.DeadLettered: self._dead_lettered,
            events.Spooled: self._spooled,
            events.Moved: self._moved,
            events.Discarded: self._discarded,
            events.PublishFailed: self._publish_failed,
            events.BatchFailed: self._batch_failed,
            events.HandlerTimedOut: self._handler_timed_out,
            events.HandlerAbandoned: self._handler_abandoned,
        }

    def given(self, epoch: Epoch, entry: Entry) -> None:
        """The client handed a record to the loop."""
        if not epoch.knows_finished(entry):
            self._seen(epoch).unreported[entry.number] = entry

    def seen(self, fact: trace.Fact) -> None:
        """A fact, before the book has it."""
        look = self._facts.get(type(fact))
        if look is not None:
            look(fact)

    def emitted(self, member: str, event: events.Event, now: float) -> None:
        owed = self._owed.pop(member, None)
        if owed is not None and (type(event), key_of(event)) != owed:
            self._blame("event", f"{member} reports {event}; {owed[0].__name__} of {owed[1]} should have come before")
        compare = self._reports.get(type(event))
        if compare is not None:
            compare(member, event, now)

    def stepped(self, member: str) -> None:
        """A turn of its loop is over."""
        owed = self._owed.pop(member, None)
        if owed is not None:
            self._blame("event", f"{member} does not report {owed[0].__name__} of {owed[1]}")
        if self._timed_out.get(member):
            self._blame("event", f"{member} does not report that it gave up {self._timed_out[member][0]}")

    # -- facts

    def _seen(self, epoch: Epoch) -> _Seen:
        if epoch not in self._epochs:
            self._epochs[epoch] = _Seen()
        return self._epochs[epoch]

    def _current(self, member: str, place: TopicPartition) -> _Seen | None:
        epoch = self._book.epochs.get((member, place))
        return None if epoch is None else self._seen(epoch)

    def _began(self, fact: acts.HandlerBegan) -> None:
        seen = self._current(fact.member, fact.place)
        if seen is None:
            return
        what = f"{fact.member} starts record {fact.number} as attempt {fact.attempt}"
        if fact.number in seen.failed and self._setup.batch is None and not self._has_twin(fact.number):
            self._blame("event", f"{what} without having reported that it failed: {seen.failed[fact.number]}")
        seen.failed.pop(fact.number, None)
        due = seen.not_before.pop(fact.number, None)
        if due is not None and fact.at < due - EARLY_S and not self._has_twin(fact.number):
            self._blame("event", f"{what} {due - fact.at:.3f} s before the time that it reported")

    def _ended(self, fact: acts.HandlerEnded) -> None:
        if fact.call in self._book.given_up:
            return
        epoch, _ = self._book.calls[fact.call]
        self._attempt_ended(epoch, fact.number, fact.outcome)

    def _attempt_ended(self, epoch: Epoch | None, number: int, outcome: str) -> None:
        if epoch is None or not epoch.alive:
            return  # what a handler still does then is not reported
        if outcome == "ok":
            self._seen(epoch).succeeded.add(number)
        else:
            self._seen(epoch).failed[number] = outcome

    def _was_given_up(self, fact: acts.TimedOut | acts.BatchTimedOut | acts.StaleGivenUp) -> None:
        self._timed_out.setdefault(fact.member, []).append(fact)
        if isinstance(fact, acts.BatchTimedOut):
            self._batch_ended(fact.ended)
        if isinstance(fact, acts.TimedOut):
            epoch, _ = self._book.calls[fact.call]
            self._attempt_ended(epoch, fact.number, fact.outcome)

    def _batch_began(self, fact: acts.BatchBegan) -> None:
        pending = [one for one, _ in self._batches.get(fact.member, ()) if one.batch == fact.batch]
        if pending:
            self._blame("event", f"{fact.member} starts batch {fact.batch} without having reported {pending[0].error}")
        for number, call in zip(fact.numbers, fact.calls, strict=True):
            epoch = self._book.epochs.get((fact.member, self._book.entries[number].place))
            self._batch_calls[call] = epoch
            if epoch is not None:
                self._seen(epoch).failed.pop(number, None)

    def _batch_ended(self, fact: acts.BatchEnded) -> None:
        if fact.calls[0] not in self._batch_calls:
            return  # it was given up before
        alone, named = len(fact.numbers) == 1, any(fact.outcomes)
        epochs = [self._batch_calls.pop(call) for call in fact.calls]
        for number, epoch, outcome in zip(fact.numbers, epochs, fact.outcomes, strict=True):
            shared = fact.error if alone or (fact.error == "RetryLater" and self._setup.tiers and not named) else ""
            if outcome or shared:
                self._attempt_ended(epoch, number, outcome or shared)
        known = [epoch for epoch in epochs if epoch is not None and epoch.alive]
        if fact.error and not alone and not named and known:
            self._batches.setdefault(fact.member, []).append((fact, known))

    def _refused(self, fact: acts.LoopRefused) -> None:
        self._attempt_ended(self._book.epochs.get((fact.member, fact.place)), fact.number, "DecodeError")

    def _sent(self, fact: acts.LetterSent) -> None:
        _, entry = self._book.letter(fact.member, fact.number)
        self._forwarded(fact.member, entry, fact.at, "sends")

    def _was_handed(self, fact: acts.LetterHanded) -> None:
        _, entry = self._book.handed(fact.member, fact.number)
        self._handed[fact.member, fact.number] = self._book.epochs.get((fact.member, entry.place)), entry
        self._forwarded(fact.member, entry, fact.at, "spools")

    def _forwarded(self, member: str, entry: Entry, at: float, how: str) -> None:
        seen = self._current(member, entry.place)
        if seen is None or self._has_twin(entry.number):
            return
        what = f"{member} {how} record {entry.number}"
        if seen.not_published.get(entry.number):
            codes = seen.not_published[entry.number]
            self._blame("event", f"{what} again without having reported that it was refused: {codes}")
        if not isinstance(seen.verdicts.get(entry.number), verdicts.DeadLetter | verdicts.Move):
            self._blame("event", f"{what} without having reported that verdict: {seen.verdicts.get(entry.number)}")
        due = seen.not_before.pop(entry.number, None)
        if due is not None and at < due - EARLY_S:
            self._blame("event", f"{what} {due - at:.3f} s before the time that it reported")

    def _was_kept(self, fact: acts.LetterKept) -> None:
        epoch, entry = self._handed.pop((fact.member, fact.number))
        if epoch is not None:
            self._seen(epoch).kept.add(entry.number)

    def _was_not_kept(self, fact: acts.LetterNotKept) -> None:
        epoch, entry = self._handed.pop((fact.member, fact.number))
        if epoch is not None:
            self._seen(epoch).not_published.setdefault(entry.number, []).append("spool")

    def _was_acked(self, fact: trace.LetterAcked) -> None:
        epoch, entry = self._book.letters.get((fact.member, fact.number), (None, None))
        if epoch is not None and entry is not None:
            self._seen(epoch).acked.setdefault(entry.number, []).append((*fact.place, fact.offset))

    def _has_failed(self, fact: trace.LetterFailed) -> None:
        if self._book.members[fact.member].seat.sink.sent[fact.number].topic == OUTPUT:
            return
        epoch, entry = self._book.letters.get((fact.member, fact.number), (None, None))
        if epoch is not None and entry is not None:
            self._seen(epoch).not_published.setdefault(entry.number, []).append(fact.code)

    def _committed(self, fact: trace.CommitSent) -> None:
        seen = self._current(fact.member, fact.place)
        if seen is None or not seen.unreported:
            return
        cover = Cover(fact.offset, fact.metadata)
        for entry in seen.unreported.values():
            if entry.offset in cover and not self._has_twin(entry.number):
                what = f"{fact.member} commits {fact.place} at {cover}"
                self._blame("event", f"{what} without having reported the end of record {entry.number}")
                return

    # -- events

    def _find(self, member: str, place: RecordPlace, retry_topic: str) -> Iterator[tuple[_Seen, Entry]]:
        """The records that an event may mean, of those that its loop was given: a record may be in a retry topic more
        than once. A forged one has no origin, so its place is where it is.
        """
        if retry_topic in ("", place.topic):
            epoch = self._book.epochs.get((member, TopicPartition(place.topic, place.partition)))
            entry = None if epoch is None else epoch.by_offset.get(place.offset)
            if epoch is not None and entry is not None and entry.forged == bool(retry_topic):
                yield self._seen(epoch), entry
            return
        for (name, partition), epoch in self._book.epochs.items():
            if name == member and partition.topic == retry_topic:
                for entry in epoch.by_offset.values():
                    root = entry.root
                    if not entry.forged and (root.place.topic, root.place.partition, root.offset) == place:
                        yield self._seen(epoch), entry

    def record_of(self, member: str, event: events.RecordEvent) -> Entry | None:
        """Of those that the event may mean, one that is not reported as finished."""
        place = RecordPlace(event.topic, event.partition, event.offset)
        found = self._find(member, place, event.retry_topic)
        return next((entry for seen, entry in found if entry.number in seen.unreported), None)

    def _match(
        self, member: str, event: events.RecordEvent, fits: Callable[[_Seen, Entry], object], fact: str
    ) -> tuple[_Seen, Entry] | None:
        """The record of an event, where the fact is known."""
        found = list(self._find(member, RecordPlace(event.topic, event.partition, event.offset), event.retry_topic))
        found.sort(key=lambda one: one[1].number not in one[0].unreported)
        for seen, entry in found:
            if fits(seen, entry):
                return seen, entry
        numbers = [entry.number for _, entry in found]
        if any(map(self._has_twin, numbers)):
            return None
        self._blame("event", f"{member} reports {event}, and {fact}; records of that place: {numbers}")
        return None

    def _has_twin(self, number: int) -> bool:
        """Whether the same record is in its retry topic once more: then it is unknown which one an event means."""
        entry = self._book.entries[number]
        topics = [copy.place.topic for copy in self._book.copies.get(entry.root, ())]
        return entry.copied is not None and topics.count(entry.place.topic) > 1

    def _finish(self, member: str, event: events.Event, seen: _Seen, entry: Entry) -> None:
        if seen.unreported.pop(entry.number, None) is None and not self._has_twin(entry.number):
            self._blame("event", f"{member} reports the end of record {entry.number} twice: {event}")

    def _run_finished(self, member: str, event: events.RunFinished, now: float) -> None:  # noqa: ARG002 - as all
        if not (event.records or event.filtered or event.skipped):
            self._blame("event", f"{member} reports a run without records")
        for place in (*event.records, *event.filtered, *event.skipped):
            found = list(self._find(member, place, event.retry_topic))
            for seen, entry in found:
                if entry.number in seen.succeeded:
                    seen.succeeded.discard(entry.number)
                    self._finish(member, event, seen, entry)
                    if dropped_by_filter(self._setup, entry) != (place in event.filtered):
                        self._blame("event", f"{member} takes record {entry.number} for filtered, or for processed")
                    break
            else:
                numbers = [entry.number for _, entry in found]
                self._blame("event", f"{member} reports that {place} succeeded, and no handler did with {numbers}")

    def _record_failed(self, member: str, event: events.RecordFailed, now: float) -> None:  # noqa: ARG002
        crashed = event.code == CRASHED

        def fits(seen: _Seen, entry: Entry) -> object:
            outcome = seen.failed.get(entry.number)
            if crashed:
                return entry.number in seen.unreported
            return outcome == event.error_type or (outcome is not None and self._setup.sends)

        found = self._match(member, event, fits, "no attempt failed like this")
        if found is None:
            return
        seen, entry = found
        outcome = seen.failed.pop(entry.number, "")
        seen.verdicts[entry.number] = event.verdict
        if self._has_twin(entry.number):
            for other, twin in self._find(member, RecordPlace(*key_of(event)[:3]), event.retry_topic):
                other.verdicts[twin.number] = event.verdict
        key = key_of(event)
        match event.verdict:
            case verdicts.RetryAfter():
                self._owed[member] = events.RetryScheduled, key
            case verdicts.DiscardRecord():
                self._owed[member] = events.Discarded, key
            case verdicts.HaltConsumer():
                self._owed[member] = events.Halted, (*key[:3], "")
            case None:
                if not uncounted(self._setup, outcome):
                    self._blame("event", f"{member} reports that a guard holds record {entry.number}: {event}")
            case _:
                pass
        if not crashed:
            self._counts(member, event, entry, uncounted=outcome == "Discard")

    def _counts(self, member: str, event: events.RecordEvent, entry: Entry, *, uncounted: bool = False) -> None:
        """Which attempt it was; of a forged record, its headers decide. `uncounted`: the book has not counted it."""
        epoch = self._book.epochs.get((member, entry.place))
        if epoch is None or entry.forged or self._has_twin(entry.number) or self._setup.batch is not None:
            return  # what a record of a list has failed with the others is not counted
        failures = (entry.copied.failures if entry.copied else 0) + epoch.failures.get(entry.number, 0)
        failures += uncounted
        if event.attempt != failures:
            self._blame("event", f"{member} reports {event}; record {entry.number} has failed {failures} times")

    def _retry_scheduled(self, member: str, event: events.RetryScheduled, now: float) -> None:
        def fits(seen: _Seen, entry: Entry) -> object:
            return seen.verdicts.get(entry.number) == verdicts.RetryAfter(event.delay_s)

        found = self._match(member, event, fits, "no such verdict was reported")
        if found is not None:
            seen, entry = found
            seen.not_before[entry.number] = now + event.delay_s
            self._counts(member, event, entry)

    def _discarded(self, member: str, event: events.Discarded, now: float) -> None:  # noqa: ARG002
        def fits(seen: _Seen, entry: Entry) -> object:
            return seen.verdicts.get(entry.number) == verdicts.DiscardRecord(event.reason)

        found = self._match(member, event, fits, "no such verdict was reported")
        if found is not None:
            self._finish(member, event, *found)

    def _dead_lettered(self, member: str, event: events.DeadLettered, now: float) -> None:  # noqa: ARG002
        letter = (event.letter_topic, event.letter_partition, event.letter_offset)

        def fits(seen: _Seen, entry: Entry) -> object:
            final = isinstance(seen.verdicts.get(entry.number), verdicts.DeadLetter) or self._has_twin(entry.number)
            return final and (self._setup.once or letter in seen.acked.get(entry.number, ()))

        found = self._match(member, event, fits, "the broker has not acknowledged that letter")
        if found is not None:
            self._finish(member, event, *found)

    def _spooled(self, member: str, event: events.Spooled, now: float) -> None:  # noqa: ARG002
        def fits(seen: _Seen, entry: Entry) -> object:
            return isinstance(seen.verdicts.get(entry.number), verdicts.DeadLetter) and entry.number in seen.kept

        found = self._match(member, event, fits, "no spool has its letter")
        if found is not None:
            self._finish(member, event, *found)

    def _moved(self, member: str, event: events.Moved, now: float) -> None:  # noqa: ARG002
        tier = self._book.tiers.topics.get(event.moved_to)

        def fits(seen: _Seen, entry: Entry) -> object:
            verdict, places = seen.verdicts.get(entry.number), seen.acked.get(entry.number, ())
            acked = self._setup.once or any(topic == event.moved_to for topic, _, _ in places)
            return isinstance(verdict, verdicts.Move) and acked

        if tier is None or event.delay_s != tier.delay_s:
            self._blame("event", f"{member} reports {event}, and there is no such retry topic")
        found = self._match(member, event, fits, "the broker has not acknowledged that copy")
        if found is not None:
            self._finish(member, event, *found)

    def _publish_failed(self, member: str, event: events.PublishFailed, now: float) -> None:
        def fits(seen: _Seen, entry: Entry) -> object:
            codes = seen.not_published.get(entry.number)
            if not codes:
                return False
            return codes[0] == "spool" if event.target == "spool" else codes[0] in event.message

        tier = event.publish_topic in self._book.tiers.topics
        if (event.target == "retry-topic") != tier:
            self._blame("event", f"{member} reports {event}; that topic is of another kind")
        found = self._match(member, event, fits, "nothing has refused it like this")
        if found is None:
            return
        seen, entry = found
        seen.not_published[entry.number].pop(0)
        if event.next_step == "stay":
            delay_s = min(self._delay_s(seen, entry), self._setup.retry.max_delay_ms / 1000)
            seen.verdicts[entry.number] = verdicts.RetryAfter(delay_s)
            self._owed[member] = events.RetryScheduled, key_of(event)
        else:
            seen.not_before[entry.number] = now + event.retry_in_s

    @staticmethod
    def _delay_s(seen: _Seen, entry: Entry) -> float:
        verdict = seen.verdicts.get(entry.number)
        return verdict.delay_s if isinstance(verdict, verdicts.Move) else 0.0

    def _batch_failed(self, member: str, event: events.BatchFailed, now: float) -> None:
        # A call whose partitions all went before it came back is not reported.
        pending = [one for one in self._batches.get(member, ()) if any(epoch.alive for epoch in one[1])]
        self._batches[member] = pending
        error = type(event.error).__name__
        alike = [one for one in pending if one[0].error == error and len(one[0].numbers) == event.records]
        # Its first record may be one that the handler was not given. Of calls that begin alike, the others are older,
        # and were given up.
        begun_at = now - (event.took_s or 0.0)
        found = min(alike, key=lambda one: (self._distance(event, one[0]), abs(one[0].at - begun_at)), default=None)
        if found is None:
            self._blame("event", f"{member} reports {event}, and no call failed like this")
        else:
            pending.remove(found)

    def _distance(self, event: events.BatchFailed, ended: acts.BatchEnded) -> float:
        topic, partition, offset, _ = place_of(self._book.entries[ended.numbers[0]])
        distance = offset - event.offset
        return distance if (topic, partition) == (event.topic, event.partition) and distance >= 0 else inf

    # -- handlers that hang

    def _handler_timed_out(self, member: str, event: events.HandlerTimedOut, now: float) -> None:  # noqa: ARG002
        if event.given_up:
            self._gave_up(member, event, (acts.TimedOut, acts.BatchTimedOut))
        elif not any(
            place_of(entry) == key_of(event)
            for epoch, entry in self._book.calls.values()
            if epoch is not None and epoch.member == member
        ):
            self._blame("event", f"{member} reports {event}, and no handler is at that record")

    def _handler_abandoned(self, member: str, event: events.HandlerAbandoned, now: float) -> None:  # noqa: ARG002
        self._gave_up(member, event, (acts.StaleGivenUp,))

    def _gave_up(
        self, member: str, event: events.HandlerTimedOut | events.HandlerAbandoned, kinds: tuple[type[trace.Fact], ...]
    ) -> None:
        for fact in self._timed_out.get(member, []):
            entry = self._book.entries[fact.number]
            if type(fact) in kinds and place_of(entry) == key_of(event):
                self._timed_out[member].remove(fact)
                return
        self._blame("event", f"{member} reports {event}, and has given up no such handler")


def key_of(event: events.Event) -> Key:
    """What names the record of an event; only of those that are about one."""
    topic, partition, offset = (
        getattr(event, "topic", ""),
        getattr(event, "partition", -1),
        getattr(event, "offset", -1),
    )
    return topic, partition, offset, getattr(event, "retry_topic", "")


def place_of(entry: Entry) -> Key:
    """How an event names this record."""
    source = entry if entry.forged else entry.root
    return (*source.place, source.offset, entry.place.topic if entry.copied else "")
