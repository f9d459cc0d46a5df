"""Queues under random faults: the engine's own loop, workers and client adapter on a share group in memory.

A seed has a few members, records that fail, hang or kill, and a broker that locks records for a time, counts deliveries
and drops a record after the last of them. Members are killed, stopped and drained; acknowledgements are lost before or
after the broker has them; letters are refused. At the end each record is processed or dead-lettered.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, ShareConsumer

from keepfast.core.errors import Discard, Reject
from keepfast.core.events import Event, HandlerTimedOut, LockExpired
from keepfast.core.policies import CommitPolicy, RetryPolicy
from keepfast.core.records import TopicPartition
from keepfast.core.timeouts import TimeoutPolicy
from keepfast.decode.signature import inspect_handler
from keepfast.engine.calls import Handler
from keepfast.engine.context import Context
from keepfast.engine.mailbox import Stop
from keepfast.engine.parts import Ports, Workers
from keepfast.engine.plan import Plan
from keepfast.engine.workers import CoroutineExecutor
from keepfast.kafka.share_source import ShareSource
from keepfast.testing.fakes import trace
from keepfast.testing.fakes.acts import LetterSent
from keepfast.testing.fakes.faults import SendFault
from keepfast.testing.fakes.log import FakeMessage
from keepfast.testing.fakes.process import Process, ProcessDied
from keepfast.testing.fakes.world import FINISHED, Seat, Step, World
from keepfast.wiring.consumers import build_loop
from simulation.event_loop import SimEventLoop, SimEvents
from simulation.scenario import quiet

GROUP, TOPIC, LETTERS, NUMBER = "g", "orders", "orders.dlq", "n"
PARTITIONS = 3

LOCK_S, MARGIN_S = 2.0, 0.6
"""How long a record is locked, and what of it a handler and its retries may not use."""
MAX_DELIVERIES, LIMIT = 3, 5
"""From this delivery on a record is dead-lettered without a call; at this one the broker drops it."""
RETRIES = 2

SLACK_S = 0.1
"""Between what the broker knows and what a member has heard of it."""
CHAOS_S, CALM_S = 12.0, 90.0
SHUTDOWN_S = 3.0
CODES = (KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR, KafkaError.REQUEST_TIMED_OUT)

CONDUCTS = ("ok",) * 10 + ("flaky", "flaky", "doomed", "reject", "discard", "slow", "hangs", "stays", "kill")


@dataclass(eq=False, slots=True)
class Delivered:
    """One delivery of a record to a member. `disturbed`: something went wrong meanwhile that excuses the member."""

    record: Queued
    member: str
    count: int
    at: float
    condemned: bool = False
    """It is the likeliest cause of a death, as far as its member can know: by its count it is dead-lettered first."""
    disturbed: bool = False
    attempts: int = 0
    running: bool = False
    finished_at: float | None = None
    """When its handler was through with it, or its letter was acknowledged."""
    failed: bool = False
    over: bool = False
    """The broker has ended it."""

    @property
    def is_last(self) -> bool:
        """Whether the record is dead-lettered without a call."""
        return self.count >= MAX_DELIVERIES + (not self.condemned)


@dataclass(eq=False, slots=True)
class Queued:
    """A record, and what the share group knows of it."""

    number: int
    place: TopicPartition
    offset: int
    conduct: str
    failures_left: int
    state: str = "available"
    """Or "acquired", "acknowledged", "archived"."""
    deliveries: list[Delivered] = field(default_factory=list)
    deaths: int = 0
    """Of processes that had it in flight."""
    outcome: str = ""
    """What was done about it, once: "processed", "discarded" or "dead-lettered"."""

    def last_at(self, member: str) -> Delivered | None:
        return next((one for one in reversed(self.deliveries) if one.member == member), None)


class QueueMessage(FakeMessage):
    """As the client hands it over."""

    __slots__ = ("deliveries",)

    deliveries: int

    def delivery_count(self) -> int:
        return self.deliveries

    def error(self) -> None:
        return None


class ShareGroup:
    """The broker's part: who has which record, until when, for the how many-th time."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self.records: dict[TopicPartition, dict[int, Queued]] = defaultdict(dict)

    def every(self) -> Iterator[Queued]:
        return (record for records in self.records.values() for record in records.values())

    def has_some(self) -> bool:
        return any(record.state == "available" for record in self.every())

    def acquire(self, member: str, limit: int) -> list[Delivered]:
        """At most about `limit` records: whole batches of a producer, of one partition or of several."""
        found: list[Delivered] = []
        places = list(self.records)
        self._rng.shuffle(places)
        most = limit * self._rng.choice((1, 1, 3, 6))
        for place in places:
            for record in self.records[place].values():
                if record.state == "available" and len(found) < most:
                    found.append(self._lock(record, member))
        return found

    def _lock(self, record: Queued, member: str) -> Delivered:
        record.state = "acquired"
        one = Delivered(record, member, len(record.deliveries) + 1, self._world.clock.monotonic())
        record.deliveries.append(one)
        self._world.clock.after(LOCK_S, lambda: self._give_back(one))
        return one

    def _give_back(self, one: Delivered) -> None:
        """Its lock has run out, or it is released. It is dropped after the last delivery."""
        if not one.over:
            one.over = True
            one.record.state = "available" if one.count < LIMIT else "archived"

    def acknowledge(self, member: str, answers: Mapping[int, AcknowledgeType], place: TopicPartition) -> int | None:
        """All of a partition, or none. Returns the error."""
        held = [self.records[place][offset].deliveries[-1] for offset in answers]
        if any(one.over or one.member != member for one in held):
            return int(KafkaError.INVALID_RECORD_STATE)
        for one, how in zip(held, answers.values(), strict=True):
            if how == AcknowledgeType.ACCEPT:
                one.over, one.record.state = True, "acknowledged"
            else:
                self._give_back(one)
        return None

    def leave(self, member: str) -> None:
        for record in self.every():
            if record.deliveries and record.deliveries[-1].member == member:
                self._give_back(record.deliveries[-1])


