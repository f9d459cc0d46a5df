"""The consumers of an app in one process: assembled, started, stopped and closed, each a step of its own.

The order: everything that can be wrong without a cluster is checked, then the clients are made and the cluster is
looked at, then each consumer is built. Nothing of it starts a loop.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from keepfast.core.errors import SourceError, SpoolError, StartError
from keepfast.core.events import Observer
from keepfast.core.ports import AskEnds, AskUnowned, Sink, Source
from keepfast.core.records import TopicPartition
from keepfast.deadletters.spool.places import durability_warning, store_at
from keepfast.deadletters.spool.service import SpoolService
from keepfast.engine.clock import RealClock
from keepfast.engine.crash_guard import ExclusiveGate
from keepfast.engine.flight_recorder import RecorderFile, open_recorder
from keepfast.engine.hooks import EventHooks, Hook
from keepfast.engine.lifecycle import Lifecycle, LoopThread, MissedDeadlines
from keepfast.engine.parts import Ports
from keepfast.engine.workers import EventLoopThread, HandlerLoop
from keepfast.kafka import Connection, KafkaAdmin, KafkaSink, admin_properties, sink_properties
from keepfast.kafka.groups import KafkaGroups
from keepfast.redact.urls import shown
from keepfast.settings import ConsumerSettings, Settings
from keepfast.telemetry.clean import mask_with
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.timeline import Timeline
from keepfast.telemetry.tracing import Tracing, tracing_from
from keepfast.wiring.clients import BoundedSource, connection_of, in_two_rounds, share_source_of, source_of
from keepfast.wiring.cluster import ClusterFacts, LetterTopics, letter_topics_of, preflight
from keepfast.wiring.consumers import (
    ConsumerSpec,
    build_loop,
    coroutine_workers,
    plan_of,
    thread_workers,
)
from keepfast.wiring.share_groups import with_share_groups
from keepfast.wiring.topic_discovery import TopicDiscovery, discovered

log = get_logger("keepfast.start")

OWNER_S = 3.0
"""For the question which member has a partition."""

GATE = ExclusiveGate()
"""Of this process: a record that may have killed a process runs beside nothing else, of whatever app or runner."""

HOOKS_S, CANCEL_S, CLEAN_UP_S = 2.0, 1.0, 2.0
"""For what is left when all loops have ended: events for hooks; coroutines that are cancelled; and all of it, with the
last sends.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """What all consumers of an assembly share, and what the cluster answered. Without `admin` (a client that the user
    made) less is known while they run. `flush` is called at the end, for a producer that only the user's code uses.
    """

    cluster: ClusterFacts
    sink: Sink
    admin: KafkaAdmin | None = None
    flush: Callable[[float], None] | None = None

    def close(self, timeout_s: float) -> None:
        """Send what is still to be sent; what takes longer is given up."""
        until = time.monotonic() + timeout_s
        self.sink.close(timeout_s)
        if self.flush is not None:
            self.flush(max(0.1, until - time.monotonic()))


def connect(
    specs: Sequence[ConsumerSpec],
    settings: Settings,
    *,
    wait: bool,
    abandoned: Callable[[], bool] = lambda: False,
) -> Clients:
    """Clients as the settings say. `wait`: without end for a broker that is down, unless the start is `abandoned`.
    Raises StartError.
    """
    connection = connection_of(settings.kafka)
    admin = KafkaAdmin(admin_properties(connection))
    needs = [spec.needs for spec in specs]
    cluster = preflight(admin, needs, wait=wait, abandoned=abandoned)
    cluster = discovered(admin, cluster, needs, settings.app, KafkaGroups(admin_properties(connection)))
    cluster = with_share_groups(admin, cluster, needs)
    return Clients(cluster=cluster, sink=KafkaSink(sink_properties(connection)), admin=admin)


