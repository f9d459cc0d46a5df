"""What a handler sees of a record that came back from a retry topic: the original, as if it had never been away."""

from __future__ import annotations

from holdfast.core.errors import Discard
from holdfast.core.records import Message
from holdfast.core.returned import Returned
from holdfast.core.runs import Run
from holdfast.runtime.walk import AsyncCall, Call


def returning(call: Call) -> Call:
    """For consumers that have retry topics."""

    def call_original(message: Message, run: Run) -> object:
        return call(_original(message, run) if isinstance(message, Returned) else message, run)

    return call_original


def returning_async(call: AsyncCall) -> AsyncCall:
    async def call_original(message: Message, run: Run) -> object:
        return await call(_original(message, run) if isinstance(message, Returned) else message, run)

    return call_original


def attempt_of(message: Returned, run: Run) -> int:
    """Which attempt this is, counted from the first one in its own topic; a case knows, a new run does not."""
    return run.attempt if run.case is not None else message.past.failures + 1


def _original(message: Returned, run: Run) -> Message:
    if message.past.foreign:
        raise Discard("it was moved here by another group, whose retry topics have the same name")
    run.attempt = attempt_of(message, run)  # the run is the worker's while it is out, and for one record at a time
    return message.original
