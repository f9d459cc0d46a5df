"""One simulated process that runs the real loop, with what the app around it does about signals and deadlines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Protocol, cast

from keepfast.core.events import EVENT_TYPES, Event
from keepfast.core.ports import CommittedOffset
from keepfast.core.records import Message, TopicPartition
from keepfast.core.sizing import FAST_WORKERS
from keepfast.engine.control import ControlOrder
from keepfast.engine.lifecycle import FINISH_MARGIN_S
from keepfast.engine.mailbox import Release, Stop
from keepfast.engine.parts import Ports, Workers
from keepfast.engine.plan import Plan
from keepfast.engine.workers import Inline
from keepfast.testing.fakes.acts import Ended, ReleaseSeen, StopRequested, StopSeen
from keepfast.testing.fakes.clock import SimClock
from keepfast.testing.fakes.process import SimulationError
from keepfast.testing.fakes.source import FakeSource
from keepfast.testing.fakes.world import FINISHED, Seat, World
from keepfast.wiring.consumers import build_loop
from simulation.discovery import REFRESH_S, SimDiscovery, appeared, existing
from simulation.executor import SimExecutor
from simulation.setup import GROUP, Setup
from simulation.spool import SimSpool
from simulation.topic_ids import SimEnds, SimTopicIds
from simulation.variants.inboxes import SimDatabase
from simulation.workload import Workload

LIVENESS_S = 4.0
"""For this long an operator watches a member that starts nothing because of handlers that do not end."""

SPINS = 200_000
"""So many looks at a clock that does not advance are a loop that nothing ends."""


Watch = Callable[[list[Message]], None]
"""Called before the loop goes into its client, with nothing, and when it comes back, with what it was handed."""


class Watcher(Protocol):
    """Receives what a member does beyond the trace. `database` is that of inboxes."""

    database: SimDatabase

    def join(self, member: Member) -> None: ...
    def polls(self, member: Member) -> None: ...
    def given(self, member: Member, messages: list[Message]) -> None: ...
    def emitted(self, member: Member, event: Event) -> None: ...
    def stepped(self, member: Member) -> None: ...


class _Clock:
    """The world's clock, as the loop sees it: detects a loop that lets no time pass."""

    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._seen = -1.0
        self._looks = 0

    def monotonic(self) -> float:
        now = self._clock.monotonic()
        if now != self._seen:
            self._seen, self._looks = now, 0
        self._looks += 1
        if self._looks > SPINS:
            raise RuntimeError(f"the loop looked at the clock {SPINS} times and never let time pass")
        return now

    def wall(self) -> float:
        return self._clock.wall()


class _Source:
    """The client with an eye on how long the loop stays away from it, and how long a callback keeps it."""

    def __init__(self, source: FakeSource, clock: SimClock, watch: Watch) -> None:
        self._source = source
        self._clock = clock
        self._watch = watch
        self.left_at = clock.monotonic()
        self.inside = False
        self.subscribe = source.subscribe
        self.serve = source.serve
        self.start = source.start
        self.reset = source.reset
        self.refetch = source.refetch
        self.renew = source.renew
        self.reports_ends = source.reports_ends
        self.pause = source.pause
        self.resume = source.resume
        self.edges = source.edges
        self.ends = source.ends
        self.beginnings = source.beginnings
        self.at_time = source.at_time
        self.seen_ends = source.seen_ends
        self.commit = source.commit

    def poll(self, timeout_s: float) -> Message | None:
        self._enter()
        message = self._source.poll(timeout_s)
        self._leave([] if message is None else [message])
        return message

    def sweep(self, limit: int) -> list[Message]:
        self._enter()
        messages = self._source.sweep(limit)
        self._leave(messages)
        return messages

    @property
    def emptied(self) -> bool:
        return self._source.emptied

    def committed(self, places: Sequence[TopicPartition], timeout_s: float) -> list[CommittedOffset]:
        return self._source.committed(places, timeout_s)

    def close(self, *, leave: bool = True) -> None:
        self._enter()
        self._source.close(leave=leave)
        self._leave([])

    def _enter(self) -> None:
        self._watch([])
        self.inside = True

    def _leave(self, messages: list[Message]) -> None:
        self.inside = False
        self.left_at = self._clock.monotonic()
        if messages:
            self._watch(messages)


class _Mailbox:
    """The loop's mailbox; says when word from outside was taken out of it."""

    def __init__(self, seat: Seat, world: World) -> None:
        self._box = seat.mailbox
        self._name = seat.process.name
        self._world = world
        self.post = seat.mailbox.post

    def collect(self, timeout_s: float) -> list[Any]:
        items = self._box.collect(timeout_s)
        for item in items:
            if type(item) is Stop:
                self._world.trace.add(StopSeen(self._world.clock.monotonic(), self._name))
            elif type(item) is Release:
                self._world.trace.add(ReleaseSeen(self._world.clock.monotonic(), self._name, item.hold))
        return items


class _Observer:
    """Hands everything that the loop reports to the watcher."""

    wants = frozenset(EVENT_TYPES)
    keeps_errors = False

    def __init__(self, member: Member, watcher: Watcher) -> None:
        self._member = member
        self._watcher = watcher

    def on_event(self, event: Event) -> None:
        self._watcher.emitted(self._member, event)