@dataclass(frozen=True, slots=True)
class _RunningTopics:
    """What looks after topics while consumers run."""

    letters: LetterTopics
    discovery: TopicDiscovery


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the consumers of an assembly share."""

    settings: Settings
    clients: Clients
    events: HandlerLoop
    hooks: EventHooks | None
    timeline: Timeline
    spool: SpoolService | None
    topics: _RunningTopics | None
    recorder: RecorderFile | None
    tracing: Tracing | None

    @property
    def observers(self) -> list[Observer]:
        return [self.timeline, *(one for one in (self.tracing, self.hooks) if one is not None)]


class Assembly:
    """The consumers of an app, with everything that they share, from not yet started to closed.

    `start`, `wait` and `close` in this order, on any one thread; `stop` asks for the end, from any thread. `run` does
    all of it, with signals. Several assemblies may run in one process.
    """

    def __init__(
        self, threads: Sequence[LoopThread], lifecycle: Lifecycle, shared: _Shared, *, missed_deadlines: int
    ) -> None:
        self.threads = threads
        self.lifecycle = lifecycle
        self.missed_deadlines = missed_deadlines
        self.clients = shared.clients
        self.events = shared.events
        self.hooks = shared.hooks
        self.timeline = shared.timeline
        self.spool = shared.spool
        self._settings = shared.settings
        self._recorder = shared.recorder
        self._tracing = shared.tracing

    def start(self) -> None:
        """Every loop begins; returns at once."""
        self.lifecycle.start()

    def stop(self) -> None:
        """Drain, and end; returns at once. Any thread."""
        self.lifecycle.stop()

    def wait(self) -> int:
        """Blocks until every loop has ended, or until a drain has passed its deadline; returns the exit code."""
        return self.lifecycle.wait()

    def run(self) -> int:
        """From the start to the end, with signals if this is the main thread; returns the exit code."""
        return self.lifecycle.run(self._end)

    def owner_of(self, group: str, place: TopicPartition) -> str:
        """Which member of the group has the partition, in words. Waits for the brokers, for at most OWNER_S."""
        admin = self.clients.admin
        if admin is None:
            return ""
        try:
            owner = KafkaGroups(admin.properties).owner_of(group, place, OWNER_S)
        except SourceError as error:
            return f"Which one has it is not known: {error}"
        return f"It belongs to {owner}." if owner else f"No member of the group {group} has it now."

    @property
    def audit_connection(self) -> Connection | None:
        """How to reach the audit topic. None with a client that the user made."""
        return connection_of(self._settings.kafka) if self.clients.admin is not None else None

    @property
    def letters_connection(self) -> Connection | None:
        """How to read the dead letters of these consumers, to count unresolved ones. None if that is turned off, or if
        there are none that could be read: no consumer, letters of the user's own publisher, a client that the user
        made, the embedded broker.
        """
        admin, plans = self.clients.admin, [thread.loop.plan for thread in self.threads]
        if admin is None or admin.embedded or not self._settings.desk.count_every_s:
            return None
        ours = any(plan.letter_partitions or plan.pattern for plan in plans)
        return connection_of(self._settings.kafka) if ours else None

    def _end(self, left_s: float) -> None:
        until = time.monotonic() + left_s
        self.end_handlers(left_s)
        self.close(max(0.0, until - time.monotonic()))

    @property
    def sink(self) -> Sink:
        """For what the user's code sends, with the current trace context where there is tracing."""
        return self.clients.sink if self._tracing is None else self._tracing.sink(self.clients.sink)

    def end_handlers(self, left_s: float) -> None:
        """All loops have ended: report the last events to hooks, for half of this time or two seconds at most, and
        cancel what is left of handlers. After this no coroutine of the user's is called any more, and everything else
        is still there.
        """
        if self.hooks is not None:
            self.hooks.stop(min(HOOKS_S, left_s / 2))
        self.events.cancel_workers(min(CANCEL_S, left_s / 2))

    def close(self, left_s: float) -> None:
        """After `end_handlers`: cancel, send and write what is left, within this time or two seconds."""
        until = time.monotonic() + min(CLEAN_UP_S, left_s)
        if self.spool is not None:
            self.spool.stop_draining()
        self.events.stop(min(CANCEL_S, left_s))
        self.clients.close(max(0.0, until - time.monotonic()))
        if self._tracing is not None:
            self._tracing.stop()
        if self.spool is not None:  # after the sink: what that has acknowledged is removed
            self.spool.close(max(0.1, until - time.monotonic()))
        if self._recorder is not None:
            self._recorder.end([thread.ending or thread.loop.ending for thread in self.threads])