class ShareClient:
    """What `ShareSource` uses of `confluent_kafka.ShareConsumer`, with its habits."""

    def __init__(self, sim: QueueWorld, process: Process, records: int) -> None:
        self._sim = sim
        self._process = process
        self._records = records
        self._locked: set[tuple[TopicPartition, int]] = set()
        self._pending: dict[TopicPartition, dict[int, AcknowledgeType]] = {}
        self._answers: list[tuple[dict[TopicPartition, set[int]], KafkaError | None]] = []
        self._on_the_wire = 0
        self._callback: Callable[..., None] = lambda *_: None

    def set_acknowledgement_commit_callback(self, callback: Callable[..., None]) -> None:
        self._callback = callback

    def subscribe(self, topics: list[str]) -> None:  # noqa: ARG002 - there is one topic
        self._process.enter()

    def poll(self, timeout_s: float) -> list[QueueMessage]:
        self._process.enter()
        self._serve()
        if self._locked:
            self._sim.blame(f"{self._process.name} polls, and has not acknowledged {self._locked}")
            raise KafkaException(KafkaError(KafkaError._STATE))  # noqa: SLF001 - its name
        group = self._sim.group
        self._process.wait(
            timeout_s, lambda: (group.has_some() and not self._on_the_wire) or self._answers, yields=True
        )
        self._serve()
        if self._sim.fails("poll_failed"):
            raise KafkaException(KafkaError(self._sim.rng.choice(CODES)))
        if self._on_the_wire or not group.has_some():  # a connection keeps the order of its requests
            return []
        found = group.acquire(self._process.name, self._records)
        self._sim.suspect([one for one in found if one.count > 1])
        for one in found:
            self._sim.acquired(one)
        self._locked = {(one.record.place, one.record.offset) for one in found}
        self._latency()
        return [self._message(one) for one in found]

    def _message(self, one: Delivered) -> QueueMessage:
        number = str(one.record.number).encode()
        headers = ((NUMBER, number),)
        message = QueueMessage(one.record.place, one.record.offset, key=None, value=number, headers=headers)
        message.deliveries = one.count
        return message

    def acknowledge_offset(self, topic: str, partition: int, offset: int, how: AcknowledgeType) -> None:
        self._process.enter()
        place = TopicPartition(topic, partition)
        if (place, offset) not in self._locked:
            self._sim.blame(f"{self._process.name} acknowledges {place} {offset}, which it has not acquired")
        self._locked.discard((place, offset))
        self._sim.acknowledges(self._process.name, self._sim.group.records[place][offset], how)
        self._pending.setdefault(place, {})[offset] = how

    def commit_async(self) -> None:
        self._process.enter()
        self._serve()
        pending, self._pending = self._pending, {}
        if pending:
            self._on_the_wire += 1
            delay_s = self._sim.rng.uniform(*self._sim.world.broker.settings.latency_s)
            self._sim.world.clock.after(delay_s, lambda: self._arrive(pending))

    def _arrive(self, pending: dict[TopicPartition, dict[int, AcknowledgeType]]) -> None:
        """At the broker. A request may be lost, or its answer."""
        self._on_the_wire -= 1
        lost, unheard = self._sim.fails("acknowledgement_lost"), self._sim.fails("acknowledgement_applied_but_failed")
        for place, answers in pending.items():
            code: int | None = self._sim.rng.choice(CODES) if lost or unheard else None
            if not lost:
                code = self._sim.group.acknowledge(self._process.name, answers, place) or code
            if lost:
                self._sim.disturb(self._process.name)
            error = None if code is None else KafkaError(code)
            self._process.later(0.001, lambda one=({place: set(answers)}, error): self._answers.append(one))  # type: ignore[misc]

    def _serve(self) -> None:
        answers, self._answers = self._answers, []
        for one in answers:
            self._callback(*one)

    def close(self) -> None:
        self.commit_async()
        self._latency()
        self._serve()
        self._sim.group.leave(self._process.name)

    def _latency(self) -> None:
        self._process.wait(self._sim.rng.uniform(*self._sim.world.broker.settings.latency_s), lambda: False)


