"""The composition root of a runner: from hooks and factories to clients, threads and one loop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from keepfast.core.errors import ConfigError, SourceError, StartError
from keepfast.core.ports import Sink
from keepfast.deadletters.letter import Letter
from keepfast.engine.calls import record_call
from keepfast.engine.crash_guard import ExclusiveGate
from keepfast.engine.flight_recorder import RecorderFile, open_recorder
from keepfast.engine.lifecycle import Lifecycle, LoopThread
from keepfast.engine.plan import Plan
from keepfast.http.one_app import Serving
from keepfast.http.running import Parts, Running
from keepfast.kafka import KafkaAdmin, KafkaSink, admin_properties, sink_properties
from keepfast.kafka.adopted import close_consumer
from keepfast.runner.clients import MadeConsumer, check_producer, end_producer, made_consumer, sink_of
from keepfast.runner.hooks import Hooks
from keepfast.runner.publishing import DlqPublisher, HookPublisher, NoSink
from keepfast.settings import AppSpec, ConsumerSettings, Settings, load
from keepfast.telemetry.clean import mask_with
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.tracing import tracing_from
from keepfast.wiring.clients import connection_of, source_of
from keepfast.wiring.cluster import ClusterFacts, letter_topics, preflight
from keepfast.wiring.consumers import Ports, build_loop, plan_from, thread_workers
from keepfast.wiring.spooling import open_spool

log = get_logger("keepfast.start")

GATE = ExclusiveGate()
"""Shared by all runners of the process: a record that may have killed its process runs beside none of them."""

POLL_INTERVAL_S = 15.0
FLUSH_S = 2.0
"""For what is left to send when the loop has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """Everything that was told to a runner and is needed to build it."""

    consumer_factory: Callable[[], Any]
    producer_factory: Callable[[], Any] | None
    hooks: Hooks
    dlq_publisher: DlqPublisher | None
    name: str
    handler: str
    consumer: Mapping[str, Any]
    """Settings of the consumer that were told as arguments."""
    settings: Mapping[str, Any]
    """Other settings in code, by section."""
    serves: bool = True
    """Whether health and metrics are served by us; not where the user has a health server."""
    noted: Callable[[Letter], None] | None = None
    """Told of every record that `dlq_publisher` has published; for tests."""


