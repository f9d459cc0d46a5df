"""The worker's side of a batch: decode its records, and call the handler once with all that can be handed over."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from keepfast.core.errors import BatchError
from keepfast.core.records import Message
from keepfast.core.runs import Batch, LaneOf, Run, named_in
from keepfast.engine.flight_recorder import NO_SLOT, Slot
from keepfast.engine.walk import walk, walk_async
from keepfast.telemetry.tally import BOUNDS_S, Tally

Clock = Callable[[], float]
Decode = Callable[[Message], Any]
"""The record as the handler wants it; raises what makes it impossible to hand over."""


@dataclass(frozen=True, slots=True)
class BatchCall:
    """What a thread does for a batch: `call` gets the values, their records and the run."""

    decode: Decode
    call: Callable[[list[Any], Sequence[Message], Run], object]
    lane_of: LaneOf

    def one(self, message: Message, run: Run) -> None:
        """A record on its own is a list of one, and an error about the first of it is its own."""
        try:
            self.call([self.decode(message)], (message,), run)
        except BatchError as error:
            own = named_in(error, 1).get(0, error)
            raise own from own.__cause__


@dataclass(frozen=True, slots=True)
class AsyncBatchCall:
    """The same for a coroutine."""

    decode: Decode
    call: Callable[[list[Any], Sequence[Message], Run], Awaitable[object]]
    lane_of: LaneOf

    async def one(self, message: Message, run: Run) -> None:
        try:
            await self.call([self.decode(message)], (message,), run)
        except BatchError as error:
            own = named_in(error, 1).get(0, error)
            raise own from own.__cause__


def walk_batch(run: Run, batch: BatchCall, tally: Tally, clock: Clock, slot: Slot = NO_SLOT) -> None:
    """As `walk`; a run that is no batch is a record on its own."""
    if not isinstance(run, Batch):
        walk(run, batch.one, tally, clock, slot)
        return
    begun = clock()
    slot.begin_batch(run)
    try:
        values, messages = _chosen(run, batch.decode, batch.lane_of)
        if values:
            _note_in_hand(run, slot)
            batch.call(values, messages, run)
            run.succeeded()
    except BaseException as error:  # noqa: BLE001 - a worker's edge: the error becomes an outcome
        run.failure = error
    slot.end()
    _note(run, tally, clock() - begun)


async def walk_batch_async(run: Run, batch: AsyncBatchCall, tally: Tally, clock: Clock, slot: Slot = NO_SLOT) -> None:
    if not isinstance(run, Batch):
        await walk_async(run, batch.one, tally, clock, slot)
        return
    begun = clock()
    slot.begin_batch(run)
    try:
        values, messages = _chosen(run, batch.decode, batch.lane_of)
        if values:
            _note_in_hand(run, slot)
            await batch.call(values, messages, run)
            run.succeeded()
    except BaseException as error:  # noqa: BLE001 - a worker's edge: the error becomes an outcome
        run.failure = error
    slot.end()
    _note(run, tally, clock() - begun)


def _chosen(batch: Batch, decode: Decode, lane_of: LaneOf) -> tuple[list[Any], Sequence[Message]]:
    """What can be handed over; nothing if it must not begin any more."""
    batch.current = 0
    if batch.stopped:
        return [], ()
    if not batch.bad:
        with suppress(BaseException):  # whichever it was: one by one it shows
            return [decode(message) for message in batch.messages], batch.messages
    return _without_bad(batch, decode, lane_of)


def _without_bad(batch: Batch, decode: Decode, lane_of: LaneOf) -> tuple[list[Any], Sequence[Message]]:
    """Leave out what cannot be decoded or was named before, and in each lane what comes behind that: it must wait."""
    values: list[Any] = []
    given: list[int] = []
    blocked: set[Hashable] = set()
    for index, message in enumerate(batch.messages):
        lane = lane_of(message)
        if lane is not None and lane in blocked:
            continue
        if index not in batch.bad:
            try:
                values.append(decode(message))
                given.append(index)
                continue
            except BaseException as error:  # noqa: BLE001 - the error becomes an outcome of this record
                batch.bad[index] = error
        blocked.add(lane)
    batch.given = given
    return values, [batch.messages[index] for index in given]


def _note_in_hand(batch: Batch, slot: Slot) -> None:
    """The handler is about to get the batch. What was left out of it is not in hand any more, should it now kill."""
    if batch.given is not None:
        slot.end()  # in between nothing is: a list that is half overwritten would name others
        slot.begin_batch(batch)


def _note(batch: Batch, tally: Tally, elapsed_s: float) -> None:
    """Each record of a call took its share of it; a call that failed counts once."""
    batch.elapsed_s = elapsed_s
    if batch.done:
        tally.total_s += elapsed_s
        tally.counts[bisect_left(BOUNDS_S, elapsed_s / batch.done)] += batch.done
    elif batch.failure is not None:
        tally.add(elapsed_s, BOUNDS_S)