class QueueMember:
    """One process: the loop on the share client, and the handler."""

    def __init__(self, sim: QueueWorld, seat: Seat) -> None:
        self._sim = sim
        self._seat = seat
        self.process = process = seat.process
        self.name = process.name
        self.draining_at: float | None = None
        sim.members[self.name] = self
        rng = Random(sim.rng.getrandbits(32))
        capacity = rng.choice((1, 1, 2, 4))
        retry = RetryPolicy(max_retries=RETRIES, initial_delay_ms=20, max_delay_ms=200, max_elapsed_s=LOCK_S - MARGIN_S)
        plan = Plan(
            name=self.name,
            group=GROUP,
            topics=(TOPIC,),
            order="queue",
            capacity=capacity,
            commit=CommitPolicy(mode="interval", every_s=0.05),
            retry=retry,
            timeout=TimeoutPolicy(timeout_s=LOCK_S - MARGIN_S),
            lock_s=LOCK_S,
            max_deliveries=None,
            dead_letter_topics={TOPIC: LETTERS},
            letter_partitions={LETTERS: 1},
        )
        connect = cast(Callable[[dict[str, Any]], ShareConsumer], lambda _: ShareClient(sim, process, capacity))
        source = ShareSource({}, connect=connect, sleep=lambda seconds: process.wait(seconds, lambda: False))
        shape = inspect_handler(self._handle, context_type=Context)
        handler = Handler(
            self._handle, shape, order="queue", tombstones="discard", group=GROUP, max_deliveries=MAX_DELIVERIES
        )
        recorder = sim.world.flights.open(process) if sim.recorded else None
        events = SimEventLoop(process, rng, lambda: 0.0)  # type: ignore[abstract] # as in the executor
        executor = CoroutineExecutor(
            handler.call_async(seat.sink),
            seat.mailbox,
            capacity=capacity,
            events=SimEvents(events, process),
            clock=sim.world.clock.monotonic,
            recorder=recorder,
        )
        ports = Ports(
            source=source,
            sink=seat.sink,
            clock=sim.world.clock,
            random=rng,
            recorder=recorder,
            observers=(_Observer(self, sim),),
        )
        self.loop = build_loop(plan, Workers(executor, seat.mailbox), ports)
        self.loop.start()

    def step(self, now: float) -> object:
        self.loop.step(now)
        if self.loop.halted and self.draining_at is None:
            self.drain()
        if self.loop.ending is None:
            return None
        self._sim.world.flights.leave(self.process, clean=not self.loop.ending.unfinished)
        return FINISHED

    def drain(self) -> None:
        """SIGTERM."""
        if self.process.alive and self.draining_at is None:
            self.draining_at = self._sim.world.clock.monotonic()
            self._sim.disturb(self.name)
            self._seat.mailbox.post(Stop(self.draining_at + SHUTDOWN_S / 2))
            self.process.later(SHUTDOWN_S, self._time_is_up)

    def _time_is_up(self) -> None:
        self._sim.world.flights.leave(self.process, clean=False)
        self.process.exit()

    async def _handle(self, value: bytes) -> None:
        record = self._sim.numbers[int(value)]
        one = self._sim.begins(self.name, record)
        try:
            await self._do(record)
        except ProcessDied:
            raise
        except BaseException as error:
            self._sim.ends(one, type(error).__name__)
            raise
        self._sim.ends(one, "")

    async def _do(self, record: Queued) -> None:
        rng, calm = self._sim.rng, self._sim.calm
        takes_s = rng.choice((0.0, 0.01, 0.1))
        match record.conduct:
            case "slow" if not calm:
                takes_s = LOCK_S * 0.6
            case "hangs" if not calm:
                takes_s = LOCK_S * 10
        try:
            await asyncio.sleep(takes_s)
            if record.conduct == "stays" and not calm:
                await asyncio.sleep(LOCK_S * 10)
        except CancelledError:
            if record.conduct != "stays":
                raise
            await asyncio.sleep(LOCK_S)  # whatever its process wants
        if record.conduct == "kill":
            self.process.crash()
            raise ProcessDied(self.name)
        if record.conduct == "reject":
            raise Reject("no use")
        if record.conduct == "discard":
            raise Discard("not wanted")
        if record.failures_left or record.conduct == "doomed":
            record.failures_left -= 1
            raise OSError("not now")


