# ruff: noqa: ARG002 - ports have arguments that nothing in memory needs
"""An app, or a runner, in memory: the real loop, handlers and letters on the simulator's broker, without injected
faults.

Time is simulated: a wait lets it pass at once. Only while a coroutine of the user waits for something real does
it go as fast as real time.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from random import Random
from types import TracebackType
from typing import Any
from zlib import crc32

from keepfast.core.errors import Halt
from keepfast.core.events import Event
from keepfast.core.ports import Delivery, Mailbox
from keepfast.core.records import Outgoing, Receipt, Record, TopicPartition
from keepfast.core.runs import Run
from keepfast.engine.hooks import Hook, report_failure
from keepfast.engine.loop import Loop
from keepfast.engine.parts import IDLE_S, Ports, Workers
from keepfast.engine.plan import Plan
from keepfast.engine.subscription import TopicsFound
from keepfast.kafka.admin import KafkaAdmin, TopicFacts
from keepfast.settings import ConsumerSettings
from keepfast.telemetry.metrics import Tally
from keepfast.testing.fakes.process import Process
from keepfast.testing.fakes.settings import WorldSettings
from keepfast.testing.fakes.world import FINISHED, Seat, Step, World
from keepfast.testing.harness.event_recorder import EventRecorder
from keepfast.testing.harness.tested import Tested
from keepfast.wiring.cluster import letter_topics_of, preflight
from keepfast.wiring.consumers import ConsumerSpec, build_loop, plan_of
from keepfast.wiring.topic_discovery import TopicDiscovery, discovered, with_existing

LONG_S = 1e9
CALM = WorldSettings(
    latency_s=(0.0, 0.0),
    fetch_delay_s=(0.0, 0.0),
    edges_delay_s=(0.0, 0.0),
    ack_delay_s=(0.0, 0.0),
    session_s=LONG_S,
    heartbeat_s=LONG_S / 10,
    max_poll_interval_s=LONG_S,
    max_message_bytes=100_000_000,
)
"""A broker that answers at once and has no timeouts."""

LONG_IDLE_S = 600.0
"""A loop that waits for nothing else lets so much time pass at once."""

EVENTS = 20
"""Events of the simulated clock in one go."""

REAL_S = 0.05
"""How long a user's coroutine is waited for in one go."""


class MemoryAdmin(KafkaAdmin):
    """Admin requests, answered by the simulated broker. Every topic exists."""

    def __init__(self, world: World, partitions: int) -> None:
        super().__init__({})
        self._world = world
        self._partitions = partitions
        self._tag = f"@{uuid.uuid4().hex[:8]}"  # or a database would remember records of an earlier test

    def check(self, timeout_s: float, abandoned: Callable[[], bool] = lambda: False) -> None:
        """It is always there."""

    def has_new_protocol(self, timeout_s: float) -> bool | None:
        return True

    def topics(self, names: Sequence[str], timeout_s: float) -> dict[str, TopicFacts | None]:
        for name in names:
            self.create_topic(name, partitions=self._partitions, timeout_s=timeout_s)
        broker = self._world.broker
        return {name: TopicFacts(name, broker.partitions(name) or 0, self.topic_id(name)) for name in names}

    def topic_id(self, name: str) -> str:
        return f"{self._world.broker.topic_id(name)}{self._tag}"

    def names(self, timeout_s: float) -> set[str]:
        return set(self._world.broker.partition_counts())

    def offsets_retention_s(self, timeout_s: float) -> float | None:
        return None

    def topic_config(self, name: str, timeout_s: float) -> dict[str, str]:
        return {}

    def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        timeout_s: float,
        replicas: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> bool:
        missing = self._world.broker.partitions(name) is None
        if missing:
            self._world.broker.create_topic(name, partitions)
        return missing