class AssembledRunner:
    """Put together and not yet started."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        thread: LoopThread,
        end: Callable[[float], None],
        server: ExitStack,
        seen: Running,
        *,
        recorder: RecorderFile | None,
    ) -> None:
        self.lifecycle = lifecycle
        self.threads = [thread]
        self.seen = seen
        self._end = end
        self._server = server
        self._recorder = recorder

    def run(self) -> int:
        with self._server:
            code = self.lifecycle.run(self._end)
            if self._recorder is not None:
                self._recorder.end([thread.ending for thread in self.threads])
            return code


def assemble(blueprint: Blueprint, leave: Callable[[int], None]) -> AssembledRunner:
    """Call the factories, check everything that can be wrong, then build. Raises ConfigError or StartError."""
    client = blueprint.consumer_factory()
    try:
        made = made_consumer(client)
        settings = _settings(blueprint, made, environ=os.environ, cwd=Path.cwd())
        for warning in settings.warnings:
            log.warning("settings", warning=warning)
        return build(blueprint, made, settings, leave)
    except BaseException:
        close_consumer(client)
        raise


def looked_at(blueprint: Blueprint, *, environ: Mapping[str, str], cwd: Path) -> tuple[Settings, MadeConsumer]:
    """The settings that hold for a runner, without running it, and what its consumer would be; one that the factory
    has made for that is closed again, and its `source` is None. Raises ConfigError.
    """
    client = blueprint.consumer_factory()
    try:
        made = made_consumer(client)
        return _settings(blueprint, made, environ=environ, cwd=cwd), replace(made, source=None, partitions=None)
    finally:
        close_consumer(client)


def build(
    blueprint: Blueprint, made: MadeConsumer, settings: Settings, leave: Callable[[int], None]
) -> AssembledRunner:
    """From settings that hold. Raises ConfigError or StartError."""
    with ExitStack() as server:
        return _build(blueprint, made, settings, leave, server)


def _build(
    blueprint: Blueprint, made: MadeConsumer, settings: Settings, leave: Callable[[int], None], server: ExitStack
) -> AssembledRunner:
    # Where the user serves health, metrics are still exported, if they are, and `KafkaConsumerRunner.metrics` has them.
    served = settings if blueprint.serves else replace(settings, health=replace(settings.health, enabled=False))
    serving = server.enter_context(Serving(served))
    own = settings.consumers[blueprint.name]
    mask_with(settings.masking.rules)
    blueprint.hooks.deserialise = made.deserialise
    producer = blueprint.producer_factory() if blueprint.producer_factory is not None else None
    sink = _sink(blueprint, made, producer, settings)
    admin = KafkaAdmin(admin_properties(connection_of(settings.kafka))) if made.partitions is None else None
    cluster = _cluster_facts(blueprint, made, own, admin)
    spool = open_spool(settings, sink) if blueprint.dlq_publisher is None else None
    if blueprint.dlq_publisher is not None and settings.spool.url is not None:
        log.warning(
            "spool_not_used", why="records are published by dlq_publisher, and only letters of ours are spooled"
        )
    tracing = tracing_from(settings)
    recorder = open_recorder(settings.state.dir, slots=own.concurrency or 1) if own.max_deliveries else None
    ports = Ports(
        source=made.source or source_of(own, settings.kafka, cluster),
        sink=sink,
        spool=spool,
        letter_topic_missing=letter_topics(admin, cluster.letter_partitions, [own]).missing if admin else None,
        topic_ids=admin if cluster.tells_ids else None,
        ask_ends=admin.ask_ends if admin else None,
        ask_depths=admin.ask_depths if admin else None,
        gate=GATE,
        recorder=recorder,
        tracing=tracing,
    )
    thread = _loop_thread(blueprint, settings, cluster, ports)

    def end(left_s: float) -> None:
        until = time.monotonic() + min(FLUSH_S, left_s)
        if spool is not None:
            spool.stop_draining()
        sink.close(max(0.0, until - time.monotonic()))
        if spool is not None:  # after the sink: what it has acknowledged is removed
            spool.close(max(0.1, until - time.monotonic()))
        if tracing is not None:
            tracing.stop()
        if producer is not None and blueprint.dlq_publisher is not None:
            end_producer(producer, max(0.1, until - time.monotonic()))

    leave = leave if recorder is None else recorder.leaving(leave)
    lifecycle = Lifecycle([thread], shutdown_timeout_s=settings.shutdown.timeout_s, leave=leave)
    serving.show(Parts([thread], lifecycle, spool))
    return AssembledRunner(lifecycle, thread, end, server.pop_all(), serving.running, recorder=recorder)


def _settings(blueprint: Blueprint, made: MadeConsumer, *, environ: Mapping[str, str], cwd: Path) -> Settings:
    own, told = dict(made.tree.get("consumer", {})), dict(blueprint.consumer)
    if "group" in own and made.source is not None and told.get("group") not in (None, own["group"]):
        raise ConfigError(
            f"KafkaConsumerRunner: group is {told['group']!r}, but the consumer was made for {own['group']!r}; leave"
            " group out."
        )
    consumer = own | {name: value for name, value in told.items() if value is not None}
    spec = AppSpec(
        name=blueprint.name,
        settings={name: value for name, value in blueprint.settings.items() if name != "consumer"},
        consumers={blueprint.name: dict(blueprint.settings.get("consumer", {}))},
        handed_over={"kafka": made.tree.get("kafka", {}), "consumers": {blueprint.name: consumer}},
    )
    settings = load(spec, environ=environ, cwd=cwd)
    if f"consumers.{blueprint.name}.consumer.group" not in settings.origins:
        raise ConfigError(
            'KafkaConsumerRunner: nobody says which group to join; add "group.id" to the dict of consumer_factory, or'
            " group=… here, or set KAFKA_CONSUMER_GROUP."
        )
    return settings


def _sink(blueprint: Blueprint, made: MadeConsumer, producer: object | None, settings: Settings) -> Sink:
    """What sends letters of ours, and moves records to retry topics."""
    if blueprint.dlq_publisher is not None:
        if producer is not None:
            check_producer(producer)
        return NoSink() if made.source is not None else KafkaSink(sink_properties(connection_of(settings.kafka)))
    if producer is not None:
        return sink_of(producer)
    if made.source is None:
        return KafkaSink(sink_properties(connection_of(settings.kafka)))
    raise ConfigError(
        "KafkaConsumerRunner: nothing can bury a record: give a dlq_publisher, or a producer_factory, or let"
        " consumer_factory return a dict of configuration."
    )


def _cluster_facts(
    blueprint: Blueprint, made: MadeConsumer, own: ConsumerSettings, admin: KafkaAdmin | None
) -> ClusterFacts:
    """What must be there before the start. Raises StartError."""
    if admin is not None:
        return preflight(admin, [needs(blueprint, own)], wait=False)
    if own.retry_topics.delays:
        raise ConfigError(
            "KafkaConsumerRunner: retry topics need a consumer_factory that returns a dict of configuration."
        )
    ask = made.partitions
    assert ask is not None
    letters = sorted(set(needs(blueprint, own).dead_letter_topics.values()))
    try:
        counts = {topic: ask(topic, POLL_INTERVAL_S) for topic in [*own.topics, *letters]}
    except SourceError as error:
        raise StartError(str(error)) from error
    missing = [
        f"Topic {topic} does not exist, or this login may not see it."
        f" Create it: kafka-topics.sh --create --topic {topic} --bootstrap-server …"
        for topic, count in counts.items()
        if not count
    ]
    if missing:
        raise StartError("\n".join(missing))
    return ClusterFacts(
        topic_ids={},
        partition_counts={topic: counts[topic] for topic in own.topics},
        letter_partitions={topic: counts[topic] for topic in letters},
        tiers={},
    )


def needs(blueprint: Blueprint, own: ConsumerSettings) -> ConsumerSettings:
    """What must be there: no topic for letters, where only the user's publisher knows it."""
    return own if blueprint.dlq_publisher is None else replace(own, names={})


