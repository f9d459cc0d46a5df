"""What one consumer's loop is made of: what it is given (`Workers`, `Ports`), and the parts that are built from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import cast

from keepfast.core.events import Observer
from keepfast.core.lanes import Lanes
from keepfast.core.ports import (
    AskDepths,
    AskEnds,
    AskExisting,
    AskUnowned,
    Clock,
    Executor,
    Mailbox,
    QueueSource,
    Sink,
    Source,
    Spool,
    TopicIds,
)
from keepfast.core.runs import InFlight, Run
from keepfast.core.sizing import Sizer
from keepfast.deadletters.publisher import Publisher
from keepfast.engine.batch_lanes import lanes_of
from keepfast.engine.batches import Batches, batches_of
from keepfast.engine.clock import RealClock
from keepfast.engine.commits import Committer
from keepfast.engine.counts import Counts, LetterDepths
from keepfast.engine.crash_guard import ExclusiveGate, Probation
from keepfast.engine.events import Events
from keepfast.engine.failures import Failures
from keepfast.engine.fetch_watch import FetchWatch
from keepfast.engine.flight_recorder import FlightRecorder
from keepfast.engine.guards import Guards, Holds
from keepfast.engine.intake import Intake
from keepfast.engine.outcomes import OutcomeReporter
from keepfast.engine.ownership import Ownership
from keepfast.engine.plan import Plan
from keepfast.engine.queue import Acknowledger, Deliveries, Locks
from keepfast.engine.rebalance import Assignment, Handover
from keepfast.engine.renewals import Renewals
from keepfast.engine.subscription import Discover, RejoinCheck, Subscription
from keepfast.engine.timeouts import Overdue
from keepfast.engine.topic_ids import Identities
from keepfast.engine.workers import Inline
from keepfast.telemetry.event_log import EventLog
from keepfast.telemetry.metrics import Tallies

IDLE_S = 0.1
"""Longest wait in the client when nothing is going on."""


@dataclass(frozen=True, slots=True)
class Workers:
    """What calls the handler, and the mailbox that its runs come back through. `inline` lets the loop's thread call a
    fast handler itself. `tallies` are what the workers have counted so far.
    """

    executor: Executor
    mailbox: Mailbox
    inline: Inline | None = None
    tallies: Callable[[], Sequence[Tallies]] = tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What a loop works with beside its plan and its workers: real, in memory or simulated.

    Without `topic_ids`, `ask_ends` and `ask_depths`, the ids of topics, the ends of partitions that are not fetched and
    the depth of dead-letter topics are unknown; without `discover`, topics that match a pattern later, and topics for
    replays that appear later, are not read; without `ask_existing`, outcomes of replays are not reported; without
    `ask_unowned`, partitions without an owner are not looked for.
    `letter_topic_missing` is called, by any thread, with the name of a dead-letter topic that is gone; it never blocks.
    `idle_s` is the longest wait in the client.
    `observers` get the loop's events, beside the log.
    """

    source: Source
    sink: Sink
    clock: Clock = field(default_factory=RealClock)
    random: Random = field(default_factory=Random)
    spool: Spool | None = None
    letter_topic_missing: Callable[[str], None] | None = None
    topic_ids: TopicIds | None = None
    discover: Discover | None = None
    ask_ends: AskEnds | None = None
    ask_depths: AskDepths | None = None
    ask_existing: AskExisting | None = None
    ask_unowned: AskUnowned | None = None
    gate: ExclusiveGate = field(default_factory=ExclusiveGate)
    recorder: FlightRecorder | None = None
    observers: Sequence[Observer] = ()
    idle_s: float = IDLE_S


