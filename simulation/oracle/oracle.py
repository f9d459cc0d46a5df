"""All rules together, fed by the trace and by what the simulated members report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keepfast.core.events import DeadLettered, Event, Moved
from keepfast.core.records import Message, TopicPartition
from keepfast.telemetry.state import Problem, SeekResult
from keepfast.testing.fakes import acts, trace
from keepfast.testing.fakes.world import World
from simulation.member import Member
from simulation.oracle.batches import BatchRules
from simulation.oracle.book import Book
from simulation.oracle.commits import CommitRules
from simulation.oracle.crashes import CrashRules
from simulation.oracle.events import EventRules
from simulation.oracle.fetching import FetchRules
from simulation.oracle.guards import GuardRules
from simulation.oracle.health import Health
from simulation.oracle.inboxes import InboxRules
from simulation.oracle.leaving import LeavingRules
from simulation.oracle.letters import LetterRules
from simulation.oracle.membership import MembershipRules
from simulation.oracle.progress import ProgressRules
from simulation.oracle.sends import SendRules
from simulation.oracle.spools import SpoolRules
from simulation.oracle.starts import StartRules
from simulation.oracle.timeouts import TimeoutRules
from simulation.oracle.transactions import TransactionRules
from simulation.oracle.violation import Violation
from simulation.setup import Setup
from simulation.variants.inboxes import SimDatabase
from simulation.workload import Entry, Workload

PROBE_S = 0.5


class Oracle:
    """Keeps the first violation, with its place in the trace; from then on nothing is looked at any more.

    It never raises into the engine: the engine would handle an exception there.
    """

    def __init__(self, world: World, setup: Setup, workload: Workload) -> None:
        self._world = world
        self._setup = setup
        self._workload = workload
        self.violation: Violation | None = None
        self.seen_at = 0
        self._seeking: set[tuple[str, TopicPartition]] = set()
        self._book = book = Book(setup, workload, world.flights)
        self._health = health = Health(world, book)
        commits = CommitRules(book, self.blame, window=setup.window)
        batches = BatchRules(book, self.blame, health, setup)
        starts = StartRules(book, self.blame, setup, batches)
        letters = LetterRules(book, self.blame, setup)
        crashes = CrashRules(book, self.blame, health, setup)
        self._spools = spools = SpoolRules(world, book, self.blame, letters)
        sends = SendRules(book, self.blame)
        self.database = SimDatabase(self.blame)
        self._inboxes = InboxRules(world.broker, book, self.database, setup)
        self._transactions = once = TransactionRules(world.broker, book, self.blame, setup)
        leaving = LeavingRules(book, self.blame, health, setup)
        guards = GuardRules(book, self.blame, health, setup)
        self._events = EventRules(book, self.blame, setup)
        self._membership = MembershipRules(world, book, self.blame, health, setup)
        self._timeouts = TimeoutRules(book, self.blame, health, setup)
        self._progress = ProgressRules(world.broker, book, self.blame, health, setup, batches=batches)
        self._fetching = FetchRules(world.broker, self.blame, health)
        self._rules: dict[type[trace.Fact], tuple[Callable[[Any], None], ...]] = {
            trace.CommitSent: (commits.sent, crashes.sent, sends.committed),
            trace.CommitAccepted: (commits.accepted, crashes.accepted),
            trace.CommitAnswered: (crashes.answered,),
            trace.Started: (crashes.started, self._membership.started, sends.started),
            trace.Reset: (crashes.started, self._membership.started, sends.started),
            trace.RevokedBegin: (leaving.revoke_begins, batches.revoke_begins),
            trace.RevokedEnd: (leaving.revoke_ends, crashes.revoke_ends, batches.revoke_ends),
            trace.LostCalled: (crashes.lost, once.lost),
            trace.ProducerGivenUp: (once.given_up,),
            trace.Delivered: (once.delivered,),
            trace.ProcessCrashed: (crashes.crashed,),
            trace.Evicted: (self._membership.evicted,),
            trace.Neglected: (self._fetching.neglected,),
            trace.Refetched: (self._fetching.refetched,),
            trace.ClientReplaced: (self._fetching.replaced,),
            acts.HandlerBegan: (starts.began, guards.began, crashes.began, sends.began, once.began),
            acts.HandlerSent: (sends.sent,),
            acts.Blocked: (guards.blocked,),
            acts.HandlerEnded: (guards.ended, sends.ended, once.ended),
            trace.Produced: (once.produced,),
            acts.TimedOut: (guards.ended, once.timed_out),
            acts.StaleGivenUp: (self._timeouts.stale_given_up,),
            acts.BatchBegan: (crashes.batch_began, guards.batch_began, batches.began, once.batch_began),
            acts.BatchEnded: (guards.batch_ended, batches.ended, once.batch_ended),
            acts.BatchTimedOut: (lambda event: guards.batch_ended(event.ended), batches.timed_out, once.timed_out),
            acts.LoopRefused: (batches.refused,),
            acts.LetterSent: (letters.sent, guards.letter, crashes.letter_sent),
            acts.LetterHanded: (spools.handed, guards.handed, crashes.letter_handed),
            acts.LetterKept: (spools.kept,),
            acts.SpooledLetterSent: (spools.sent_on,),
            acts.PowerCut: (spools.power_cut,),
            trace.LetterAcked: (spools.acked, sends.acked),
            trace.LetterFailed: (spools.failed, sends.failed),
            acts.ReleaseSeen: (guards.released,),
            acts.StopRequested: (leaving.stop_asked,),
            acts.Ended: (leaving.ended,),
        }
        world.trace.listeners.append(self._listen)
        world.clock.after(PROBE_S, self._probe)

    def blame(self, rule: str, what: str) -> None:
        if self.violation is None:
            self.violation = Violation(rule, self._world.clock.monotonic(), what)
            self.seen_at = len(self._world.trace.events)

    def join(self, member: Member) -> None:
        """A process was started: watch it, too."""
        self._book.members[member.name] = member

    def produced(self, entry: Entry) -> None:
        self._book.records_of(entry.place).add(entry)

    def appeared(self, topic: str) -> None:
        """The topic was made after the group had started: no policy lets it begin behind a record of it."""
        self._book.renewed.add(topic)

    def recreated(self, topic: str, ends: dict[int, int]) -> None:
        """The topic was recreated; `ends` are the ends of its former logs."""
        self._book.recreated_at[topic] = self._world.clock.monotonic()
        if topic in self._book.first_counts:
            self._book.renewed.add(topic)
        for place, records in self._book.records_by_place.items():
            if place.topic == topic:
                records.renew(ends.get(place.partition, 0))

    def seek_ordered(self, member: str, place: TopicPartition, to: int) -> bool:
        """An operator wants a partition moved. Whether that may be: one seek at a time."""
        if (member, place) in self._seeking:
            return False
        self._seeking.add((member, place))
        self._book.seeks[member, place] = to
        return True

    def seek_answered(self, member: str, place: TopicPartition, answer: SeekResult | Problem) -> None:
        """That has come to an end."""
        if self.violation is not None:
            return
        self._seeking.discard((member, place))
        self._book.seeks.pop((member, place), None)
        epoch = self._book.epochs.get((member, place)) or self._book.commits.get((member, place))  # it may be lost now
        if isinstance(answer, SeekResult) and answer.committed and (epoch is None or epoch.accepted is None):
            self.blame(
                "seek", f"{member} calls the seek of {place} to {answer.to} committed, and the broker has nothing"
            )

    def given(self, member: Member, messages: list[Message]) -> None:
        """The client has handed these to the loop, which has not seen them yet."""
        if self.violation is not None:
            return
        for message in messages:
            entry = self._workload.of(message)
            self._membership.given(member.name, entry)
            epoch = self._book.given(member.name, entry, self._world.clock.monotonic())
            if epoch is not None:
                self._events.given(epoch, entry)
                self._progress.given(epoch)

    def polls(self, member: Member) -> None:
        """The loop is about to call its client."""
        if self.violation is None:
            self._membership.polls(member, self._world.clock.monotonic())

    def emitted(self, member: Member, event: Event) -> None:
        """The loop has reported something."""
        if self.violation is None:
            try:
                if isinstance(event, DeadLettered | Moved) and self._setup.once:
                    self._transactions.claimed(member, event, self._events.record_of(member.name, event))
                self._events.emitted(member.name, event, self._world.clock.monotonic())
            except Exception as error:  # noqa: BLE001 - the loop would continue and log it
                self.blame("oracle", f"{type(error).__name__}: {error} about {event}")

    def stepped(self, member: Member) -> None:
        """A turn of the loop is over."""
        if self.violation is None:
            self._events.stepped(member)

    def unfinished(self) -> list[str]:
        parts = (self._progress, self._spools, self._transactions, self._inboxes)
        return [left for part in parts for left in part.unfinished()]

    @property
    def places(self) -> list[TopicPartition]:
        """Where records were produced."""
        return sorted(self._book.records_by_place)

    def _listen(self, event: trace.Fact) -> None:
        if self.violation is not None:
            return
        for rule in self._rules.get(type(event), ()):
            rule(event)
        self._events.seen(event)
        self._health.update(event)
        self._timeouts.update(event)
        self._book.update(event)
        if isinstance(event, trace.Started | trace.Reset):
            self._events.begun(event)

    def _probe(self) -> None:
        if self.violation is not None:
            return
        now = self._world.clock.monotonic()
        for member in self._book.members.values():
            if member.process.alive and not member.process.stopped:
                if not member.source.inside:
                    self._membership.polls(member, now)
                self._progress.probe(member, now)
                self._timeouts.probe(member, now)
                self._fetching.probe(member, now)
        self._world.clock.after(PROBE_S, self._probe)