P = TypeVar("P", bound=HookPublisher)


def hook_publisher(kind: type[P], blueprint: Blueprint, settings: Settings, sink: Sink) -> P:
    """The user's own `dlq_publisher` in place of letters of ours."""
    assert blueprint.dlq_publisher is not None
    return kind(
        blueprint.dlq_publisher,
        blueprint.hooks,
        sink,
        group=settings.consumers[blueprint.name].group,
        handler=blueprint.handler,
        noted=blueprint.noted,
    )


def _loop_thread(blueprint: Blueprint, settings: Settings, cluster: ClusterFacts, ports: Ports) -> LoopThread:
    plan, hooks, tracing = plan_of(blueprint, settings, cluster), blueprint.hooks, ports.tracing
    call = record_call(hooks.call, group=plan.group, tracing=tracing, retry_topics=plan.tiers is not None)
    workers = thread_workers(call, plan, ports.recorder)
    publisher = None
    if blueprint.dlq_publisher is not None:
        publisher = hook_publisher(HookPublisher, blueprint, settings, ports.sink)
    loop = build_loop(plan, workers, ports, publisher)
    return LoopThread(loop, workers.mailbox, workers.inline, tallies=workers.tallies)


def plan_of(blueprint: Blueprint, settings: Settings, cluster: ClusterFacts) -> Plan:
    """What the loop needs to know."""
    own, least_s = settings.consumers[blueprint.name], blueprint.hooks.retry_floor_s
    return plan_from(own, settings, cluster, capacity=1, handler=blueprint.handler, retry_floor_s=least_s)