def assemble(
    specs: Sequence[ConsumerSpec],
    settings: Settings,
    connect: Callable[[], Clients],
    *,
    events: HandlerLoop | None = None,
    reserved_s: float = 0.0,
    leave: Callable[[int], None] = os._exit,
    supervisor_stops: Callable[[], bool] = lambda: False,
    observers: Sequence[Observer] = (),
    hooks: Sequence[Hook] = (),
) -> Assembly:
    """Check everything that can be wrong, then build. Raises ConfigError or StartError.

    `connect` is called once, when nothing is wrong without a cluster. `events` is where coroutines run; without it they
    get an event loop of their own. `reserved_s`, `leave` and `supervisor_stops`: see `Lifecycle`. `observers` get the
    events of all consumers, beside the log, tracing and `hooks`.
    """
    mask_with(settings.masking.rules)
    with ExitStack() as undo:
        shared = _open(specs, settings, connect, undo, events=events or event_loop_thread(), hooks=hooks)
        threads = [_loop_thread(spec, shared, observers) for spec in specs]
        undo.pop_all()
    missed = MissedDeadlines(settings.state.dir, settings.app.name)
    lifecycle = Lifecycle(
        threads,
        shutdown_timeout_s=settings.shutdown.timeout_s,
        reserved_s=reserved_s,
        leave=shared.recorder.leaving(leave) if shared.recorder is not None else leave,
        supervisor_stops=supervisor_stops,
        missed=missed.note,
    )
    return Assembly(threads, lifecycle, shared, missed_deadlines=missed.take())


def _open(
    specs: Sequence[ConsumerSpec],
    settings: Settings,
    connect: Callable[[], Clients],
    undo: ExitStack,
    *,
    events: HandlerLoop,
    hooks: Sequence[Hook],
) -> _Shared:
    """What has to be closed again, should a later step fail, is entered into `undo`."""
    tracing = tracing_from(settings)
    clients = connect()
    undo.callback(clients.close, 0.0)
    spool = _open_spool(settings, clients.sink, used=any(spec.publisher is None for spec in specs))
    if spool is not None:
        undo.callback(spool.close, 0.1)
    recorder = _recorder(specs, settings)
    if recorder is not None:
        undo.callback(recorder.close, remove=True)
    return _Shared(
        settings,
        clients,
        events=events,
        hooks=EventHooks(hooks, events) if hooks else None,
        timeline=Timeline(),
        spool=spool,
        topics=_running_topics(specs, settings, clients),
        recorder=recorder,
        tracing=tracing,
    )


