"""From a user's function that takes a list to what a worker calls for a batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from keepfast.core.policies import Order
from keepfast.core.ports import Sink
from keepfast.core.records import Message
from keepfast.core.runs import Run, lane_of
from keepfast.decode.annotation import decoder_for, element_of
from keepfast.decode.signature import HandlerShape, positional
from keepfast.engine.batch_walk import AsyncBatchCall, BatchCall, Decode
from keepfast.engine.context import Context
from keepfast.engine.handler import refuse_awaitable, refuse_sensitive, wait, wait_async
from keepfast.redact.sensitive import CardNumbers

ContextOf = Callable[[Message, Run], Context]


class BatchContext(Sequence[Context]):
    """One attempt at one batch: a `Context` for each record, in the order of the list. Valid while the handler runs."""

    __slots__ = ("_context_of", "_made", "_messages", "_run", "attempt", "group", "logger")

    def __init__(
        self, messages: Sequence[Message], run: Run, context_of: ContextOf, *, group: str, logger: logging.Logger
    ) -> None:
        self._messages = messages
        self._run = run
        self._context_of = context_of
        self._made: dict[int, Context] = {}
        self.attempt = run.attempt
        self.group = group
        self.logger = logger

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> Context: ...
    @overload
    def __getitem__(self, index: slice) -> list[Context]: ...
    def __getitem__(self, index: int | slice) -> Context | list[Context]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if at not in self._made:
            self._made[at] = self._context_of(self._messages[at], self._run)
        return self._made[at]

    def send(
        self,
        topic: str,
        value: Any,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Produce a record, as `Context.send` does; no record of the batch counts as finished before it is
        acknowledged. The same holds for what is sent by the context of one record.
        """
        self[0].send(topic, value, key, headers)

    @property
    def abandoned(self) -> bool:
        """Whether the call has timed out, as `Context.abandoned`."""
        return self._run.abandoned


class BatchHandler:
    """A function that takes a list, with everything known about it. Made before the consumer starts; raises
    ConfigError.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        shape: HandlerShape,
        *,
        order: Order,
        tombstones: Any,
        group: str,
        sensitive: CardNumbers | None = None,
    ) -> None:
        self.shape = shape
        self._function = positional(function, shape)
        element = element_of(shape.annotation, where=shape.where)
        self._decode = _decode(decoder_for(element, tombstones=tombstones, where=shape.where), sensitive)
        self._lane_of = lane_of(order)
        self._group = group
        self._logger = logging.getLogger(f"keepfast.handler.{shape.name}")

    def call(self, sink: Sink) -> BatchCall:
        """What a thread does for each batch of a `def` handler."""
        function, context_for = self._function, self._context_for(sink)

        def call_plain(values: list[Any], messages: Sequence[Message], run: Run) -> None:  # noqa: ARG001 - one shape
            refuse_awaitable(function(values))

        def call_with_context(values: list[Any], messages: Sequence[Message], run: Run) -> None:
            context = context_for(messages, run)
            try:
                refuse_awaitable(function(values, context))
            except BaseException as error:
                if run.sends is not None:
                    wait(run, error)
                raise
            if run.sends is not None:
                wait(run)

        return BatchCall(self._decode, call_plain if self.shape.context is None else call_with_context, self._lane_of)

    def call_async(self, sink: Sink) -> AsyncBatchCall:
        """What a worker coroutine does for each batch of an `async def` handler."""
        function, context_for = self._function, self._context_for(sink)

        async def call_plain(values: list[Any], messages: Sequence[Message], run: Run) -> None:  # noqa: ARG001 - one shape
            await function(values)

        async def call_with_context(values: list[Any], messages: Sequence[Message], run: Run) -> None:
            context = context_for(messages, run)
            try:
                await function(values, context)
            except BaseException as error:
                if run.sends is not None:
                    await wait_async(run, error)
                raise
            if run.sends is not None:
                await wait_async(run)

        return AsyncBatchCall(
            self._decode, call_plain if self.shape.context is None else call_with_context, self._lane_of
        )

    def _context_for(self, sink: Sink) -> Callable[[Sequence[Message], Run], BatchContext]:
        group, logger = self._group, self._logger

        def context_of(message: Message, run: Run) -> Context:
            return Context(message, run, group=group, logger=logger, sink=sink)

        def context_for(messages: Sequence[Message], run: Run) -> BatchContext:
            run.sends = None
            return BatchContext(messages, run, context_of, group=group, logger=logger)

        return context_for


def _decode(decode: Callable[[bytes | None], Any], sensitive: CardNumbers | None) -> Decode:
    if sensitive is None:
        return lambda message: decode(message.value())

    def decode_scanned(message: Message) -> Any:
        refuse_sensitive(sensitive, message)
        return decode(message.value())

    return decode_scanned