class TestSink:
    """Implements `core.ports.Sink`: what is sent is there at once, in a topic that is made if it is missing."""

    __test__ = False

    def __init__(self, world: World, partitions: int) -> None:
        self._world = world
        self._partitions = partitions

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        delivered(self.write(outgoing))

    def write(self, outgoing: Outgoing) -> Receipt:
        broker = self._world.broker
        count = broker.partitions(outgoing.topic)
        if count is None:
            count = len(broker.create_topic(outgoing.topic, self._partitions).logs)
        partition = outgoing.partition if outgoing.partition is not None else crc32(outgoing.key or b"") % count
        offset = broker.produce(
            TopicPartition(outgoing.topic, partition),
            value=outgoing.value,
            key=outgoing.key,
            headers=outgoing.headers,
            timestamp_ms=outgoing.timestamp_ms,
        )
        return Receipt(outgoing.topic, partition, offset)

    def close(self, timeout_s: float) -> None:
        """Nothing is under way."""


class TestExecutor:
    """Implements `core.ports.Executor`: functions run at once, coroutines as tasks of the test's own event loop."""

    __test__ = False
    grace_s = LONG_S

    def __init__(self, call: Any, mailbox: Mailbox, process: Process, *, is_async: bool) -> None:
        self._call = call
        self._mailbox = mailbox
        self._process = process
        self._is_async = is_async
        self._tally = Tally()
        self.tasks: dict[Run, asyncio.Task[None]] = {}

    def submit(self, runs: list[Run], out: int) -> None:
        for run in runs:
            if self._is_async:
                self.tasks[run] = asyncio.get_running_loop().create_task(self._await(run))
            else:
                self._process.later(0.0, lambda run=run: self._walk(run))  # type: ignore[misc]

    def lively(self) -> bool:
        return True

    def where(self, run: Run) -> TracebackType | None:
        return None

    def blocker(self) -> tuple[TracebackType | None, list[Run]]:
        return None, []

    def give_up(self, run: Run) -> None:
        if run in self.tasks:
            self.tasks[run].cancel()

    def regain(self, run: Run) -> None:
        """Not supported: there are no workers."""

    def _walk(self, run: Run) -> None:
        self._call.walk(run, self._tally, time.perf_counter)
        self._mailbox.post(run)

    async def _await(self, run: Run) -> None:
        try:
            await self._call.walk(run, self._tally, time.perf_counter)
        finally:
            del self.tasks[run]
            self._mailbox.post(run)


class TestHooks:
    """Implements `core.events.Observer`: events wait here until the test lets hooks have them, on its event loop."""

    __test__ = False

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = hooks
        self.wants: frozenset[type[Event]] = frozenset().union(*(hook.wants for hook in hooks))
        self.keeps_errors = True
        self._waiting: deque[Event] = deque()

    def on_event(self, event: Event) -> None:
        self._waiting.append(event)

    async def settle(self) -> None:
        while self._waiting:
            event = self._waiting.popleft()
            for hook in self._hooks:
                if type(event) in hook.wants:
                    await self._call(hook, event)

    async def _call(self, hook: Hook, event: Event) -> None:
        try:
            result = hook.function(event)
            if hook.is_async:
                await result
        except Exception as error:  # noqa: BLE001 - as everywhere, what a hook raises is only logged
            report_failure(hook, event, error)


