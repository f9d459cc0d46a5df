"""One attempt of a consumer at one record, as `keepfast dlq try` makes it.

Lifespan, middleware, providers, decoding and handler are those of the app. Nothing reaches Kafka: what is sent is
captured, and no offset is committed. The transaction of an inbox is rolled back. All other effects are real.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from keepfast.app.application import App
from keepfast.app.assembly import decoding_of
from keepfast.app.inboxes import AppInboxes
from keepfast.app.instance import AppInstance, StartOptions
from keepfast.app.options import Consumer
from keepfast.app.schemas import AppSchemas
from keepfast.app.sends import AppSends
from keepfast.classify.classification import classify
from keepfast.core.errors import HandlerTimeout
from keepfast.core.ports import Delivery
from keepfast.core.records import Outgoing, Receipt, Record, RecordMessage, TopicPartition
from keepfast.core.runs import Attempt, FailedRecord, Partition, Run
from keepfast.core.verdicts import Classification, DeadLetter
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.publisher import Publisher
from keepfast.engine.inbox import ConsumerInbox
from keepfast.engine.plan import Plan
from keepfast.engine.workers import HandlerLoop
from keepfast.settings import Settings
from keepfast.telemetry.metrics import Tally
from keepfast.wiring.cluster import ClusterFacts
from keepfast.wiring.consumers import ConsumerSpec, plan_of

NO_CLUSTER = ClusterFacts(topic_ids={}, partition_counts={}, letter_partitions={}, tiers={})
CANCEL_S = 1.0


@dataclass(frozen=True, slots=True)
class TrialFailure:
    """Why an attempt failed: the error, how the rules classify it, and the letter that it would become."""

    error: BaseException
    found: Classification
    letter: Letter


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """What became of an attempt. `filtered`: the consumer's filter does not let the record pass; `processed-before`:
    its inbox has it, so the handler was not called.
    """

    consumer: str
    handler: str
    outcome: Literal["succeeded", "failed", "filtered", "processed-before"]
    took_s: float
    sent: tuple[Outgoing, ...] = ()
    rolled_back: bool = False
    """Whether there was a transaction of an inbox."""
    failure: TrialFailure | None = None


def try_record(
    app: App, consumer: str, record: Record, *, settings: Settings, topic_id: str = "", timeout_s: float
) -> TrialResult:
    """Let a consumer of the app handle this record once. Blocks: any thread but an event loop's. After `timeout_s` it
    has failed, and its handler is left alone. Raises ConfigError or StartError.
    """
    [chosen] = app.chosen([consumer])
    trial = _Trial(app, chosen, settings)
    with app.held_by(trial):
        return trial.attempt(record, topic_id, timeout_s)


class _Trial(AppInstance):
    """An app that is started for one attempt."""

    def __init__(self, app: App, consumer: Consumer, settings: Settings) -> None:
        lifespan = None if app.lifespan is None else partial(app.lifespan, app)
        super().__init__(settings, [consumer], schemas=app.schemas, lifespan=lifespan, hooks=(), options=StartOptions())
        self.schemas = AppSchemas(settings, app.schemas, [decoding_of(consumer, settings)], at_once=True)
        self._sink = _CapturingSink()
        self.inboxes: _TrialInboxes = _TrialInboxes(settings, self._events, self._sink)
        self.sends = AppSends(self._sink)

    def attempt(self, record: Record, topic_id: str, timeout_s: float) -> TrialResult:
        self._check()
        with ExitStack() as undo:
            [spec] = self._prepare(undo)
            plan = plan_of(spec, self._settings, NO_CLUSTER)
            message = RecordMessage(record)
            partition = Partition(
                TopicPartition(record.topic, record.partition), epoch=0, start=record.offset, topic_id=topic_id
            )
            run = Run(partition, [message], (0,), {})
            self._walk(spec, plan, run, timeout_s)
            failure = None if run.failure is None else _failure(plan, run, run.failure)
            return TrialResult(
                consumer=plan.name,
                handler=plan.handler,
                outcome=_outcome(run),
                took_s=run.failed_s or run.elapsed_s,
                sent=(*self._sink.sent, *(one for _, one in run.outputs)),
                rolled_back=self.inboxes.rolled_back,
                failure=failure,
            )

    def _walk(self, spec: ConsumerSpec, plan: Plan, run: Run, timeout_s: float) -> None:
        call: Any = spec.call(plan, self._sink, None)
        begun = time.perf_counter()
        done = (
            _on_the_loop(call.walk(run, Tally(), time.perf_counter), self._events, timeout_s)
            if spec.is_async
            else _on_a_thread(partial(call.walk, run, Tally(), time.perf_counter), timeout_s)
        )
        if not done:
            run.abandoned = True
            run.failure, run.failed_s = HandlerTimeout(timeout_s), time.perf_counter() - begun


def _on_a_thread(walk: Any, timeout_s: float) -> bool:
    """Whether it ended in time."""
    thread = threading.Thread(target=walk, name="keepfast-trial", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return not thread.is_alive()


def _on_the_loop(walk: Coroutine[Any, Any, None], events: HandlerLoop, timeout_s: float) -> bool:
    """Whether it ended in time; if not, it is cancelled."""
    walking = asyncio.run_coroutine_threadsafe(walk, events.start(lambda _: None))
    if concurrent.futures.wait([walking], timeout_s).done:
        return True
    walking.cancel()
    concurrent.futures.wait([walking], CANCEL_S)
    return False


def _outcome(run: Run) -> Literal["succeeded", "failed", "filtered", "processed-before"]:
    if run.failure is not None:
        return "failed"
    return "filtered" if run.filtered else "processed-before" if run.skipped else "succeeded"


def _failure(plan: Plan, run: Run, error: BaseException) -> TrialFailure:
    found = classify(error, plan.rules, unknown=plan.unknown_errors, not_found=plan.not_found, now_wall=time.time())
    failed_record = FailedRecord(run.partition, 0, run.messages[0], (), 0.0)
    failed_record.note(Attempt(time.time(), type(error).__name__))
    publisher = Publisher(
        _CapturingSink(),
        topics={},
        partitions={},
        group=plan.group,
        handler=plan.handler,
        app_version=plan.app_version,
        masking=plan.masking,
    )
    letter = publisher.compose(failed_record, error, DeadLetter("", found.code), classification=found.kind)
    return TrialFailure(error, found, letter)


class _CapturingSink:
    """Implements `core.ports.Sink`: everything is acknowledged, and nothing is sent. Any thread."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        self.sent.append(outgoing)
        delivered(Receipt(outgoing.topic, outgoing.partition or 0, len(self.sent) - 1))

    def close(self, timeout_s: float) -> None:
        """Nothing is under way."""


class _TrialInboxes(AppInboxes):
    """Inboxes whose transactions are rolled back when the handler has succeeded, too."""

    def __init__(self, settings: Settings, events: HandlerLoop, sink: _CapturingSink) -> None:
        super().__init__(settings, events)
        self._sink = sink
        self.rolled_back = False

    def of(self, consumer: Consumer, group: str, resources: Any) -> ConsumerInbox | None:
        found = super().of(consumer, group, resources)
        return None if found is None else replace(found, inbox=_RolledBackInbox(found, self))

    def publish(self, outgoing: Sequence[Outgoing]) -> None:
        self._sink.sent += outgoing


class _RolledBackInbox:
    """The inbox of a consumer: its `commit` rolls back, and its `publish` captures. Async where that is."""

    def __init__(self, stage: ConsumerInbox, inboxes: _TrialInboxes) -> None:
        self._inbox: Any = stage.inbox
        self._is_async = stage.is_async
        self._inboxes = inboxes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inbox, name)

    def commit(self, transaction: Any) -> Any:
        return self.rollback(transaction)

    def rollback(self, transaction: Any) -> Any:
        self._inboxes.rolled_back = True
        return self._inbox.rollback(transaction)

    def publish(self, transaction: Any, outgoing: Sequence[Outgoing]) -> Any:  # noqa: ARG002 - as the inbox's
        self._inboxes.publish(outgoing)
        return _nothing() if self._is_async else None


async def _nothing() -> None:
    """For what is awaited."""