class LoopParts:
    """Everything that a loop consists of, in the order in which one part needs another. Owner: the loop thread.

    `returned` is called with a run whose record took too long: it comes back without its worker.
    """

    def __init__(
        self,
        plan: Plan,
        workers: Workers,
        ports: Ports,
        publisher: Publisher,
        returned: Callable[[Run, float], None],
    ) -> None:
        self.plan = plan
        self.workers = workers
        self.ports = ports
        self.events = Events(plan.name, plan.group, (EventLog(plan.record_log), *ports.observers))
        self.counts = Counts(plan.topics, plan.tiers)
        self.letters = LetterDepths(ports.ask_depths, plan.letter_partitions) if ports.ask_depths else None
        self.in_flight = InFlight()
        self.lanes: Lanes = lanes_of(plan, ports.clock)
        self.ownership = Ownership()
        self.holds = Holds(ports.clock, self.events)
        self.guards = Guards(plan, self.lanes, self.holds, self.in_flight, self.events)
        now = ports.clock.monotonic()
        self.identities = Identities(plan, ports.topic_ids, workers.mailbox, now, self.events)
        self.subscription = Subscription(plan, ports.discover, workers.mailbox, now, self.events)
        self.rejoin_check = (
            RejoinCheck(plan, ports.ask_unowned, workers.mailbox, ports.random) if ports.ask_unowned else None
        )
        self.sizer = Sizer(
            capacity=plan.capacity,
            consecutive=plan.order == "partition",
            one_by_one=plan.one_by_one,
            may_inline=workers.inline is not None,
        )
        self.committer = self._committer()
        self.outcomes = self._outcomes(publisher)
        self.failures = self._failures(publisher)
        self.intake = self._intake()
        self.fetch_watch = FetchWatch(
            plan.name,
            ports.source,
            self.ownership,
            intake=self.intake,
            identities=self.identities,
            ask_ends=ports.ask_ends,
        )
        self.probation = self._probation()
        self.handover = self._handover()
        self.assignment = self._assignment()
        self.locks = self._locks()
        self.overdue = self._overdue(returned)
        self.batches = self._batches()

    def _committer(self) -> Committer:
        source, ids = self.ports.source, self.identities.ids
        renewals = Renewals(self.ownership, self.plan.renewed_every_s)
        return Committer(source, self.lanes, self.plan, ids, self.events, renewals=renewals)

    def _outcomes(self, publisher: Publisher) -> OutcomeReporter:
        letters = self.letters
        return OutcomeReporter(
            self.plan.group,
            self.plan.desk_topic,
            send=publisher.send,
            ask=self.ports.ask_existing,
            has_letters=letters.has_some if letters is not None else lambda: False,
            sources=lambda: self.subscription.topics,
            mailbox=self.workers.mailbox,
            clock=self.ports.clock,
            finished=self.committer.mark_dirty,
        )

    def _failures(self, publisher: Publisher) -> Failures:
        return Failures(
            self.plan,
            publisher,
            self.workers.mailbox,
            self.ports.clock,
            self.ports.random,
            guards=self.guards,
            finished=self.committer.finished_failed,
            halt=self.holds.halt,
            counts=self.counts,
            events=self.events,
        )

    def _intake(self) -> Intake:
        return Intake(
            self.ports.source,
            self.ownership,
            self.lanes,
            self.plan,
            self.ports.clock,
            outcomes=self.outcomes,
            at_end=self.committer.reached_end,
        )

    def _probation(self) -> Probation:
        return Probation(
            self.plan,
            self.lanes,
            failures=self.failures,
            committer=self.committer,
            guards=self.guards,
            in_flight=self.in_flight,
            seen_ends=self.ports.source.seen_ends,
            gate=self.ports.gate,
            recorder=self.ports.recorder,
            events=self.events,
        )

    def _handover(self) -> Handover:
        return Handover(
            self.ports.source,
            self.ownership,
            self.lanes,
            failures=self.failures,
            committer=self.committer,
            intake=self.intake,
            events=self.events,
        )

    def _assignment(self) -> Assignment:
        return Assignment(
            self.ports.source,
            self.ownership,
            self.committer,
            self.plan,
            probation=self.probation,
            identities=self.identities,
            events=self.events,
        )

    def _locks(self) -> Locks | None:
        """Only a queue has them."""
        return None

    def _overdue(self, returned: Callable[[Run, float], None]) -> Overdue:
        return Overdue(
            self.plan,
            self.workers.executor,
            self.lanes,
            self.committer,
            mailbox=self.workers.mailbox,
            in_flight=self.in_flight,
            sizer=self.sizer,
            returned=returned,
            events=self.events,
        )

    def _batches(self) -> Batches | None:
        return batches_of(
            self.plan,
            self.lanes,
            self.ownership,
            self.committer,
            self.failures,
            guards=self.guards,
            holds=self.holds,
            counts=self.counts,
            events=self.events,
        )


class QueueParts(LoopParts):
    """The parts of a loop that reads a queue. Records are delivered, locked and acknowledged one by one; all else is
    the same.
    """

    _deliveries: Deliveries

    def _committer(self) -> Committer:
        return Acknowledger(self._source, self.lanes, self.plan, self.identities.ids, self.events)

    def _intake(self) -> Intake:
        self._deliveries = Deliveries(
            self._source,
            self.ownership,
            self.lanes,
            self.plan,
            self.ports.clock,
            outcomes=self.outcomes,
            at_end=self.committer.reached_end,
            holds=self.holds,
            in_flight=self.in_flight,
            committer=self.committer,
            recorder=self.ports.recorder,
            topic_ids=self.identities.ids,
        )
        return self._deliveries

    def _locks(self) -> Locks | None:
        return Locks(
            self.plan.lock_s or 0.0,
            self._source,
            self._deliveries,
            self.ownership,
            self.handover,
            committer=self.committer,
            failures=self.failures,
            holds=self.holds,
            events=self.events,
        )

    @property
    def _source(self) -> QueueSource:
        return cast(QueueSource, self.ports.source)


def parts_of(
    plan: Plan, workers: Workers, ports: Ports, publisher: Publisher, returned: Callable[[Run, float], None]
) -> LoopParts:
    """For a queue, or for partitions, as the plan says."""
    parts = LoopParts if plan.lock_s is None else QueueParts
    return parts(plan, workers, ports, publisher, returned)
