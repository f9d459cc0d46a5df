"""The composition root: from settings to threads, clients and loops."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from holdfast.core.errors import ConfigError
from holdfast.deadletter.publisher import Publisher
from holdfast.deadletter.spool.service import SpoolService
from holdfast.kafka import KafkaAdmin, KafkaSink, KafkaSource, admin_properties, sink_properties, source_properties
from holdfast.observe.clean import mask_with
from holdfast.observe.tracing import Tracing, tracing_from
from holdfast.runtime.batch_handler import BatchHandler
from holdfast.runtime.batch_walk import BatchCall
from holdfast.runtime.clients import connection_of, consuming_of
from holdfast.runtime.clock import RealClock
from holdfast.runtime.executors import CoroutineExecutor, EventLoopThread, ThreadExecutor
from holdfast.runtime.floor import Floor
from holdfast.runtime.handler import Handler
from holdfast.runtime.inline import Inline
from holdfast.runtime.letter_depths import LetterDepths
from holdfast.runtime.lifecycle import Lifecycle, LoopThread
from holdfast.runtime.loop import Loop
from holdfast.runtime.mailbox import QueueMailbox
from holdfast.runtime.plan import Plan
from holdfast.runtime.planning import plan_from
from holdfast.runtime.preflight import Ground, preflight
from holdfast.runtime.restoring import LetterTopics, letter_topics
from holdfast.runtime.returning import returning, returning_async
from holdfast.runtime.spans import handler_call, handler_call_async
from holdfast.runtime.spooling import open_spool
from holdfast.settings import ConsumerSettings, Settings
from holdfast.web.running import Parts

if TYPE_CHECKING:
    from holdfast.app.application import Consumer

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
    floor: Floor = field(default_factory=Floor)
    tracing: Tracing | None = None


class Assembled:
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
        return self.lifecycle.run(self._clean_up)

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


def assemble(consumers: list[Consumer], settings: Settings, *, wait: bool) -> Assembled:
    """Check everything that can be wrong, then build. Raises ConfigError or StartError."""
    handlers = handlers_of(consumers, settings)
    mask_with(settings.masking.rules)
    tracing = tracing_from(settings)
    connection = connection_of(settings.kafka)
    admin = KafkaAdmin(admin_properties(connection))
    chosen = [settings.consumers[consumer.name] for consumer in consumers]
    ground = preflight(admin, chosen, wait=wait)
    sink = KafkaSink(sink_properties(connection))
    shared = Shared(
        admin=admin,
        sink=sink,
        events=EventLoopThread(_event_loop_factory()),
        spool=open_spool(settings, sink),
        letter_topics=letter_topics(admin, ground.letter_partitions, chosen),
        tracing=tracing,
    )
    threads = [_loop_thread(consumer, handlers[consumer.name], settings, ground, shared) for consumer in consumers]
    return Assembled(Lifecycle(threads, shutdown_timeout_s=settings.shutdown.timeout_s), shared, threads)


def handlers_of(consumers: list[Consumer], settings: Settings) -> dict[str, Handler | BatchHandler]:
    """Each consumer's function, ready to be called. Raises ConfigError with every problem."""
    handlers: dict[str, Handler | BatchHandler] = {}
    problems: list[str] = []
    for consumer in consumers:
        own = settings.consumers[consumer.name]
        make = partial(BatchHandler, order=own.order) if consumer.shape.batch else Handler
        try:
            handlers[consumer.name] = make(
                consumer.function,
                consumer.shape,
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
    consumer: Consumer, handler: Handler | BatchHandler, settings: Settings, ground: Ground, shared: Shared
) -> LoopThread:
    sink = shared.sink
    own = settings.consumers[consumer.name]
    plan = plan_of(consumer, own, settings, ground)
    mailbox = QueueMailbox()
    executor: ThreadExecutor | CoroutineExecutor
    inline: Inline | None = None
    if consumer.shape.is_async:
        plain_async = handler_call_async(handler, sink, shared.tracing, plan.group)
        call_async = returning_async(plain_async) if plan.tiers else plain_async
        executor = CoroutineExecutor(call_async, mailbox, capacity=plan.capacity, events=shared.events)
    else:
        plain = handler_call(handler, sink, shared.tracing, plan.group)
        call = returning(plain) if plan.tiers else plain
        executor = ThreadExecutor(call, mailbox, capacity=plan.capacity, name=plan.name)
        if not isinstance(call, BatchCall):
            inline = Inline(call, mailbox, executor.tallies, name=plan.name)
    publisher = Publisher(
        sink,
        topics=plan.dead_letter_topics,
        partitions=ground.letter_partitions,
        group=plan.group,
        handler=plan.handler,
        app_version=plan.app_version,
        form=own.dead_letter.format,
        masking=settings.masking.rules,
        spool=shared.spool,
        missing=shared.letter_topics.missing,
    )
    source = KafkaSource(source_properties(connection_of(settings.kafka), consuming_of(own)))
    loop = Loop(
        plan,
        source=source,
        executor=executor,
        mailbox=mailbox,
        publisher=publisher,
        clock=RealClock(),
        random=Random(),
        inline=inline,
        floor=shared.floor,
        topic_ids=shared.admin,
    )
    loop.vitals.asks = shared.admin.ask_ends
    loop.vitals.letters = LetterDepths(shared.admin.ask_depths, ground.letters_of(plan.dead_letter_topics))
    loop.cases.tracing = shared.tracing
    return LoopThread(loop, mailbox, inline, tallies=executor.tallies)


def plan_of(consumer: Consumer, own: ConsumerSettings, settings: Settings, ground: Ground) -> Plan:
    """What the loop needs to know, from the settings."""
    capacity = COROUTINES if consumer.shape.is_async else THREADS
    handler = f"{consumer.function.__module__}:{consumer.shape.name}"
    return plan_from(own, settings, ground, capacity=capacity, handler=handler)


def _event_loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it is installed (extra `fast`)."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop
