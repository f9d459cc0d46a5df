"""What a handler sees of a record that came back from a retry topic: the original, as if it had never been away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import overload

from keepfast.core.errors import Discard
from keepfast.core.records import Message
from keepfast.core.retry_topics import Returned
from keepfast.core.runs import Run
from keepfast.engine.batch_walk import AsyncBatchCall, BatchCall, Decode
from keepfast.engine.walk import AsyncCall, Call


@overload
def returning(call: BatchCall) -> BatchCall: ...
@overload
def returning(call: Call) -> Call: ...
def returning(call: Call | BatchCall) -> Call | BatchCall:
    """For consumers that have retry topics."""
    if isinstance(call, BatchCall):
        inner = call.call
        return replace(
            call,
            decode=_decoding(call.decode),
            call=lambda values, messages, run: inner(values, _originals(messages, run), run),
        )

    def call_original(message: Message, run: Run) -> object:
        return call(_original(message, run) if isinstance(message, Returned) else message, run)

    return call_original


@overload
def returning_async(call: AsyncBatchCall) -> AsyncBatchCall: ...
@overload
def returning_async(call: AsyncCall) -> AsyncCall: ...
def returning_async(call: AsyncCall | AsyncBatchCall) -> AsyncCall | AsyncBatchCall:
    if isinstance(call, AsyncBatchCall):
        inner = call.call
        return replace(
            call,
            decode=_decoding(call.decode),
            call=lambda values, messages, run: inner(values, _originals(messages, run), run),
        )

    async def call_original(message: Message, run: Run) -> object:
        return await call(_original(message, run) if isinstance(message, Returned) else message, run)

    return call_original


def attempt_of(message: Returned, run: Run) -> int:
    """Which attempt this is, counted from the first one in its own topic; a case knows, a new run does not."""
    return run.attempt if run.case is not None else message.past.failures + 1


def _original(message: Returned, run: Run) -> Message:
    original = _of_ours(message)
    run.attempt = attempt_of(message, run)  # the run is the worker's while it is out, and for one record at a time
    return original


def _of_ours(message: Returned) -> Message:
    if message.past.foreign:
        raise Discard("it was moved here by another group, whose retry topics have the same name")
    return message.original


def _decoding(decode: Decode) -> Decode:
    return lambda message: decode(_of_ours(message) if isinstance(message, Returned) else message)


def _originals(messages: Sequence[Message], run: Run) -> list[Message]:
    """Records of a batch share its attempt; one on its own knows better."""
    if len(messages) == 1 and isinstance(messages[0], Returned):
        run.attempt = attempt_of(messages[0], run)
    return [message.original if isinstance(message, Returned) else message for message in messages]
