"""The composition root: from settings to threads, clients and loops."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from keepfast.app.options import Consumer
from keepfast.core.errors import ConfigError
from keepfast.deadletters.spool.service import SpoolService
from keepfast.engine.calls import Handler
from keepfast.engine.crash_guard import ExclusiveGate
from keepfast.engine.flight_recorder import RecorderFile, open_recorder
from keepfast.engine.lifecycle import Lifecycle, LoopThread
from keepfast.engine.plan import Plan
from keepfast.engine.workers import EventLoopThread
from keepfast.http.running import Parts
from keepfast.kafka import KafkaAdmin, KafkaSink, admin_properties, sink_properties
from keepfast.settings import ConsumerSettings, Settings
from keepfast.telemetry.clean import mask_with
from keepfast.telemetry.tracing import Tracing, tracing_from
from keepfast.wiring.clients import connection_of, source_of
from keepfast.wiring.cluster import ClusterFacts, LetterTopics, letter_topics, preflight
from keepfast.wiring.consumers import Ports, build_loop, coroutine_workers, plan_from, thread_workers
from keepfast.wiring.spooling import open_spool

THREADS, COROUTINES = 32, 256
"""Records at work at the same time unless told."""

CLEAN_UP_S = 1.0
"""For what is left when all loops have ended: coroutines that are cancelled, sends that nobody waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all consumers of a process use together."""

    admin: KafkaAdmin
    sink: KafkaSink
    events: EventLoopThread
    spool: SpoolService | None
    letter_topics: LetterTopics
    gate: ExclusiveGate = field(default_factory=ExclusiveGate)
    recorder: RecorderFile | None = None
    tracing: Tracing | None = None


class AssembledApp:
    """Everything of an app, put together and not yet started."""

    def __init__(self, lifecycle: Lifecycle, shared: Shared, threads: list[LoopThread]) -> None:
        self.lifecycle = lifecycle
        self.shared = shared
        self.threads = threads

    @property
    def parts(self) -> Parts:
        """What there is to see."""
        return Parts(self.threads, self.lifecycle, self.shared.spool)

    def run(self) -> int:
        """Until the end; returns the exit code."""
        code = self.lifecycle.run(self._clean_up)
        if self.shared.recorder is not None:
            self.shared.recorder.end([thread.ending for thread in self.threads])
        return code

    def _clean_up(self, left_s: float) -> None:
        until = time.monotonic() + min(2 * CLEAN_UP_S, left_s)
        spool = self.shared.spool
        if spool is not None:
            spool.stop_draining()
        self.shared.events.stop(min(CLEAN_UP_S, left_s))
        self.shared.sink.close(max(0.0, until - time.monotonic()))
        if self.shared.tracing is not None:
            self.shared.tracing.stop()
        if spool is not None:  # after the sink: what it has acknowledged is removed
            spool.close(max(0.1, until - time.monotonic()))


def assemble(
    consumers: list[Consumer],
    settings: Settings,
    *,
    wait: bool,
    supervisor_stops: Callable[[], bool] = lambda: False,
) -> AssembledApp:
    """Check everything that can be wrong, then build. Raises ConfigError or StartError."""
    handlers = handlers_of(consumers, settings)
    mask_with(settings.masking.rules)
    tracing = tracing_from(settings)
    connection = connection_of(settings.kafka)
    admin = KafkaAdmin(admin_properties(connection))
    chosen = [settings.consumers[consumer.name] for consumer in consumers]
    cluster = preflight(admin, chosen, wait=wait)
    sink = KafkaSink(sink_properties(connection))
    shared = Shared(
        admin=admin,
        sink=sink,
        events=EventLoopThread(_event_loop_factory()),
        spool=open_spool(settings, sink),
        letter_topics=letter_topics(admin, cluster.letter_partitions, chosen),
        recorder=_recorder(consumers, settings),
        tracing=tracing,
    )
    threads = [_loop_thread(consumer, handlers[consumer.name], settings, cluster, shared) for consumer in consumers]
    leave = shared.recorder.leaving(os._exit) if shared.recorder is not None else os._exit
    lifecycle = Lifecycle(
        threads, shutdown_timeout_s=settings.shutdown.timeout_s, leave=leave, supervisor_stops=supervisor_stops
    )
    return AssembledApp(lifecycle, shared, threads)


def _recorder(consumers: list[Consumer], settings: Settings) -> RecorderFile | None:
    """One for the process, with room for all its workers; None where no consumer has a crash guard."""
    guarded = [one for one in consumers if settings.consumers[one.name].max_deliveries]
    workers = {one.name: settings.consumers[one.name].concurrency or _capacity(one) for one in consumers}
    lists = sum(workers[one.name] for one in consumers if one.shape.batch)
    return open_recorder(settings.state.dir, slots=sum(workers.values()), lists=lists) if guarded else None


def handlers_of(consumers: list[Consumer], settings: Settings) -> dict[str, Handler]:
    """Each consumer's function, ready to be called. Raises ConfigError with every problem."""
    handlers: dict[str, Handler] = {}
    problems: list[str] = []
    for consumer in consumers:
        own = settings.consumers[consumer.name]
        try:
            handlers[consumer.name] = Handler(
                consumer.function,
                consumer.shape,
                order=own.order,
                tombstones=own.tombstones,
                group=own.group,
                sensitive=consumer.sensitive,
            )
        except ConfigError as error:
            problems.extend(f"{_place(consumer)}{problem}" for problem in error.problems)
    if problems:
        raise ConfigError(*problems)
    return handlers


def _place(consumer: Consumer) -> str:
    """`file:line: ` of the handler, where that is known: instances have none."""
    code = getattr(inspect.unwrap(consumer.function), "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}: " if code else ""


def _loop_thread(
    consumer: Consumer, handler: Handler, settings: Settings, cluster: ClusterFacts, shared: Shared
) -> LoopThread:
    sink = shared.sink
    own = settings.consumers[consumer.name]
    plan = plan_of(consumer, own, settings, cluster)
    if consumer.shape.is_async:
        call_async = handler.call_async(sink, tracing=shared.tracing, retry_topics=plan.tiers is not None)
        workers = coroutine_workers(call_async, plan, shared.events, shared.recorder)
    else:
        call = handler.call(sink, tracing=shared.tracing, retry_topics=plan.tiers is not None)
        workers = thread_workers(call, plan, shared.recorder)
    ports = Ports(
        source=source_of(own, settings.kafka, cluster),
        sink=sink,
        spool=shared.spool,
        letter_topic_missing=shared.letter_topics.missing,
        topic_ids=shared.admin if cluster.tells_ids else None,
        ask_ends=shared.admin.ask_ends,
        ask_depths=shared.admin.ask_depths,
        gate=shared.gate,
        recorder=shared.recorder,
        tracing=shared.tracing,
    )
    loop = build_loop(plan, workers, ports)
    return LoopThread(loop, workers.mailbox, workers.inline, tallies=workers.tallies)


def plan_of(consumer: Consumer, own: ConsumerSettings, settings: Settings, cluster: ClusterFacts) -> Plan:
    """What the loop needs to know, from the settings."""
    handler = f"{consumer.function.__module__}:{consumer.shape.name}"
    return plan_from(own, settings, cluster, capacity=_capacity(consumer), handler=handler)


def _capacity(consumer: Consumer) -> int:
    """Unless told otherwise."""
    return COROUTINES if consumer.shape.is_async else THREADS


def _event_loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it is installed (extra `fast`)."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop
