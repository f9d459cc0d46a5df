"""What an operator orders of a running consumer: pause, resume, release a hold, seek, show its state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final, Literal

from keepfast.core.events import Held, Released
from keepfast.core.records import TopicPartition
from keepfast.core.retry_topics import original
from keepfast.core.runs import FailedRecord, Partition, Run
from keepfast.engine.counts import Labels
from keepfast.engine.guards import BREAKER, STORM
from keepfast.engine.parts import LoopParts
from keepfast.engine.seeks import Seeks, SeekTarget
from keepfast.telemetry.state import CommandDone, ConsumerState, LaneState, Problem, SeekResult

OPERATOR: Final = "operator"
"""The hold that a person puts on a consumer, or on some of its partitions."""
MAX_LANES: Final = 100

Verb = Literal["pause", "resume", "release", "show", "plan_seek", "seek"]
Answer = CommandDone | SeekResult | Problem | tuple[ConsumerState, tuple[LaneState, ...], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlOrder:
    """An operator's order to a loop. `answer` is called once, on the loop's thread: it must not block.

    `topic` and `partition` are what to pause or resume, without them the whole consumer; or what to seek, `to` where.
    `hold` is what to release.
    """

    verb: Verb
    answer: Callable[[Answer], None]
    topic: str | None = None
    partition: int | None = None
    hold: str = ""
    to: SeekTarget = 0


class Operator:
    """Owner: the loop thread. A pause of single partitions lasts until they are resumed: each new epoch of them begins
    held, after a rebalance as well as after a reset of the position. `look` gives the state as it is now.
    """

    def __init__(self, parts: LoopParts, seeks: Seeks, look: Callable[[float], ConsumerState]) -> None:
        self._parts = parts
        self._seeks = seeks
        self._look = look

    def apply(self, order: ControlOrder, now: float) -> None:
        """Do it, and answer: at once, or when a seek has ended."""
        place = TopicPartition(order.topic or "", order.partition or 0)
        match order.verb:
            case "pause":
                order.answer(self._pause(order))
            case "resume":
                order.answer(self._resume(order))
            case "release":
                order.answer(self._release(order.hold, now))
            case "show":
                order.answer(self._show(now))
            case "plan_seek":
                order.answer(self._seeks.plan(place, order.to))
            case "seek":
                self._seeks.begin(place, order.to, order.answer, now)

    def _pause(self, order: ControlOrder) -> CommandDone | Problem:
        if order.topic is None:
            before = OPERATOR in self._parts.holds
            self._parts.holds.add(OPERATOR)
            for run in self._parts.in_flight:
                self._call_back(run)
            if not before:
                self._emit(Held)
            return CommandDone(
                text="It is paused already." if before else "Paused: what runs finishes its record.",
                changed=int(not before),
            )
        found = self._meant(order)
        for partition in found:
            if OPERATOR not in partition.holds:
                self._parts.ownership.hold(partition.place, OPERATOR)
                self._emit(Held, partition.place)
            for run in list(partition.running):
                self._call_back(run)
        return self._partitions_done(order, found, "Paused")

    def _resume(self, order: ControlOrder) -> CommandDone | Problem:
        if order.topic is None:
            held, whole = self._parts.ownership.held(OPERATOR), OPERATOR in self._parts.holds
            self._parts.holds.discard(OPERATOR)
            self._let_go(held)
            if whole:
                self._emit(Released)
            before = whole or bool(held)
            return CommandDone(text="Resumed." if before else "It was not paused.", changed=int(before))
        found = [partition for partition in self._meant(order) if OPERATOR in partition.holds]
        self._let_go([place for place in self._parts.ownership.held(OPERATOR) if _means(order, place)])
        return self._partitions_done(order, found, "Resumed")

    def _let_go(self, places: list[TopicPartition]) -> None:
        for place in places:
            self._parts.ownership.release(place, OPERATOR)
            partition = self._parts.ownership.get(place)
            if partition is not None:
                self._parts.lanes.ready(partition)
                self._emit(Released, place)

    def _call_back(self, run: Run) -> None:
        """What it has still before it stays here."""
        if run.may_grow:
            run.stop = True
            if run.current >= 0:
                self._parts.lanes.relieve(run)

    def _meant(self, order: ControlOrder) -> list[Partition]:
        return [partition for partition in self._parts.ownership if _means(order, partition.place)]

    def _partitions_done(self, order: ControlOrder, found: list[Partition], what: str) -> CommandDone | Problem:
        if not found:
            which = order.topic if order.partition is None else f"{order.topic}[{order.partition}]"
            state = "is paused here" if what == "Resumed" else "is assigned to this process"
            return Problem(error=f"Nothing of {which} {state}.")
        return CommandDone(text=f"{what}: {', '.join(str(one.place) for one in found)}.", changed=len(found))

    def _release(self, hold: str, now: float) -> CommandDone | Problem:
        if hold not in (BREAKER, STORM):
            return Problem(error=f"Only {BREAKER} and {STORM} can be released; a pause ends by resume.")
        held = hold in self._parts.holds
        self._parts.guards.release(hold, now)
        return CommandDone(
            text=f"Released: {hold}." if held else f"There is no hold named {hold} now.", changed=int(held)
        )

    def _show(self, now: float) -> tuple[ConsumerState, tuple[LaneState, ...], int]:
        parts = self._parts
        running = {run.failed_record for run in parts.in_flight if run.failed_record is not None}
        failed_records = [
            failed_record
            for partition in parts.ownership
            for failed_record in partition.failed_records
            if failed_record not in running
        ]
        runs = [run for run in parts.in_flight if run.messages]  # one that was emptied only waits for its worker
        work: list[Run | FailedRecord] = [*runs, *failed_records, *(batch for batch in parts.lanes.kept if batch.parts)]
        oldest = nsmallest(MAX_LANES, work, key=lambda one: one.begun_at)
        lanes = tuple(self._lane(one, now) for one in oldest)
        return self._look(now), lanes, max(0, len(work) - MAX_LANES)

    def _lane(self, one: Run | FailedRecord, now: float) -> LaneState:
        if isinstance(one, FailedRecord):
            record = original(one.message)
            labels = Labels.of(one)
            return LaneState(
                state="settling" if one in self._parts.failures.settling else "waiting",
                topic=record.topic(),
                partition=record.partition(),
                offset=record.offset(),
                attempt=one.failures + 1,
                for_s=now - one.begun_at,
                error_type=labels.error_type,
                code=labels.code,
            )
        batch = one.as_batch() if one not in self._parts.in_flight else None
        if batch is not None:
            first = original(batch.parts[0].messages[0])
            return LaneState(
                state="waiting",
                topic=first.topic(),
                partition=first.partition(),
                offset=first.offset(),
                records=batch.left,
                attempt=batch.failures + 1,
                for_s=now - batch.begun_at,
                code=batch.found.code if batch.found else "",
            )
        record = original(one.messages[min(max(0, one.current), len(one.messages) - 1)])
        return LaneState(
            state="running",
            topic=record.topic(),
            partition=record.partition(),
            offset=record.offset(),
            records=max(1, len(one.messages) - one.done),
            attempt=one.attempt,
            for_s=now - one.begun_at,
        )

    def _emit(self, event: type[Held | Released], place: TopicPartition | None = None) -> None:
        events, where = self._parts.events, {} if place is None else place._asdict()
        events.emit(event(*events.source, hold=OPERATOR, by="operator", **where))


def _means(order: ControlOrder, place: TopicPartition) -> bool:
    return place.topic == order.topic and order.partition in (None, place.partition)
