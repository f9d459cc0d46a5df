"""A queue on ports that do as configured: one delivery at a time, acknowledged record by record, inside its lock."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from keepfast.core.errors import Fault, SourceError
from keepfast.core.events import CommitFailed, Event, LockExpired
from keepfast.core.policies import CommitPolicy, RetryPolicy
from keepfast.core.ports import CommitOutcome, Position
from keepfast.core.records import Message, TopicPartition
from keepfast.core.runs import Run
from keepfast.deadletters.publisher import Publisher
from keepfast.engine import parts
from keepfast.engine.calls import RecordCall
from keepfast.engine.control import OF_PARTITIONS, QUEUE_REFUSES, Answer, ControlOrder, Verb
from keepfast.engine.loop import Loop
from keepfast.engine.mailbox import Stop
from keepfast.engine.plan import Plan
from keepfast.engine.queue import LETTERS
from keepfast.telemetry.metrics import Tally
from keepfast.telemetry.state import CommandDone, Problem
from keepfast.testing.fakes.log import FakeMessage
from tests.engine.world import TOPIC, Mailbox, Source, Workers
from tests.support.fakes import FakeSink, ManualClock, hold
from tests.support.messages import message

LOCK_S = 30.0


class QueueFake(Source):
    """Implements `core.ports.QueueSource`: hands out one delivery when each record of the last one is acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.deliveries: list[list[Message]] = []
        self.locked: set[tuple[TopicPartition, int]] = set()
        self.acknowledged: list[int] = []
        self.released: list[int] = []
        self.fault: Fault | None = None
        self._due: list[Position] = []

    def poll(self, timeout_s: float) -> Message | None:
        self.serve(timeout_s)
        if self.locked or not self.deliveries:
            return None
        first, *self.waiting = self.deliveries.pop(0)
        self.locked = {(TopicPartition(one.topic(), one.partition()), one.offset()) for one in (first, *self.waiting)}
        return first

    def sweep(self, limit: int) -> list[Message]:
        taken, self.waiting = self.waiting, []
        return taken

    def serve(self, timeout_s: float) -> float:
        if self._due:
            assert self.listener is not None
            due, self._due = self._due, []
            error = None if self.fault is None else SourceError("no", fault=self.fault, code="INVALID_RECORD_STATE")
            failed = () if error is None else tuple((position, error) for position in due)
            self.listener.on_committed(CommitOutcome(() if failed else tuple(due), failed))
        return 0.0

    def commit(self, positions: Sequence[Position]) -> None:
        self._due = list(positions)
        for position in positions:
            self.acknowledged += position.finished
            self.locked -= {(position.place, offset) for offset in position.finished}

    def release(self, places: Sequence[TopicPartition]) -> None:
        gone = {one for one in self.locked if one[0] in places}
        self.released += sorted(offset for _, offset in gone)
        self.locked -= gone


class Redelivered(FakeMessage):
    """A record that was delivered before."""

    def __init__(self, offset: int) -> None:
        super().__init__(TopicPartition(TOPIC, 0), offset, key=None, value=b"")

    def delivery_count(self) -> int:
        return 2


class Observed:
    """Implements `core.events.Observer`."""

    wants: frozenset[type[Event]] = frozenset({LockExpired, CommitFailed})
    keeps_errors = False

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)


class QueueWorld:
    """A loop of a queue whose workers do as the test says. Values of `bad` offsets fail."""

    def __init__(self, *, bad: Sequence[int] = (), capacity: int = 4, retries: int = 0) -> None:
        self.clock, self.source, self.sink, self.workers = ManualClock(), QueueFake(), FakeSink(), Workers()
        self.mailbox, self.seen, self.done = Mailbox(self.clock), Observed(), list[int]()
        self._bad = bad
        self.stops = False
        retry = RetryPolicy(max_retries=retries, initial_delay_ms=1000, jitter=False)
        plan = Plan(
            name="c",
            group="g",
            topics=(TOPIC,),
            order="queue",
            capacity=capacity,
            commit=CommitPolicy(mode="interval", every_s=0.05),
            retry=retry,
            max_deliveries=None,
            lock_s=LOCK_S,
            dead_letter_topics={TOPIC: "dlq"},
        )
        publisher = Publisher(
            self.sink, topics=plan.dead_letter_topics, partitions={"dlq": 1}, group="g", handler="h", app_version="0"
        )
        ports: dict[str, Any] = {"source": self.source, "sink": self.sink, "clock": self.clock, "random": Random(1)}
        workers = parts.Workers(self.workers, self.mailbox)
        self.loop = Loop(plan, workers, parts.Ports(**ports, observers=(self.seen,)), publisher)
        self.loop.start()
        self._call, self._tally = RecordCall(self._handle), Tally()

    def _handle(self, record: Message, run: Run) -> None:
        if self.stops:
            self.mailbox.post(Stop(self.clock.now + 10))
            self.step()
        if record.offset() in self._bad:
            raise ValueError("no")
        self.done.append(record.offset())

    def deliver(self, *offsets: int, again: Sequence[int] = ()) -> None:
        """Those of `again` were delivered before."""
        delivered = [Redelivered(offset) if offset in again else message(offset) for offset in offsets]
        self.source.deliveries.append(delivered)

    def step(self, *, pass_s: float = 0.0) -> None:
        self.clock.now += pass_s
        self.loop.step(self.clock.now)

    def work(self) -> None:
        run = self.workers.out.pop(0)
        self._call.walk(run, self._tally, self.clock.monotonic)
        self.mailbox.post(run)

    def play(self) -> None:
        for _ in range(20):
            self.step(pass_s=0.01)
            while self.workers.out:
                self.work()


