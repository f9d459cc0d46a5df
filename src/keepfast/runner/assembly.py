"""From hooks and factories to the consumer of a runner, assembled."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from keepfast.core.errors import ConfigError, SourceError, StartError
from keepfast.core.events import Observer
from keepfast.core.policies import DeadLetterPolicy, RetryPolicy
from keepfast.core.ports import Sink
from keepfast.deadletters.letter import Letter
from keepfast.engine.calls import record_call
from keepfast.engine.plan import Plan
from keepfast.http.local_app import AppServer, LocalApp
from keepfast.kafka import KafkaAdmin, KafkaSink, admin_properties, sink_properties
from keepfast.kafka.adopted import close_consumer
from keepfast.runner.checking import LoggerAdapter
from keepfast.runner.clients import MadeConsumer, check_producer, end_producer, made_consumer, sink_of
from keepfast.runner.hooks import Deserialise, Hooks
from keepfast.runner.publishing import DlqPublisher, HookPublisher, NoSink
from keepfast.settings import AppSpec, Settings, load
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.tracing import Tracing
from keepfast.wiring.assembly import Assembly, Clients, assemble
from keepfast.wiring.clients import connection_of
from keepfast.wiring.cluster import ClusterFacts, preflight
from keepfast.wiring.consumers import AnyCall, ConsumerSpec

log = get_logger("keepfast.start")

LOOKUP_TIMEOUT_S = 15.0
COUNTER_STOP_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """The arguments of a runner, as far as they are needed to assemble it."""

    consumer_factory: Callable[[], Any]
    producer_factory: Callable[[], Any] | None
    process_message: Callable[[Any], Any]
    message_factory: Callable[[Any], Any] | None
    message_context: Callable[[Any], object] | None
    rate_limit_min_delay_ms: Callable[[], float] | None
    logger: logging.Logger | LoggerAdapter | None
    dlq_publisher: DlqPublisher | None
    name: str
    topics: Sequence[str] | None
    group: str | None
    concurrency: int
    retry: RetryPolicy | None
    dead_letter: DeadLetterPolicy | str | None
    settings: Mapping[str, Any]
    """Other settings in code, by section."""
    serves: bool = True
    """Whether health is served by us; where the user has a health server, ours has only a port for metrics."""
    noted: Callable[[Letter], None] | None = None
    """Called with every record that `dlq_publisher` has published; for tests."""

    @property
    def handler(self) -> str:
        """Where the function that processes messages is defined, `module:name`."""
        function = self.process_message
        module = getattr(function, "__module__", None) or "unknown"
        return f"{module}:{getattr(function, '__qualname__', type(function).__name__)}"

    @property
    def consumer(self) -> dict[str, Any]:
        """Settings of the consumer that were given as arguments."""
        names = ("topics", "group", "concurrency", "retry", "dead_letter")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def hooks(self, deserialise: Deserialise | None) -> Hooks:
        """The user's functions; `deserialise` is the consumer's own, where it has one."""
        return Hooks(
            deserialise,
            process_message=self.process_message,
            message_factory=self.message_factory,
            message_context=self.message_context,
            rate_limit_min_delay_ms=self.rate_limit_min_delay_ms,
            logger=self.logger,
            one_at_a_time=self.concurrency == 1,
        )


def assemble_runner(blueprint: Blueprint, leave: Callable[[int], None], server: ExitStack) -> tuple[Assembly, LocalApp]:
    """Call the factories, check everything that can be wrong, then build; what serves health is entered into `server`,
    and so is the end of the consumer, should its loop never start. Raises ConfigError or StartError.
    """
    client = _client_of(blueprint)
    server.callback(close_consumer, client)
    made = made_consumer(client)
    settings = _settings(blueprint, made, environ=os.environ, cwd=Path.cwd())
    for warning in settings.warnings:
        log.warning("settings", warning=warning)
    serving = server.enter_context(AppServer(settings, beside_own_health=not blueprint.serves))
    assembly = build(blueprint, made, settings, leave)
    from keepfast.desk import ControlAudit, UnresolvedCounter

    audit = ControlAudit.of(assembly.audit_connection, settings)
    if audit is not None:
        server.callback(audit.stop, COUNTER_STOP_S)
    note = audit.note if audit is not None else None
    if (connection := assembly.letters_connection) is None:
        serving.attach(assembly, audit=note)
    else:
        counter = UnresolvedCounter.of(assembly.threads, connection, settings)
        serving.attach(assembly, more=counter.families, audit=note)
        counter.start()
        server.callback(counter.stop, COUNTER_STOP_S)
    return assembly, serving.app


def build(
    blueprint: Blueprint,
    made: MadeConsumer,
    settings: Settings,
    leave: Callable[[int], None],
    observers: Sequence[Observer] = (),
) -> Assembly:
    """From settings that hold. `observers` get the consumer's events. Raises ConfigError or StartError."""
    spec = spec_of(blueprint, made, settings)
    connect = partial(_connect, blueprint, made, spec, settings)
    return assemble([spec], settings, connect, leave=leave, observers=observers)


