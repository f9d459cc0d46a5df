"""A consumer's loop with its workers: built in the same way for apps and for runners."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from keepfast.core.ports import Source
from keepfast.deadletters.publisher import Publisher
from keepfast.engine.batch_walk import BatchCall
from keepfast.engine.clock import RealClock
from keepfast.engine.crash_guard import ExclusiveGate
from keepfast.engine.flight_recorder import FlightRecorder
from keepfast.engine.lifecycle import LoopThread
from keepfast.engine.loop import Loop
from keepfast.engine.mailbox import QueueMailbox
from keepfast.engine.plan import Plan
from keepfast.engine.status import LetterDepths
from keepfast.engine.walk import Call
from keepfast.engine.workers import CoroutineExecutor, Inline, ThreadExecutor
from keepfast.kafka import KafkaAdmin
from keepfast.telemetry.tracing import Tracing
from keepfast.wiring.cluster import ClusterFacts


@dataclass(frozen=True, slots=True)
class Workers:
    """What calls the handler. `inline` lets the loop's thread call a fast handler itself."""

    executor: ThreadExecutor | CoroutineExecutor
    mailbox: QueueMailbox
    inline: Inline | None = None


def thread_workers(call: Call | BatchCall, plan: Plan, recorder: FlightRecorder | None) -> Workers:
    """Workers for a handler that is no coroutine. They note in `recorder` what they have in hand."""
    mailbox = QueueMailbox()
    executor = ThreadExecutor(call, mailbox, capacity=plan.capacity, name=plan.name, recorder=recorder)
    if isinstance(call, BatchCall):
        return Workers(executor, mailbox)
    return Workers(executor, mailbox, Inline(call, mailbox, executor.tallies, name=plan.name, recorder=recorder))


def loop_thread(
    plan: Plan,
    workers: Workers,
    *,
    source: Source,
    publisher: Publisher,
    cluster: ClusterFacts,
    gate: ExclusiveGate,
    admin: KafkaAdmin | None,
    tracing: Tracing | None,
    recorder: FlightRecorder | None,
) -> LoopThread:
    """The loop in its thread, not started. Without `admin` (a client that the user made) topic ids, the ends of
    partitions that are not fetched and the depth of dead-letter topics are unknown.
    """
    loop = Loop(
        plan,
        source=source,
        executor=workers.executor,
        mailbox=workers.mailbox,
        publisher=publisher,
        clock=RealClock(),
        random=Random(),
        inline=workers.inline,
        gate=gate,
        topic_ids=admin if cluster.tells_ids else None,
        recorder=recorder,
        tracing=tracing,
        ask_ends=admin.ask_ends if admin is not None else None,
        letters=LetterDepths(admin.ask_depths, cluster.letters_of(plan.dead_letter_topics)) if admin else None,
    )
    return LoopThread(loop, workers.mailbox, workers.inline, tallies=workers.executor.tallies)
