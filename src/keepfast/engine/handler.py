"""From a user's function to what a worker calls: decode, context, call, and wait for what was sent."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any, NoReturn

from keepfast.core.errors import Halt, SinkError
from keepfast.core.ports import Sink
from keepfast.core.records import Message, read_headers
from keepfast.core.runs import Run
from keepfast.decode.annotation import decoder_for, takes_bytes
from keepfast.decode.signature import HandlerShape, positional
from keepfast.engine.context import Context, HandlerSends
from keepfast.engine.walk import AsyncCall, Call
from keepfast.redact.sensitive import CardNumbers, SensitiveData

Decode = Callable[[bytes | None], Any]


class Handler:
    """A user's function with everything known about it. Made before the consumer starts; raises ConfigError.

    With `sensitive`, every record is looked through before anything of it is decoded or handed on.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        shape: HandlerShape,
        *,
        tombstones: Any,
        group: str,
        sensitive: CardNumbers | None = None,
    ) -> None:
        self.shape = shape
        self._sensitive = sensitive
        self._function = positional(function, shape)
        self._decode: Decode = decoder_for(shape.annotation, tombstones=tombstones, where=shape.where)
        self._group = group
        self._logger = logging.getLogger(f"keepfast.handler.{shape.name}")

    def call(self, sink: Sink) -> Call:
        """What a thread calls for each record of a `def` handler."""
        inner, sensitive = self._call(sink), self._sensitive
        if sensitive is None:
            return inner

        def call_scanned(message: Message, run: Run) -> None:
            refuse_sensitive(sensitive, message)
            inner(message, run)

        return call_scanned

    def call_async(self, sink: Sink) -> AsyncCall:
        """What a worker coroutine awaits for each record of an `async def` handler."""
        inner, sensitive = self._call_async(sink), self._sensitive
        if sensitive is None:
            return inner

        async def call_scanned(message: Message, run: Run) -> None:
            refuse_sensitive(sensitive, message)
            await inner(message, run)

        return call_scanned

    def _call(self, sink: Sink) -> Call:
        function, decode = self._function, self._decode
        if self.shape.context is None and takes_bytes(self.shape.annotation):

            def call_bytes(message: Message, run: Run) -> None:  # noqa: ARG001 - one shape for all calls
                value = message.value()
                result = function(decode(value) if value is None else value)
                if result is not None:
                    refuse_awaitable(result)

            return call_bytes
        if self.shape.context is None:

            def call_plain(message: Message, run: Run) -> None:  # noqa: ARG001 - one shape for all calls
                result = function(decode(message.value()))
                if result is not None:
                    refuse_awaitable(result)

            return call_plain
        context_for = self._context_for(sink)

        def call_with_context(message: Message, run: Run) -> None:
            context = context_for(message, run)
            try:
                result = function(decode(message.value()), context)
                if result is not None:
                    refuse_awaitable(result)
            except BaseException as error:
                if run.sends is not None:
                    wait(run, error)
                raise
            if run.sends is not None:
                wait(run)

        return call_with_context

    def _call_async(self, sink: Sink) -> AsyncCall:
        function, decode = self._function, self._decode
        if self.shape.context is None:

            async def call_plain(message: Message, run: Run) -> None:  # noqa: ARG001 - one shape for all calls
                await function(decode(message.value()))

            return call_plain
        context_for = self._context_for(sink)

        async def call_with_context(message: Message, run: Run) -> None:
            context = context_for(message, run)
            try:
                await function(decode(message.value()), context)
            except BaseException as error:
                if run.sends is not None:
                    await wait_async(run, error)
                raise
            if run.sends is not None:
                await wait_async(run)

        return call_with_context

    def _context_for(self, sink: Sink) -> Callable[[Message, Run], Context]:
        group, logger = self._group, self._logger

        def context_for(message: Message, run: Run) -> Context:
            run.sends = None
            return Context(message, run, group=group, logger=logger, sink=sink)

        return context_for


def wait(run: Run, error: BaseException | None = None) -> None:
    """Block until everything that the attempt sent is answered: a rule may finish its record, whatever it ended with.

    `error` is what the handler raised. Raises the error of a failed send instead. The handler is over: its time does
    not go on while the broker takes its own.
    """
    run.sending = True
    try:
        failure = HandlerSends.of(run).wait()
    finally:
        run.sending = False
    if failure is not None:
        _replace(error, failure)


async def wait_async(run: Run, error: BaseException | None = None) -> None:
    """As `wait`. A cancellation that was not asked for does not end the wait; it is a failure when that is over."""
    if isinstance(error, GeneratorExit):
        return  # the event loop is gone, and a coroutine that is being closed must not await
    sends, cancelled = HandlerSends.of(run), None
    run.sending = True
    try:
        while True:
            try:
                failure = await sends.wait_async()
                break
            except asyncio.CancelledError as other:
                if run.abandoned:
                    raise
                cancelled = other
    finally:
        run.sending = False
    if failure is not None:
        _replace(error, failure)
    if cancelled is not None and error is None:
        raise cancelled


def _replace(error: BaseException | None, failure: SinkError) -> NoReturn:
    failure.raised = error
    raise failure


def refuse_sensitive(policy: CardNumbers, message: Message) -> None:
    found = policy.scan(message.key(), message.value(), read_headers(message))
    if found is not None:
        raise SensitiveData(found)


def refuse_awaitable(result: object) -> None:
    """A `def` that hands back a coroutine has done nothing yet: that must not count as success."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise Halt("the handler is a plain function that returned an awaitable, so nothing ran; make it async def")
