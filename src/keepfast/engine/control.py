"""What an operator orders of a running consumer: pause, resume, release a hold, seek, dead-letter a record, show it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final, Literal

import msgspec

from keepfast.core.batches import as_batch
from keepfast.core.events import Held, Released
from keepfast.core.records import Message, TopicPartition
from keepfast.core.retry_topics import original
from keepfast.core.runs import FailedRecord, Partition, Run
from keepfast.engine.counts import Labels
from keepfast.engine.guards import BREAKER, STORM
from keepfast.engine.parts import LoopParts
from keepfast.engine.seeks import Seeks, SeekTarget
from keepfast.telemetry.state import CommandDone, ConsumerState, LaneState, Problem, SeekResult

OPERATOR: Final = "operator"
"""The hold that a person puts on a consumer, or on some of its partitions."""
MAX_LANES, MAX_STACKS = 100, 10
"""In one answer."""

OF_PARTITIONS: Final = frozenset({"pause", "resume", "plan_seek", "seek"})
QUEUE_REFUSES: Final = (
    "It is a queue: the broker gives its records to any member, so it has no positions, and no partition of it can be"
    " paused, resumed or sought; pause the whole consumer."
)

Verb = Literal["pause", "resume", "release", "show", "plan_seek", "seek", "dead_letter"]
Answer = CommandDone | SeekResult | Problem | tuple[ConsumerState, tuple[LaneState, ...], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlOrder:
    """An operator's order to a loop. `answer` is called once, on the loop's thread: it must not block.

    `topic` and `partition` are what to pause or resume, without them the whole consumer; or what to seek, `to` where;
    with `offset`, the record to dead-letter; with `unless_running`, only if it waits or its handler is stuck. `hold` is
    what to release. `by`: who ordered it, and `why`.
    """

    verb: Verb
    answer: Callable[[Answer], None]
    topic: str | None = None
    partition: int | None = None
    hold: str = ""
    to: SeekTarget = 0
    offset: int = -1
    unless_running: bool = False
    by: str = "operator"
    why: str = ""


class Operator:
    """Owner: the loop thread. A pause of single partitions lasts until they are resumed: each new epoch of them begins
    held, after a rebalance as well as after a reset of the position. `look` gives the state as it is now.
    """

    def __init__(self, parts: LoopParts, seeks: Seeks, look: Callable[[float], ConsumerState]) -> None:
        self._parts = parts
        self._seeks = seeks
        self._look = look
        self._paused: dict[TopicPartition | None, tuple[str, float]] = {}  # by whom, since when; None: all of it

    def apply(self, order: ControlOrder, now: float) -> None:
        """Do it, and answer: at once, or when a seek has ended."""
        place = TopicPartition(order.topic or "", order.partition or 0)
        if self._parts.plan.lock_s is not None and order.topic is not None and order.verb in OF_PARTITIONS:
            order.answer(Problem(error=QUEUE_REFUSES))
            return
        match order.verb:
            case "pause":
                order.answer(self._pause(order, now))
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
            case "dead_letter":
                order.answer(self._dead_letter(place, order, now))

    def _pause(self, order: ControlOrder, now: float) -> CommandDone | Problem:
        if order.topic is None:
            before = OPERATOR in self._parts.holds
            self._parts.holds.add(OPERATOR)
            for run in self._parts.in_flight:
                self._call_back(run)
            if not before:
                self._paused[None] = order.by, now
                self._emit(Held, by=order.by)
            return CommandDone(
                text="It is paused already." if before else "Paused: what runs finishes its record.",
                changed=int(not before),
            )
        found = self._meant(order)
        for partition in found:
            if OPERATOR not in partition.holds:
                self._parts.ownership.hold(partition.place, OPERATOR, now)
                self._paused[partition.place] = order.by, now
                self._emit(Held, partition.place, order.by)
            for run in list(partition.running):
                self._call_back(run)
        return self._partitions_done(order, found, "Paused")

    def _resume(self, order: ControlOrder) -> CommandDone | Problem:
        if order.topic is None:
            held, whole = self._parts.ownership.held(OPERATOR), OPERATOR in self._parts.holds
            self._parts.holds.discard(OPERATOR)
            self._paused.pop(None, None)
            self._let_go(held, order.by)
            if whole:
                self._emit(Released, by=order.by)
            before = whole or bool(held)
            return CommandDone(text="Resumed." if before else "It was not paused.", changed=int(before))
        found = [partition for partition in self._meant(order) if OPERATOR in partition.holds]
        self._let_go([place for place in self._parts.ownership.held(OPERATOR) if _means(order, place)], order.by)
        return self._partitions_done(order, found, "Resumed")

    def _let_go(self, places: list[TopicPartition], by: str) -> None:
        for place in places:
            self._paused.pop(place, None)
            self._parts.ownership.release(place, OPERATOR)
            partition = self._parts.ownership.get(place)
            if partition is not None:
                self._parts.lanes.ready(partition)
                self._emit(Released, place, by)

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

    def _dead_letter(self, place: TopicPartition, order: ControlOrder, now: float) -> CommandDone | Problem:
        """The record must be in flight: being handled, or waiting for its next attempt."""
        offset = order.offset
        name = f"{place} offset {offset}"
        parts, problem = (
            self._parts,
            f"{name} is not in flight here: no handler has it, and it does not wait for a retry.",
        )
        run = next((run for run in parts.in_flight if _at(run, place, offset)), None)
        if run is not None and as_batch(run) is not None:
            problem = f"{name} is in a batch: pause the consumer, or wait until the record is tried alone."
        elif run is not None and order.unless_running and not parts.overdue.reports.has(run):
            problem = f"{name} was not dead-lettered: its handler runs now and is not stuck. Look again."
        elif run is not None:
            why = parts.overdue.dead_letter(run, order.by, order.why, now)
            problem = f"{name} was not dead-lettered: {why}." if why else ""
        else:
            failed_record = next((one for one in self._waiting() if _is(one.message, place, offset)), None)
            if failed_record is not None and failed_record in parts.failures.settling:
                problem = f"{name} is being moved or dead-lettered already."
            elif failed_record is not None:
                parts.failures.give_up(failed_record, order.by, order.why, now)
                problem = ""
        return Problem(error=problem) if problem else CommandDone(text=f"Dead-lettered: {name}.", changed=1)

    def _waiting(self) -> list[FailedRecord]:
        """Failed records that no handler has now."""
        running = {run.failed_record for run in self._parts.in_flight if run.failed_record is not None}
        return [one for partition in self._parts.ownership for one in partition.failed_records if one not in running]

    def _show(self, now: float) -> tuple[ConsumerState, tuple[LaneState, ...], int]:
        parts, failed_records = self._parts, self._waiting()
        runs = [run for run in parts.in_flight if run.messages]  # one that was emptied only waits for its worker
        work: list[Run | FailedRecord] = [*runs, *failed_records, *(batch for batch in parts.lanes.kept if batch.parts)]
        oldest = nsmallest(MAX_LANES, work, key=lambda one: one.begun_at)
        lanes = tuple(self._lane(one, now, stack=number < MAX_STACKS) for number, one in enumerate(oldest))
        return self._with_names(self._look(now), now), lanes, max(0, len(work) - MAX_LANES)

    def _with_names(self, state: ConsumerState, now: float) -> ConsumerState:
        """With who paused what."""
        if not self._paused:
            return state
        by, _ = self._paused.get(None, ("", 0.0))
        held = {place: (name, now - since) for place, (name, since) in self._paused.items() if place is not None}
        partitions = [
            msgspec.structs.replace(one, held_by=name, held_s=for_s) if name else one
            for one in state.partitions
            for name, for_s in [held.get(TopicPartition(one.topic, one.partition), ("", 0.0))]
        ]
        holds = [msgspec.structs.replace(one, by=by) if one.name == OPERATOR else one for one in state.holds]
        return msgspec.structs.replace(state, partitions=tuple(partitions), holds=tuple(holds))

    def _lane(self, one: Run | FailedRecord, now: float, *, stack: bool) -> LaneState:
        if isinstance(one, FailedRecord):
            record = original(one.message)
            labels = Labels.of(one)
            last = one.attempts[-1] if one.attempts else None
            return LaneState(
                state="settling" if one in self._parts.failures.settling else "waiting",
                topic=record.topic(),
                partition=record.partition(),
                offset=record.offset(),
                attempt=one.failures + 1,
                for_s=now - one.begun_at,
                error_type=labels.error_type,
                code=labels.code,
                error=last.message if last else "",
                raised_at=last.raised_at if last else "",
                key_hash=key_hash(record.key()),
                queued=self._parts.lanes.queued_behind(one, record.key()),
            )
        batch = as_batch(one) if one not in self._parts.in_flight else None
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
        attempts = one.failed_record.attempts if one.failed_record is not None else []
        return LaneState(
            state="running",
            topic=record.topic(),
            partition=record.partition(),
            offset=record.offset(),
            records=max(1, len(one.messages) - one.done),
            attempt=one.attempt,
            for_s=now - one.begun_at,
            stuck=self._parts.overdue.reports.has(one),
            error_type=attempts[-1].error_type if attempts else "",
            error=attempts[-1].message if attempts else "",
            raised_at=attempts[-1].raised_at if attempts else "",
            key_hash=key_hash(record.key()),
            queued=self._parts.lanes.queued_behind(one, record.key()),
            stack=self._parts.overdue.stack_of(one) if stack else (),
        )

    def _emit(self, event: type[Held | Released], place: TopicPartition | None = None, by: str = "operator") -> None:
        events, where = self._parts.events, {} if place is None else place._asdict()
        events.emit(event(*events.source, hold=OPERATOR, by=by, **where))


def key_hash(key: bytes | None) -> str:
    """What names a key without showing it, as the desk does; empty for a record without a key."""
    return "" if key is None else hashlib.blake2b(key, digest_size=6).hexdigest()


def _at(run: Run, place: TopicPartition, offset: int) -> bool:
    """Whether its handler is at this record."""
    return 0 <= run.current < len(run.messages) and _is(run.messages[run.current], place, offset)


def _is(message: Message, place: TopicPartition, offset: int) -> bool:
    record = original(message)
    return record.offset() == offset and record.partition() == place.partition and record.topic() == place.topic


def _means(order: ControlOrder, place: TopicPartition) -> bool:
    return place.topic == order.topic and order.partition in (None, place.partition)