class _Observer:
    wants = frozenset({LockExpired, HandlerTimedOut})
    keeps_errors = False

    def __init__(self, member: QueueMember, sim: QueueWorld) -> None:
        self._member = member
        self._sim = sim

    def on_event(self, event: Event) -> None:
        self._sim.emitted(self._member.name, event)


class QueueWorld:
    """One seed: `run`, then `problems`. What is wrong is noted when it happens."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = World(seed)
        self.group = ShareGroup(self.world, Random(seed + 1))
        self.numbers: list[Queued] = []
        self.members: dict[str, QueueMember] = {}
        self.problems: list[str] = []
        self.calm = False
        self.recorded = seed % 2 == 1
        self._in_hand: dict[str, set[Queued]] = defaultdict(set)
        self._letters: dict[tuple[str, int], Delivered] = {}
        self._faults = self.rng.choice(
            ((), ("crash", "stop"), ("drain",), ("acks",), ("crash", "drain", "acks", "sends"))
        )
        self._failing: dict[str, int] = defaultdict(int)
        self._places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        self.world.broker.create_topic(TOPIC, PARTITIONS)
        self.world.broker.create_topic(LETTERS)
        self.world.trace.listeners.append(self._listen)
        for _ in range(30):
            self._produce()
        for number in range(self.rng.randint(1, 3)):
            self._start(f"q{number}")

    # -- what happens

    def run(self) -> None:
        with quiet():
            self.world.clock.after(0.3, self._pull)
            for _ in range(round(CHAOS_S)):
                if not self.problems:
                    self.world.run(1.0)
            self.calm = True
            self.world.broker.faults.clear()
            self._failing.clear()
            for _ in range(round(CALM_S)):
                if self.problems or not self._open():
                    break
                self.world.run(1.0)
        for name, error in self.world.failures:
            self.problems.append(f"{name} died of {type(error).__name__}: {error}")
        self.problems += [f"record {one.number} is {one.state} at the end" for one in self._open()]
        self.problems += [
            f"record {one.number} ({one.conduct}) is {one.state}, and nothing was done about it"
            for one in self.numbers
            if one.state in ("acknowledged", "archived") and not one.outcome and not self._is_excused(one)
        ]

    def _open(self) -> list[Queued]:
        return [one for one in self.numbers if one.state in ("available", "acquired")]

    @staticmethod
    def _is_excused(record: Queued) -> bool:
        """Each of the deliveries in which it was to be dead-lettered was disturbed."""
        last = [one for one in record.deliveries if one.is_last]
        return record.state == "archived" and all(one.disturbed for one in last)

    def _produce(self) -> None:
        place, number = self.rng.choice(self._places), len(self.numbers)
        conduct = self.rng.choice(CONDUCTS)
        log = self.group.records[place]
        record = Queued(number, place, len(log), conduct, RETRIES if conduct == "flaky" else 0)
        self.numbers.append(record)
        log[record.offset] = record

    def _start(self, name: str) -> None:
        def main(seat: Seat) -> Step:
            return QueueMember(self, seat).step

        seat = self.world.spawn(name, main, group=GROUP)

        def look() -> None:
            if not seat.process.alive:
                self.world.clock.after(self.rng.uniform(0.05, 1.0), lambda: self._start(name))
            else:
                self.world.clock.after(0.1, look)

        self.world.clock.after(0.1, look)

    def _pull(self) -> None:
        if self.calm:
            return
        for _ in range(self.rng.choice((0, 3, 8))):
            self._produce()
        living = [one for one in self.members.values() if one.process.alive]
        if self._faults and living:
            victim = self.rng.choice(living)
            match self.rng.choice(self._faults):
                case "crash":
                    self.rng.choice(
                        (victim.process.crash, lambda: victim.process.crash_after(self.rng.randint(0, 40)))
                    )()
                case "stop" if not victim.process.on_top:
                    victim.process.stop(self.rng.choice((0.3, 1.0, LOCK_S * 1.5)))
                case "drain":
                    victim.drain()
                case "acks":
                    kind = self.rng.choice(
                        ("acknowledgement_lost", "acknowledgement_applied_but_failed", "poll_failed")
                    )
                    self._failing[kind] += self.rng.randint(1, 3)
                case "sends":
                    kinds = (SendFault.RETRY, SendFault.WRITTEN, SendFault.TOO_LARGE)
                    self.world.broker.faults.sends.order(self.rng.choice(kinds), count=2, duration_s=2.0)
                case _:
                    pass
        self.world.clock.after(self.rng.uniform(0.2, 1.0), self._pull)

    def fails(self, kind: str) -> bool:
        if not self._failing[kind]:
            return False
        self._failing[kind] -= 1
        self.world.trace.fault(kind)
        return True

    def disturb(self, member: str) -> None:
        """What it has acquired now need not be finished in time."""
        for record in self.group.every():
            if record.deliveries and record.deliveries[-1].member == member and not record.deliveries[-1].over:
                record.deliveries[-1].disturbed = True

    # -- the oracle

    def blame(self, what: str) -> None:
        self.problems.append(f"{self.world.clock.monotonic():.3f} {what}")

    def suspect(self, again: list[Delivered]) -> None:
        """Of what was acquired together, these were delivered before: those that were in flight at two deaths, or the
        first where no death is known.
        """
        if self.recorded and any(record.deaths for record in self.group.every()):
            for one in again:
                one.condemned = one.record.deaths > 1
        elif again:
            min(again, key=lambda one: (-one.count, one.record.place, one.record.offset)).condemned = True

    def acquired(self, one: Delivered) -> None:
        at = self.members[one.member].draining_at
        if at is not None and one.at > at + SLACK_S:
            self.blame(f"{one.member} acquires record {one.record.number} in its drain")
        self.world.clock.after(LOCK_S - 1e-3, lambda: self._is_due(one))

    def _is_due(self, one: Delivered) -> None:
        """Its lock is about to run out."""
        if one.over or one.disturbed or self.world.broker.faults.sends.open:
            return
        if one.finished_at is not None and self.world.clock.monotonic() - one.finished_at > SLACK_S:
            self.blame(f"{one.member} has finished record {one.record.number} and does not acknowledge it")

    def begins(self, member: str, record: Queued) -> Delivered:
        one, now = record.last_at(member), self.world.clock.monotonic()
        what = f"{member} starts record {record.number}"
        if one is None:
            self.blame(f"{what}, which it has never acquired")
            raise RuntimeError(what)
        if now > one.at + LOCK_S + SLACK_S and not one.disturbed:
            self.blame(f"{what} {now - one.at - LOCK_S:.2f} s after its lock has run out")
        if one.is_last:
            self.blame(f"{what} in delivery {one.count}")
        self._is_alone(what, one)
        if one.running:
            self.blame(f"{what} while it is still at it")
        if one.finished_at is not None:
            self.blame(f"{what} again in the same delivery")
        if one.attempts > RETRIES:
            self.blame(f"{what} for the {one.attempts + 1}th time")
        at = self.members[member].draining_at
        if at is not None and now > at + SLACK_S and not one.disturbed:
            self.blame(f"{what} in its drain")
        one.attempts += 1
        one.running = True
        self._in_hand[member].add(record)
        return one

    def _is_alone(self, what: str, one: Delivered) -> None:
        """One that was delivered before runs when its member is at no other, and when the broker has the
        acknowledgement of those before it.
        """
        if one.disturbed or self.world.clock.monotonic() - one.at > LOCK_S / 2 - SLACK_S:
            return
        for record in self.group.every():
            beside = record.last_at(one.member)
            if beside is None or beside is one or beside.at != one.at or beside.disturbed:
                continue
            # The client names offsets alone: a late answer about an earlier delivery is taken for this one's.
            late = any(before.member == one.member for before in record.deliveries[:-1])
            under_way = beside.running or (beside.finished_at is not None and not beside.over and not late)
            if under_way and (one.count > 1 or beside.count > 1):
                self.blame(f"{what} beside record {record.number}, and one of them was delivered before")

    def ends(self, one: Delivered, error: str) -> None:
        one.running = False
        self._in_hand[one.member].discard(one.record)
        if error in ("", Discard.__name__):
            one.record.outcome = one.record.outcome or ("discarded" if error else "processed")
            one.finished_at = self.world.clock.monotonic()
        else:
            one.failed = True

    def acknowledges(self, member: str, record: Queued, how: AcknowledgeType) -> None:
        one, now = record.last_at(member), self.world.clock.monotonic()
        if one is None:
            return
        late_s = now - one.at - LOCK_S
        if how == AcknowledgeType.ACCEPT and one.finished_at is None:
            self.blame(f"{member} acknowledges record {record.number}, which it has not finished in this delivery")
        elif how == AcknowledgeType.ACCEPT and late_s > SLACK_S and not one.disturbed:
            self.blame(f"{member} acknowledges record {record.number} {late_s:.2f} s after its lock has run out")
        elif how == AcknowledgeType.REJECT:
            self.blame(f"{member} rejects record {record.number}: no member would get it again")
        elif how == AcknowledgeType.RELEASE and now < one.at + LOCK_S and self.members[member].draining_at is None:
            self.blame(f"{member} releases record {record.number}, and does not drain")

    def emitted(self, member: str, event: Event) -> None:
        now = self.world.clock.monotonic()
        if isinstance(event, LockExpired):
            record = self.group.records[TopicPartition(event.topic, event.partition)][event.offset]
            one = record.last_at(member)
            if one is None or now < one.at + LOCK_S:
                self.blame(f"{member} reports {event}, and its lock holds")
        elif isinstance(event, HandlerTimedOut):
            one = self.group.records[TopicPartition(event.topic, event.partition)][event.offset].last_at(member)
            if one is not None:
                one.failed, one.running = True, False

    def _listen(self, fact: trace.Fact) -> None:
        match fact:
            case trace.ProcessCrashed(member=name):
                self.disturb(name)
                for record in self._in_hand[name]:
                    record.deaths += 1
            case trace.ProcessStopped(member=name):
                self.disturb(name)
            case LetterSent(member=name, number=number):
                self._letter_sent(name, number)
            case trace.LetterFailed(member=name):
                self.disturb(name)
            case trace.LetterWritten(member=name, number=number):
                one = self._letters[name, number]
                one.record.outcome = one.record.outcome or "dead-lettered"
            case trace.LetterAcked(member=name, number=number):
                one = self._letters[name, number]
                if one is one.record.last_at(name):
                    one.finished_at = fact.at
            case _:
                pass

    def _letter_sent(self, member: str, number: int) -> None:
        headers = dict(self.world.seats[member].sink.sent[number].headers)
        record = self.numbers[int(headers[NUMBER] or b"")]
        one = record.last_at(member)
        if one is None:
            self.blame(f"{member} dead-letters record {record.number}, which it has never acquired")
            return
        self._letters[member, number] = one
        if not any(before.failed or before.is_last for before in record.deliveries if before.member == member):
            self.blame(f"{member} dead-letters record {record.number}, which has not failed")


def problems_of(seed: int) -> list[str]:
    sim = QueueWorld(seed)
    sim.run()
    return sim.problems
