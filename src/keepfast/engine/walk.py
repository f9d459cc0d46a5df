"""The worker's side of a run: call the handler for each record until one fails or the loop says stop."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable

from keepfast.core.records import Message
from keepfast.core.runs import NotBegun, Run
from keepfast.engine.flight_recorder import NO_SLOT, Slot
from keepfast.telemetry.tally import BOUNDS_S, Tally

Call = Callable[[Message, Run], object]
"""Decode the record and call the user's function; raises what they raise."""

SHORTEST_S = BOUNDS_S[0]
"""Most handlings are above it, but those below it are the ones that cannot afford a search."""

AsyncCall = Callable[[Message, Run], Awaitable[object]]


def walk(run: Run, call: Call, tally: Tally, clock: Callable[[], float], slot: Slot = NO_SLOT) -> None:
    """Never raises: whatever comes out of the handler, SystemExit included, becomes the run's failure.

    The few lines stand twice (see `walk_async`): one of them must not await, and both are too hot for a layer in
    between. Only functions that take turns on threads raise NotBegun.
    """
    counts, shortest, done, slow = tally.counts, SHORTEST_S, 0, 0
    call = slot.begin(run, call)
    begun = last = clock()
    try:
        for message in run.messages:
            run.current = done
            if run.stop:
                break
            call(message, run)
            done += 1
            run.done = done
            now = clock()
            if now - last > shortest:
                counts[bisect_left(BOUNDS_S, now - last)] += 1
                slow += 1
            last = now
    except NotBegun:
        pass  # as if `stop` had been seen before the record
    except BaseException as error:  # noqa: BLE001 - a worker's edge: the error becomes an outcome
        run.failure = error
        tally.add(clock() - last, BOUNDS_S)
    slot.end()
    counts[0] += done - slow
    run.elapsed_s = last - begun
    tally.total_s += last - begun


async def walk_async(run: Run, call: AsyncCall, tally: Tally, clock: Callable[[], float], slot: Slot = NO_SLOT) -> None:
    """As `walk`. A CancelledError is a failure like any other here: who cancels a worker has told the loop before."""
    counts, shortest, done, slow = tally.counts, SHORTEST_S, 0, 0
    call = slot.begin(run, call)
    begun = last = clock()
    try:
        for message in run.messages:
            run.current = done
            if run.stop:
                break
            await call(message, run)
            done += 1
            run.done = done
            now = clock()
            if now - last > shortest:
                counts[bisect_left(BOUNDS_S, now - last)] += 1
                slow += 1
            last = now
    except BaseException as error:  # noqa: BLE001 - a worker's edge: the error becomes an outcome
        run.failure = error
        tally.add(clock() - last, BOUNDS_S)
    slot.end()
    counts[0] += done - slow
    run.elapsed_s = last - begun
    tally.total_s += last - begun