def settings_of(
    blueprint: Blueprint, *, environ: Mapping[str, str], cwd: Path, for_tests: bool = False
) -> tuple[Settings, MadeConsumer]:
    """The settings that hold for a runner, without running it, and what its consumer would be; one that the factory
    has made for that is closed again, and its `source` is None. `for_tests`: as `load` has it. Raises ConfigError
    or StartError.
    """
    client = _client_of(blueprint)
    try:
        made = made_consumer(client)
        settings = _settings(blueprint, made, environ=environ, cwd=cwd, for_tests=for_tests)
        return settings, replace(made, source=None, partitions=None)
    finally:
        close_consumer(client)


def _client_of(blueprint: Blueprint) -> Any:
    """What the factory returns. Raises StartError if it is a client of kafka-python and reaches no broker."""
    try:
        return blueprint.consumer_factory()
    except Exception as error:
        if not type(error).__module__.startswith("kafka."):
            raise
        raise StartError(
            f"consumer_factory failed: {error}. A consumer of kafka-python connects when it is made: are its"
            " bootstrap_servers right, and reachable from here?"
        ) from error


def spec_of(
    blueprint: Blueprint, made: MadeConsumer, settings: Settings, publisher: type[HookPublisher] = HookPublisher
) -> ConsumerSpec:
    """The consumer of a runner. `publisher` calls the user's `dlq_publisher`, where there is one."""
    own, hooks = settings.consumers[blueprint.name], blueprint.hooks(made.deserialise)
    if own.order == "queue":
        raise ConfigError("order is queue, and KafkaConsumerRunner has a consumer of a group: use App for a queue.")
    publish, handler = blueprint.dlq_publisher, blueprint.handler
    return ConsumerSpec(
        settings=own,
        handler=handler,
        call=partial(_call, hooks),
        capacity=1,
        spacing=hooks.spacing,
        record_log=hooks.record_log,
        publisher=None
        if publish is None
        else partial(publisher, publish, hooks, group=own.group, handler=handler, noted=blueprint.noted),
        source=made.source,
    )


def _call(hooks: Hooks, plan: Plan, sink: Sink, tracing: Tracing | None) -> AnyCall:  # noqa: ARG001 - hooks send nothing
    return record_call(hooks.call, group=plan.group, tracing=tracing, retry_topics=plan.tiers is not None)


def _connect(blueprint: Blueprint, made: MadeConsumer, spec: ConsumerSpec, settings: Settings) -> Clients:
    """Raises ConfigError or StartError."""
    producer = blueprint.producer_factory() if blueprint.producer_factory is not None else None
    sink = _sink(blueprint, made, producer, settings)
    flush = None
    if producer is not None and blueprint.dlq_publisher is not None:
        flush = partial(end_producer, producer)
    try:
        if made.partitions is not None:
            return Clients(cluster=_cluster_facts(spec, made.partitions), sink=sink, flush=flush)
        admin = KafkaAdmin(admin_properties(connection_of(settings.kafka)))
        return Clients(cluster=preflight(admin, [spec.needs], wait=False), sink=sink, admin=admin, flush=flush)
    except BaseException:
        sink.close(0.0)
        raise


def _settings(
    blueprint: Blueprint, made: MadeConsumer, *, environ: Mapping[str, str], cwd: Path, for_tests: bool = False
) -> Settings:
    own, arguments = dict(made.tree.get("consumer", {})), blueprint.consumer
    if "group" in own and made.source is not None and arguments.get("group") not in (None, own["group"]):
        raise ConfigError(
            f"KafkaConsumerRunner: group is {arguments['group']!r}, but the consumer was made for {own['group']!r};"
            " leave group out."
        )
    spec = AppSpec(
        name=blueprint.name,
        settings={name: value for name, value in blueprint.settings.items() if name != "consumer"},
        consumers={blueprint.name: dict(blueprint.settings.get("consumer", {}))},
        handed_over={"kafka": made.tree.get("kafka", {}), "consumers": {blueprint.name: own | arguments}},
    )
    settings = load(spec, environ=environ, cwd=cwd, for_tests=for_tests)
    if settings.consumers[blueprint.name].pattern is not None:
        raise ConfigError("KafkaConsumerRunner: patterns are for @app.consumer; name the topics here.")
    if f"consumers.{blueprint.name}.consumer.group" not in settings.origins:
        raise ConfigError(
            'KafkaConsumerRunner: no group is configured; add "group.id" to the dict of consumer_factory, or'
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
        "KafkaConsumerRunner: no dead-letter destination configured: give a dlq_publisher, or a producer_factory, or"
        " let consumer_factory return a dict of configuration."
    )


def _cluster_facts(spec: ConsumerSpec, partitions: Callable[[str, float], int]) -> ClusterFacts:
    """What a client that the user made knows of the cluster. Raises ConfigError or StartError."""
    own, letters = spec.settings, sorted(set(spec.needs.dead_letter_topics.values()))
    if own.retry_topics.delays:
        raise ConfigError(
            "KafkaConsumerRunner: retry topics need a consumer_factory that returns a dict of configuration."
        )
    try:
        counts = {topic: partitions(topic, LOOKUP_TIMEOUT_S) for topic in [*own.topics, *letters]}
    except SourceError as error:
        raise StartError(str(error)) from error
    missing = [
        f"Topic {topic} does not exist, or this user may not describe it."
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