def _loop_thread(spec: ConsumerSpec, shared: _Shared, observers: Sequence[Observer]) -> LoopThread:
    clients, recorder = shared.clients, shared.recorder
    cluster, admin, settings = clients.cluster, clients.admin, shared.settings
    plan = plan_of(spec, settings, cluster)
    source = spec.source or _source(spec, settings, cluster)
    ports = Ports(
        source=source if spec.ends is None else cast(Source, BoundedSource(source, spec.ends)),
        sink=clients.sink,
        spool=shared.spool if spec.publisher is None else None,
        letter_topic_missing=shared.topics.letters.missing if shared.topics is not None else None,
        topic_ids=admin if cluster.has_topic_ids and plan.lock_s is None else None,
        discover=shared.topics.discovery.of(spec) if shared.topics is not None else None,
        ask_ends=_ask_ends(spec, clients),
        ask_depths=admin.ask_depths if admin is not None else None,
        ask_existing=admin.ask_existing if admin is not None else None,
        ask_unowned=_ask_unowned(spec.settings, clients),
        gate=GATE,
        recorder=recorder,
        observers=[*observers, *shared.observers],
    )
    call: Any = spec.call(plan, clients.sink, shared.tracing)
    if spec.is_async:
        workers = coroutine_workers(call, plan, shared.events, recorder)
    else:
        workers = thread_workers(call, plan, recorder)
    loop = build_loop(plan, workers, ports, spec.publisher(clients.sink) if spec.publisher is not None else None)
    return LoopThread(loop, workers.mailbox, workers.inline, tallies=workers.tallies)


def _ask_ends(spec: ConsumerSpec, clients: Clients) -> AskEnds | None:
    """None for a consumer that reads up to given ends: it pauses partitions without the loop's knowledge."""
    if clients.admin is None or spec.ends is not None:
        return None
    return partial(clients.admin.ask_ends, committed=spec.settings.isolation_level == "read_committed")


def _ask_unowned(own: ConsumerSettings, clients: Clients) -> AskUnowned | None:
    """Only for a member that may leave partitions without an owner."""
    if clients.admin is None or clients.cluster.embedded or not in_two_rounds(own):
        return None
    return partial(clients.admin.ask_unowned, own.group)


def _source(spec: ConsumerSpec, settings: Settings, cluster: ClusterFacts) -> Source:
    if spec.settings.order == "queue":
        return share_source_of(spec.settings, settings.kafka, workers=spec.workers)
    return source_of(spec.settings, settings.kafka, cluster)


def _running_topics(specs: Sequence[ConsumerSpec], settings: Settings, clients: Clients) -> _RunningTopics | None:
    if clients.admin is None:
        return None
    needs = [clients.cluster.consumers.get(spec.name, spec.needs) for spec in specs]
    letters = letter_topics_of(clients.admin, clients.cluster.letter_partitions, needs)
    return _RunningTopics(letters, TopicDiscovery(clients.admin, settings, letters))


def _recorder(specs: Sequence[ConsumerSpec], settings: Settings) -> RecorderFile | None:
    """One for all consumers, with room for all their workers; None where no consumer has a crash guard."""
    if not any(spec.settings.max_deliveries for spec in specs):
        return None
    lists = sum(spec.workers for spec in specs if spec.takes_lists)
    return open_recorder(settings.state.dir, slots=sum(spec.workers for spec in specs), lists=lists)


def _open_spool(settings: Settings, sink: Sink, *, used: bool) -> SpoolService | None:
    """Ready to take letters and already sending on what it holds; None if no place is configured, or if no letter of
    ours is ever published.

    Raises ConfigError, and StartError when the place cannot be written to.
    """
    if settings.spool.url is None:
        return None
    if not used:
        log.warning(
            "spool_not_used", why="dlq_publisher publishes the records, and only letters of ours can be spooled"
        )
        return None
    url, app = settings.spool.url.reveal(), settings.app.name
    service = SpoolService(store_at(url, app=app, max_bytes=settings.spool.max_bytes), sink, RealClock())
    doubts = durability_warning(url, app)
    if doubts:
        log.warning("spool_may_be_lost", spool=shown(url), why=doubts)
    try:
        service.open()
    except SpoolError as error:
        raise StartError(str(error)) from error
    log.info("spool_ready", spool=shown(url), letters=service.status.fill.letters)
    return service


def event_loop_thread() -> EventLoopThread:
    """For the coroutines of an app that is given no event loop; not started."""
    return EventLoopThread(_event_loop_factory())


def _event_loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it is installed (extra `fast`)."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop
