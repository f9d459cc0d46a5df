"""One consumer: its plan, its workers and its loop. Apps, runners, the test harness and the simulator build it here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from keepfast.classify.classification import BUILT_IN, RuleBook
from keepfast.core.guards import CallSpacing
from keepfast.core.names import TopicParts
from keepfast.core.ports import Sink, Source
from keepfast.core.records import Message, TopicPartition
from keepfast.core.retry_topics import Tiers
from keepfast.core.schemas import SchemaRef
from keepfast.deadletters.publisher import Publisher
from keepfast.engine.calls import AsyncCall, Call
from keepfast.engine.flight_recorder import FlightRecorder
from keepfast.engine.loop import Loop
from keepfast.engine.mailbox import QueueMailbox
from keepfast.engine.parts import Ports, Workers
from keepfast.engine.plan import Plan
from keepfast.engine.renewals import renewed_every_s
from keepfast.engine.subscription import growing
from keepfast.engine.workers import CoroutineExecutor, HandlerLoop, Inline, ThreadExecutor
from keepfast.settings import ConsumerSettings, Settings
from keepfast.telemetry.event_log import RecordLog
from keepfast.telemetry.tracing import Tracing
from keepfast.wiring.cluster import ClusterFacts

AnyCall = Call | AsyncCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """One consumer as an app, a runner or a test describes it, before there is a cluster, a client or a worker.

    `call` composes what workers call; it is sync or async as `is_async` says. `capacity` is for settings without
    `concurrency`. `publisher` replaces letters of ours, `source` the client that settings describe. `schema_of` says
    which registered schema a record was written with, where topics have schemas; it never blocks. `letter_group`: the
    group that letters name, if it is another. `ends`: of each partition that is read, where reading ends.
    """

    settings: ConsumerSettings
    handler: str
    call: Callable[[Plan, Sink, Tracing | None], AnyCall]
    capacity: int
    is_async: bool = False
    takes_lists: bool = False
    schema_of: Callable[[Message], SchemaRef | None] | None = None
    spacing: CallSpacing | None = None
    record_log: RecordLog | None = None
    publisher: Callable[[Sink], Publisher] | None = None
    source: Source | None = None
    letter_group: str = ""
    ends: Mapping[TopicPartition, int] | None = None

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def workers(self) -> int:
        """How many records may be processed at the same time."""
        return self.settings.concurrency or self.capacity

    @property
    def needs(self) -> ConsumerSettings:
        """What must be there before it starts: no topic for letters, where only the user's publisher knows it."""
        return self.settings if self.publisher is None else replace(self.settings, names={})


def plan_of(spec: ConsumerSpec, settings: Settings, cluster: ClusterFacts) -> Plan:
    """From a spec, and what the cluster answered, to a plan."""
    own = cluster.consumers.get(spec.name, spec.settings)
    return Plan(
        name=own.name,
        group=own.group,
        topics=own.topics,
        pattern=own.pattern,
        matched=frozenset(own.topics).difference(spec.settings.topics),
        appeared=cluster.appeared.get(own.name, frozenset()),
        refused=cluster.refused.get(own.name, {}),
        refresh_s=own.topics_refresh_s,
        order=own.order,
        capacity=spec.workers,
        commit=own.commit,
        retry=own.retry,
        retry_by_error=own.retries,
        schema_of=spec.schema_of,
        spacing=spec.spacing,
        record_log=spec.record_log,
        timeout=own.timeout,
        rules=RuleBook(own.rules) if own.rules else BUILT_IN,
        breaker=own.breaker,
        storm_guard=own.storm_guard,
        rate=own.rate,
        unknown_errors=own.unknown_errors,
        not_found=own.not_found,
        batch=own.batch,
        exactly_once=own.exactly_once,
        atomic=own.atomic,
        buffer=own.buffer,
        sweep=own.max_poll_records,
        reset=own.auto_offset_reset,
        renewed_every_s=renewed_every_s(cluster.offsets_retention_s),
        revoke_timeout_s=own.timings.revoke_timeout_s,
        lock_s=own.lock_s if own.order == "queue" else None,
        max_deliveries=None if own.order == "queue" else own.max_deliveries or None,
        dead_letter_topics=own.dead_letter_topics,
        letter_partitions=cluster.letters_of(own.dead_letter_topics),
        letter_format=own.dead_letter.format,
        letter_group=spec.letter_group or own.group,
        masking=settings.masking.rules,
        topic_ids=cluster.topic_ids,
        has_inbox=own.inbox_days is not None,
        partition_counts=cluster.partition_counts,
        names={topic: TopicParts(names.domain, names.entity) for topic, names in own.names.items()},
        tiers=cluster.tiers.get(own.name) or Tiers(group=own.group, delays_s=own.retry_topics.delays_s),
        desk_topic=settings.desk.topic,
        group_instance_id=own.group_instance_id,
        named_by_supervisor=own.named_by_supervisor,
        handler=spec.handler,
        app_version=settings.app.version,
    )


def thread_workers(call: Call, plan: Plan, recorder: FlightRecorder | None) -> Workers:
    """Workers for a handler that is no coroutine. They note in `recorder` what they have in flight."""
    mailbox = QueueMailbox()
    executor = ThreadExecutor(call, mailbox, capacity=plan.capacity, name=plan.name, recorder=recorder)
    if plan.batch is not None:
        return Workers(executor, mailbox, tallies=lambda: executor.tallies)
    inline = Inline(call, mailbox, name=plan.name, recorder=recorder)
    return Workers(executor, mailbox, inline, lambda: [*executor.tallies, *inline.tallies])


def coroutine_workers(call: AsyncCall, plan: Plan, events: HandlerLoop, recorder: FlightRecorder | None) -> Workers:
    """Workers for a coroutine function, on this event loop."""
    mailbox = QueueMailbox()
    executor = CoroutineExecutor(call, mailbox, capacity=plan.capacity, events=events, recorder=recorder)
    return Workers(executor, mailbox, tallies=lambda: executor.tallies)


def build_loop(plan: Plan, workers: Workers, ports: Ports, publisher: Publisher | None = None) -> Loop:
    """The loop of a consumer, not started. `publisher` replaces the one that publishes letters as the plan says."""
    plan = growing(plan)
    return Loop(plan, workers, ports, publisher or _publisher(plan, ports))


def _publisher(plan: Plan, ports: Ports) -> Publisher:
    return Publisher(
        ports.sink,
        topics=plan.dead_letter_topics,
        partitions=plan.letter_partitions,
        group=plan.letter_group or plan.group,
        handler=plan.handler,
        app_version=plan.app_version,
        form=plan.letter_format,
        masking=plan.masking,
        spool=ports.spool,
        missing=ports.letter_topic_missing,
        schema_of=plan.schema_of,
    )