def test_the_next_delivery_comes_when_each_record_of_the_last_is_acknowledged() -> None:
    world = QueueWorld()
    world.deliver(5, 3)  # redelivered ones come in any order
    world.deliver(1)  # below what was seen before
    world.step()
    world.step()
    world.work()
    world.step(pass_s=0.1)
    assert (world.source.acknowledged, len(world.source.deliveries)) == ([3], 1), "one of them is still out"
    world.work()
    world.play()
    assert sorted(world.done) == [1, 3, 5]
    assert world.source.acknowledged == [3, 5, 1]


def test_what_was_delivered_before_runs_alone_and_first() -> None:
    world = QueueWorld()
    world.deliver(1, 2, 4, 5, again=(5, 2))
    started = list[list[int]]()
    for _ in range(30):
        world.step(pass_s=0.01)
        if world.workers.out:
            started.append(sorted(one.offset() for run in world.workers.out for one in run.messages))
            while world.workers.out:
                world.work()
    assert started == [[2], [5], [1, 4]]
    assert world.source.acknowledged == [2, 5, 1, 4]


def test_what_waits_for_its_turn_is_released_when_the_lock_runs_out() -> None:
    world = QueueWorld()
    world.deliver(1, 2, again=(1, 2))
    world.step()
    world.step()
    world.step(pass_s=LOCK_S)
    [expired] = world.seen.events
    assert isinstance(expired, LockExpired)
    assert (expired.records, expired.in_flight, world.source.released) == (2, 0, [1, 2])
    world.deliver(7)
    world.play()
    assert world.source.acknowledged == [7]


def test_a_dead_letter_is_acknowledged_after_its_receipt() -> None:
    world = QueueWorld(bad=[1])
    world.sink.decide = hold
    world.deliver(0, 1)
    world.play()
    assert world.source.acknowledged == [0]
    world.sink.answer()
    world.play()
    assert world.source.acknowledged == [0, 1]


def test_when_the_lock_runs_out_late_results_do_not_count_and_what_waits_does_not_start() -> None:
    world = QueueWorld(bad=[2], capacity=2, retries=5)
    world.deliver(0, 1, 2, 3)
    world.step()
    world.step()
    assert len(world.workers.out) == 2
    world.step(pass_s=LOCK_S)
    [expired] = world.seen.events
    assert isinstance(expired, LockExpired)
    assert (expired.offset, expired.records) == (0, 4)
    assert world.source.released == [0, 1, 2, 3]
    world.deliver(7)
    world.play()
    assert world.source.acknowledged == [7], "the first two came back late"
    assert world.loop.counts.processed == 1


def test_a_letter_is_published_on_after_the_lock_and_nothing_is_acquired_meanwhile() -> None:
    world = QueueWorld(bad=[0])
    world.sink.decide = hold
    world.deliver(0)
    world.play()
    world.step(pass_s=LOCK_S)
    assert world.source.released == [0]
    assert LETTERS in world.loop.holds
    world.deliver(1)
    world.play()
    assert len(world.source.deliveries) == 1, "it might come to the same end"
    world.sink.answer()
    world.play()
    assert (world.done, world.loop.counts.total().dead_lettered) == ([1], 1)
    assert world.source.acknowledged == [1]


def test_an_acknowledgement_that_fails_is_reported_and_not_repeated() -> None:
    world = QueueWorld()
    world.source.fault = Fault.RETRY
    world.deliver(0, 1)
    world.play()
    [failed] = world.seen.events
    assert isinstance(failed, CommitFailed)
    assert failed.code == "INVALID_RECORD_STATE"
    assert world.source.acknowledged == [0, 1]


def test_a_drain_finishes_what_runs_and_starts_nothing() -> None:
    world = QueueWorld(capacity=1)
    world.deliver(0, 1)
    world.step()
    world.step()
    world.stops = True
    world.work()
    world.play()
    assert world.loop.ending is not None
    assert (world.done, world.source.acknowledged, world.loop.ending.unfinished) == ([0], [0], 0)


@pytest.mark.parametrize("verb", sorted(OF_PARTITIONS))
def test_orders_for_a_partition_are_refused_with_the_reason(verb: Verb) -> None:
    world, answers = QueueWorld(), list[Answer]()
    world.mailbox.post(ControlOrder(verb=verb, answer=answers.append, topic=TOPIC, partition=0))
    world.step()
    assert answers == [Problem(error=QUEUE_REFUSES)]


def test_the_whole_queue_is_paused_and_resumed() -> None:
    world, answers = QueueWorld(), list[Answer]()
    world.mailbox.post(ControlOrder(verb="pause", answer=answers.append))
    world.step()
    world.deliver(1)
    world.play()
    assert (world.done, len(world.source.deliveries)) == ([], 1), "nothing is acquired meanwhile"
    world.mailbox.post(ControlOrder(verb="resume", answer=answers.append))
    world.play()
    assert world.done == [1]
    assert [type(one) for one in answers] == [CommandDone, CommandDone]