class Member:
    """The process's main: builds everything on its seat, and then is its step."""

    def __init__(self, seat: Seat, world: World, setup: Setup, workload: Workload, watcher: Watcher) -> None:
        self.seat = seat
        self.process = seat.process
        self.name = seat.process.name
        self.setup = setup
        self._world = world
        self._watcher = watcher
        self._stopping = False
        self._choked_at: float | None = None
        rng = Random(world.rng.getrandbits(32))
        mailbox = _Mailbox(seat, world)
        few = setup.capacity if setup.commit.mode == "each" else min(setup.capacity, FAST_WORKERS)
        recorder = world.flights.open(seat.process) if setup.recorder else None
        self.executor = SimExecutor(
            seat.process,
            mailbox,
            workload,
            rng,
            setup=setup,
            few=few,
            recorder=recorder,
            sink=seat.sink,
            database=watcher.database,
        )
        self.source = _Source(
            seat.source,
            world.clock,
            lambda messages: watcher.given(self, messages) if messages else watcher.polls(self),
        )
        self.plan = self._plan(world, existing(setup, world.broker))
        self.spool: SimSpool | None = None
        if setup.spool:
            self.spool = SimSpool(
                seat.process, world.disk, seat.sink, world.trace, Random(rng.getrandbits(32)), roomy=setup.torn
            )
            self.spool.open()
        ports = Ports(
            source=self.source,
            sink=seat.sink,
            clock=_Clock(world.clock),
            random=rng,
            spool=self.spool,
            topic_ids=SimTopicIds(seat.process, world.broker),
            ask_ends=SimEnds(seat.process, world.broker).ask,
            discover=SimDiscovery(seat.process, world.broker, setup, partial(self._plan, world))
            if setup.later
            else None,
            recorder=recorder,
            observers=(_Observer(self, watcher),),
        )
        inline = cast(Inline, self.executor) if setup.inline else None  # as far as the loop uses it
        self.loop = build_loop(self.plan, Workers(self.executor, mailbox, inline), ports)
        watcher.join(self)
        self.loop.start()

    def step(self, now: float) -> object:
        loop = self.loop
        loop.step(now)
        self._watcher.stepped(self)
        if loop.ending is not None:
            self._world.trace.add(Ended(self._world.clock.monotonic(), self.name, loop.ending.kind))
            clean = loop.ending.complete and not loop.ending.unconfirmed
            self._world.flights.leave(self.process, clean=clean)
            return FINISHED
        if loop.halted and not self._stopping:
            self.stop()
        self._mind_health(now)
        return None

    def _mind_health(self, now: float) -> None:
        """Who has too many handlers that never end is restarted by whatever looks at its health."""
        if not self.loop.overdue.max_abandoned_reached:
            self._choked_at = None
        elif self._choked_at is None:
            self._choked_at = now
        elif now - self._choked_at > LIVENESS_S and not self._stopping:
            self._world.trace.fault("restarted_for_its_health")
            self.stop()

    def stop(self) -> None:
        """SIGTERM: as the app's main thread does it."""
        if self._stopping or not self.process.alive:
            return
        self._stopping = True
        timeout_s, clock = self.setup.shutdown_timeout_s, self._world.clock
        deadline = clock.monotonic() + timeout_s
        self._world.trace.add(StopRequested(clock.monotonic(), self.name, deadline))
        self._world.trace.fault("halt" if self.loop.halted else "sigterm")
        self.seat.mailbox.post(Stop(deadline - min(FINISH_MARGIN_S, timeout_s / 4)))
        self.process.later(timeout_s, self._time_is_up)

    @property
    def spools(self) -> SimSpool:
        """Its spool, in a seed that has one."""
        if self.spool is None:
            raise SimulationError(f"{self.name} has no spool")
        return self.spool

    def release(self, hold: str) -> None:
        """As the control of a running app does it."""
        self.seat.mailbox.post(Release(hold))

    def seek(self, place: TopicPartition, to: int, answer: Callable[[Any], None]) -> None:
        """As the control of a running app does it."""
        order = ControlOrder(verb="seek", answer=answer, topic=place.topic, partition=place.partition, to=to)
        self.seat.mailbox.post(order)

    def _time_is_up(self) -> None:
        if self.process.alive:
            self._world.trace.add(Ended(self._world.clock.monotonic(), self.name, "deadline"))
            self._world.flights.leave(self.process, clean=False)
            self.process.exit()

    def _plan(self, world: World, topics: tuple[str, ...]) -> Plan:
        setup = self.setup
        named = setup.inbox and world.broker.faults.topic_ids.take() is not None  # the cluster does not tell ids
        tiers = setup.retry_topics()
        if tiers is not None and setup.later:
            tiers = replace(tiers, topics={name: tier for name, tier in tiers.topics.items() if tier.source in topics})
        return Plan(
            name=self.name,
            group=GROUP,
            topics=topics,
            pattern=".*" if setup.later else None,
            matched=frozenset(topics if setup.later else ()),
            appeared=appeared(setup, world.broker),
            refresh_s=REFRESH_S,
            order=setup.order,
            capacity=setup.capacity,
            commit=setup.commit,
            retry=setup.retry,
            batch=setup.batch,
            atomic=setup.atomic,
            exactly_once=setup.once,
            breaker=setup.breaker,
            storm_guard=setup.storm_guard,
            rate=setup.rate,
            timeout=setup.timeout,
            buffer=setup.buffer,
            sweep=setup.sweep,
            reset=setup.reset,
            revoke_timeout_s=setup.revoke_timeout_s,
            max_deliveries=setup.max_deliveries,
            dead_letter_topics={topic: f"{topic}.dlq" for topic in topics},
            letter_partitions={f"{topic}.dlq": 1 for topic in topics},
            topic_ids={
                topic: world.broker.reported_id(topic) or ""
                for topic in (*topics, *(tiers.topics if tiers else ()))
                if not named
            },
            has_inbox=setup.inbox,
            partition_counts={topic: world.broker.partitions(topic) or 0 for topic in topics},
            tiers=tiers,
            handler="handler",
            app_version="0",
        )