class Memory:
    """Implements `backend.Backend`."""

    def __init__(self, tested: Tested, recorder: EventRecorder, *, topics: Sequence[str], partitions: int) -> None:
        self._recorder = recorder
        self._hooks = TestHooks(tested.hooks)
        self._settings = tested.settings
        self._needs = [spec.needs for spec in tested.specs]
        self._world = World(seed=0, settings=CALM)
        self._partitions = partitions
        self._admin = MemoryAdmin(self._world, partitions)
        self.sink = TestSink(self._world, partitions)
        self._world.broker.write_output = self.sink.write
        for topic in topics:
            self._admin.create_topic(topic, partitions=partitions, timeout_s=0.0)
        cluster = preflight(self._admin, self._needs, wait=False)
        cluster = discovered(self._admin, cluster, self._needs, self._settings.app, None)
        letter_topics = letter_topics_of(self._admin, cluster.letter_partitions, self._needs)
        self._discovery = TopicDiscovery(self._admin, self._settings, letter_topics)
        self._executors: list[TestExecutor] = []
        self._loops: list[Loop] = []
        for spec in tested.specs:
            plan = plan_of(spec, tested.settings, cluster)
            self._world.spawn(plan.name, self._main(spec, plan), group=plan.group)

    def _main(self, spec: ConsumerSpec, plan: Plan) -> Callable[[Seat], Step]:
        def main(seat: Seat) -> Step:
            call = spec.call(plan, self.sink, None)
            executor = TestExecutor(call, seat.mailbox, seat.process, is_async=spec.is_async)
            ports = Ports(
                source=seat.source,
                sink=self.sink,
                clock=self._world.clock,
                random=Random(0),
                discover=None if plan.pattern is None else partial(self._discover, spec),
                # With several groups, a long wait of one would block the coroutines of another.
                idle_s=LONG_IDLE_S if len(self._needs) == 1 else IDLE_S,
                observers=(self._recorder, self._hooks),
            )
            publisher = spec.publisher(self.sink) if spec.publisher is not None else None
            loop = build_loop(plan, Workers(executor, seat.mailbox), ports, publisher)
            self._executors.append(executor)
            self._loops.append(loop)
            loop.start()

            def step(now: float) -> object:
                loop.step(now)
                return FINISHED if loop.ending is not None else None

            return step

        return main

    def _discover(self, spec: ConsumerSpec, known: Collection[str], answer: Callable[[TopicsFound], None]) -> None:
        answer(self._discovery.found(spec, known))

    async def consumers(self) -> list[ConsumerSettings]:
        existing = self._admin.names(0.0)
        return [with_existing(own, self._needs, self._settings.app, existing) for own in self._needs]

    async def produce(self, outgoing: Outgoing) -> Receipt:
        return self.sink.write(outgoing)

    async def records(self, topic: str) -> list[Record]:
        count = self._world.broker.partitions(topic) or 0
        logs = [self._world.broker.existing(TopicPartition(topic, number)) for number in range(count)]
        return [Record.of(message) for log in logs for message in log.read(log.start, log.end)]

    def topic_id(self, topic: str) -> str:
        return self._admin.topic_id(topic)

    def unfinished(self) -> dict[TopicPartition, int]:
        left: dict[TopicPartition, int] = {}
        broker = self._world.broker
        for group, topics in self._read():
            for topic in topics:
                for number in range(broker.partitions(topic) or 0):
                    place = TopicPartition(topic, number)
                    log, stored = broker.existing(place), broker.stored(group, place)
                    count = log.end - (stored.offset if stored is not None else log.start)
                    if count:
                        left[place] = left.get(place, 0) + count
        return left

    def _read(self) -> list[tuple[str, set[str]]]:
        """Each consumer's group and everything that it reads or will read, retry topics too."""
        existing = self._admin.names(0.0)
        found = []
        for own in self._needs:
            every = with_existing(own, self._needs, self._settings.app, existing)
            loops = [loop for loop in self._loops if loop.plan.group == own.group]
            read = {topic for loop in loops for topic in loop.subscription.every}
            found.append((own.group, {*every.topics, *read}))
        return found

    async def run_briefly(self) -> float:
        begun = self._world.clock.monotonic()
        tasks = [task for executor in self._executors for task in executor.tasks.values()]
        if tasks:
            real = time.monotonic()
            await asyncio.wait(tasks, timeout=REAL_S, return_when=asyncio.FIRST_COMPLETED)
            self._world.clock.advance(time.monotonic() - real)
        else:
            for _ in range(EVENTS):
                self._world.clock.run_next(begun + LONG_S)
                if any(executor.tasks for executor in self._executors):
                    break
        for name, failure in self._world.failures:
            raise RuntimeError(f"the consumer {name} failed") from failure
        if self._recorder.halted is not None:
            await self.settle_hooks()
            raise Halt(self._recorder.halted.reason)
        return self._world.clock.monotonic() - begun

    async def settle_hooks(self) -> None:
        await self._hooks.settle()

    async def close(self) -> None:
        """Cancel running handlers: the test is over."""
        tasks = [task for executor in self._executors for task in executor.tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
