"""Handlers that take too long, without a loop."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from keepfast.core.batches import Batch
from keepfast.core.lanes import Lanes, lanes_for
from keepfast.core.ports import Executor
from keepfast.core.records import TopicPartition
from keepfast.core.runs import InFlight, Partition, Run
from keepfast.core.sizing import Sizer
from keepfast.core.timeouts import TimeoutPolicy
from keepfast.decode.signature import inspect_handler
from keepfast.engine.calls import AsyncCall, AsyncRecordCall, Call, Handle, Handler, RecordCall
from keepfast.engine.commits import Committer
from keepfast.engine.context import Context
from keepfast.engine.events import Events
from keepfast.engine.mailbox import QueueMailbox
from keepfast.engine.plan import Plan
from keepfast.engine.timeouts import Overdue
from keepfast.engine.workers import CoroutineExecutor, EventLoopThread, ThreadExecutor
from keepfast.telemetry.event_log import EventLog
from tests.support.fakes import ManualClock
from tests.support.messages import message
from tests.support.waiting import wait_until

TICK_S = 0.02


class Bench:
    """A loop reduced to what handlers that take too long need: lanes, workers, a mailbox and the watch.

    Workers are real; the loop's clock is set by hand, so that a worker which gets no processor does not take too long.
    """

    def __init__(self, executor: Executor, mailbox: QueueMailbox, policy: TimeoutPolicy) -> None:
        self.lanes: Lanes = lanes_for("partition")
        self.executor = executor
        self.mailbox = mailbox
        self.back: list[Run] = []
        plan = Plan(name="c", group="g", topics=("t",), timeout=policy)
        events = Events(plan.name, plan.group, (EventLog(),))
        self.out = InFlight()
        self.touched: list[Partition] = []
        self.overdue = Overdue(
            plan,
            executor,
            self.lanes,
            cast(Committer, SimpleNamespace(mark_dirty=self.touched.append)),
            in_flight=self.out,
            mailbox=mailbox,
            sizer=Sizer(capacity=100, consecutive=True, one_by_one=True, may_inline=False),
            returned=lambda run, _: self.back.append(run),
            events=events,
        )
        self.late: list[Run] = []
        self.clock = ManualClock()
        self.turns = 0
        self._offset = 0

    def start(self, records: int = 1, runs: int = 1) -> list[Run]:
        made = []
        for _ in range(runs):
            partition = Partition(TopicPartition("t", self._offset), epoch=1, start=0)  # a lane of its own
            partition.feed([message(offset=self._offset + one) for one in range(records)])
            self._offset += records
            self.lanes.ready(partition)
            [run] = self.lanes.take(1, records)
            made.append(run)
        self.out.start(made, self.clock.now)
        self.executor.submit(made, len(self.out))
        return made

    def start_batch(self, records: int) -> Batch:
        partition = Partition(TopicPartition("t", 0), epoch=1, start=0)
        partition.feed([message(offset=offset) for offset in range(records)])
        self.lanes.ready(partition)
        batch = Batch(self.lanes.take(1, records))
        batch.muster(self.clock.now)
        self.out.start([batch], self.clock.now)
        self.executor.submit([batch], 1)
        return batch

    def turn(self, pass_s: float = 0.0) -> None:
        """Take back what workers are done with, let so much time pass, and look."""
        for run in self.mailbox.collect(0.005):
            if run.abandoned:
                self.overdue.came_back(run, self.clock.now)
                self.late.append(run)
            else:
                self.out.back(run)
                self.back.append(run)
        self.clock.now += pass_s
        self.overdue.step(self.clock.now)
        self.turns += 1

    def turn_until(self, condition: Callable[[], object], what: str) -> None:
        """For what workers do: no time passes for the loop."""
        wait_until(condition, what, between=self.turn)

    def pass_until(self, condition: Callable[[], object], what: str, *, blocked: bool = False) -> None:
        """For what comes with time. Unless it is `blocked`, an event loop turns once before more time passes."""

        def tick() -> None:
            if not blocked:
                wait_until(self._turned, "the event loop turns")
            self.turn(TICK_S)

        wait_until(condition, what, between=tick)

    def turn_for(self, seconds: float) -> None:
        """Let so much time pass: to see that something does not happen."""
        end = self.clock.now + seconds
        self.pass_until(lambda: self.clock.now >= end, f"{seconds:g} s pass")

    def _turned(self) -> bool:
        executor = self.executor
        return not isinstance(executor, CoroutineExecutor) or executor._asked == executor._answered


def handler_of(function: Any) -> Handler:
    shape = inspect_handler(function, context_type=Context)
    return Handler(function, shape, order="partition", tombstones="dead-letter", group="g")


def threads(
    handle: Handle | Call,
    *,
    capacity: int = 4,
    timeout_s: float | None = 0.1,
    **policy: Any,
) -> Bench:
    mailbox = QueueMailbox()
    call = RecordCall(handle) if callable(handle) else handle
    executor = ThreadExecutor(call, mailbox, capacity=capacity, name="test")
    return Bench(executor, mailbox, TimeoutPolicy(timeout_s=timeout_s, **policy))


def coroutines(
    events: EventLoopThread,
    handle: Handle | AsyncCall,
    *,
    capacity: int = 4,
    timeout_s: float | None = 0.1,
    **more: Any,
) -> Bench:
    mailbox = QueueMailbox()
    call = AsyncRecordCall(handle) if callable(handle) else handle
    executor = CoroutineExecutor(call, mailbox, capacity=capacity, events=events)
    return Bench(executor, mailbox, TimeoutPolicy(timeout_s=timeout_s, **more))
