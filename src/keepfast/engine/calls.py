"""What a worker does with a run: from its records to the user's function.

A call is composed once, when the consumer is built, of the stages that it needs; a stage that it does not need is not
there. For a record, from the outside in:

1. a record from a retry topic is replaced by the original (consumers with retry topics); one that a queue has delivered
   too often is refused (queues)
2. the filter, after the scan for sensitive data where there are both (consumers that have one)
3. a look whether its schema is there, so that what is around the handler sees no attempt that does not count
   (consumers with schemas, and tracing, middleware or providers); its turn (with an inbox that has one transaction at a
   time); a span (with tracing)
4. the scan for sensitive data (consumers that ask for it)
5. the context, decoding, the user's function, and the wait until what it sent is acknowledged; or with middleware,
   providers, resources or an inbox the same and those (`middleware.py`, `inbox.py`)

A batch is one call: `Run.select` restores, scans, filters and decodes its records one by one, because an error there is
about one record; the other stages are around the call with all that are left. So a selection reads like a message, and
the stages are the same. Sync and async differ in the few bodies that call or await (`_SYNC`, `_ASYNC`).

What the user's function gets may be any function of the decoded value and the context: what has to see a record before
it is decoded gets `_as_is` in place of a decoder, and decodes by itself.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar

from keepfast.core.batches import lane_of
from keepfast.core.errors import Discard, SinkError, TooManyDeliveries, readable
from keepfast.core.policies import Order
from keepfast.core.ports import Sink
from keepfast.core.records import Message, deliveries_of, read_headers
from keepfast.core.retry_topics import Returned, original
from keepfast.core.runs import FilteredOut, LaneOf, NotBegun, Run, SelectedRecords
from keepfast.core.schemas import SchemaRef
from keepfast.core.serial_gate import SerialGate
from keepfast.decode.annotation import element_of
from keepfast.decode.choice import Decoding, choose
from keepfast.decode.signature import HandlerShape, awaiting, positional
from keepfast.engine.context import (
    AcknowledgedSender,
    BatchContext,
    BufferedSender,
    BufferedSends,
    Context,
    Encode,
    RawRecord,
    Sender,
)
from keepfast.engine.flight_recorder import NO_SLOT, Slot
from keepfast.engine.middleware import Around, Composition, around_async, around_sync, compose, refuse_awaitable
from keepfast.redact.sensitive import CardNumbers, SensitiveData
from keepfast.telemetry.metrics import BOUNDS_S, Tally
from keepfast.telemetry.tracing import Tracing

Handle = Callable[[Any, Run], Any]
"""Handle one message, or the selection of a batch: returns when it is done, or an awaitable of that; raises what the
user's function raises.
"""
Decode = Callable[[Any], Any]
Filter = Callable[[RawRecord], object]
"""Whether a record is to be handled: what it returns is true or false. It sees the record before it is decoded."""
BY_ANNOTATION = Decoding()
Clock = Callable[[], float]
S = TypeVar("S")

NOTHING_AROUND = Around()
SHORTEST_S = BOUNDS_S[0]
"""Most calls take longer, but those that do not are the ones that cannot afford a search in the bounds."""


# -- walking a run


class Call(Protocol):
    """What a thread does with a run."""

    def walk(self, run: Run, tally: Tally, clock: Clock, slot: Slot = NO_SLOT) -> None:
        """Call the handler for the records of the run until one fails or the loop sets `run.stop`.

        Never raises: whatever the handler raises, SystemExit included, becomes the failure of the run.
        """


class AsyncCall(Protocol):
    """What a worker coroutine does with a run."""

    async def walk(self, run: Run, tally: Tally, clock: Clock, slot: Slot = NO_SLOT) -> None:
        """As `Call.walk`. A CancelledError is a failure like any other: the loop knows what it has cancelled."""


class RecordCall:
    """Implements `Call`: one record after another. `handle` may raise NotBegun."""

    __slots__ = ("handle",)

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    def walk(self, run: Run, tally: Tally, clock: Clock, slot: Slot = NO_SLOT) -> None:
        # The same lines as in `AsyncRecordCall.walk`, but for one `await`: both are too hot for a layer in between.
        counts, shortest, done, slow, filtered_s = tally.counts, SHORTEST_S, 0, 0, 0.0
        handle, messages = slot.begin(run, self.handle), iter(run.messages)
        begun = last = clock()
        while True:
            try:
                for message in messages:
                    run.current = done
                    if run.stop:
                        break
                    handle(message, run)
                    done += 1
                    run.done = done
                    now = clock()
                    if now - last > shortest:
                        counts[bisect_left(BOUNDS_S, now - last)] += 1
                        slow += 1
                    last = now
                break
            except FilteredOut:
                run.filter_out(done)
                done += 1
                run.done = done
                filtered_s -= last
                last = clock()
                filtered_s += last
            except NotBegun:
                break  # as if `stop` had been seen before the record
            except BaseException as error:  # noqa: BLE001 - a worker's edge: the error becomes an outcome
                run.failure, run.failed_s = readable(error), clock() - last
                tally.add(run.failed_s, BOUNDS_S)
                break
        slot.end()
        counts[0] += done - slow - len(run.filtered)
        run.elapsed_s = last - begun
        tally.total_s += last - begun - filtered_s


class AsyncRecordCall:
    """Implements `AsyncCall`: one record after another."""

    __slots__ = ("handle",)

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    async def walk(self, run: Run, tally: Tally, clock: Clock, slot: Slot = NO_SLOT) -> None:
        counts, shortest, done, slow, filtered_s = tally.counts, SHORTEST_S, 0, 0, 0.0
        handle, messages = slot.begin(run, self.handle), iter(run.messages)
        begun = last = clock()
        while True:
            try:
                for message in messages:
                    run.current = done
                    if run.stop:
                        break
                    await handle(message, run)
                    done += 1
                    run.done = done
                    now = clock()
                    if now - last > shortest:
                        counts[bisect_left(BOUNDS_S, now - last)] += 1
                        slow += 1
                    last = now
                break
            except FilteredOut:
                run.filter_out(done)
                done += 1
                run.done = done
                filtered_s -= last
                last = clock()
                filtered_s += last
            except BaseException as error:  # noqa: BLE001 - a worker's edge: the error becomes an outcome
                run.failure, run.failed_s = readable(error), clock() - last
                tally.add(run.failed_s, BOUNDS_S)
                break
        slot.end()
        counts[0] += done - slow - len(run.filtered)
        run.elapsed_s = last - begun
        tally.total_s += last - begun - filtered_s


@dataclass(frozen=True, slots=True)
class _WholeRun:
    """One call for all records of a run that can be handed over: of a batch, or of a record that is retried alone.

    `decode` returns what the handler gets for a record, and raises what keeps the record from being handed over.
    """

    handle: Handle
    decode: Callable[[Message], Any]
    lane_of: LaneOf

    def _select(self, run: Run, slot: Slot) -> SelectedRecords | None:
        selection = run.select(self.decode, self.lane_of)
        if selection is not None and run.given is not None:  # what was left out is not in flight, should the rest kill
            slot.end()  # in between nothing is: a list that is half overwritten would name others
            slot.begin_batch(run)
        return selection

    def _note(self, run: Run, tally: Tally, elapsed_s: float) -> None:
        """Each record of a call took its share of it; a call that failed counts once. What was filtered is no call."""
        run.elapsed_s = run.failed_s = elapsed_s
        if run.failure is None and run.handled:
            tally.total_s += elapsed_s
            tally.counts[bisect_left(BOUNDS_S, elapsed_s / run.handled)] += run.handled
        elif run.failure is not None:
            tally.add(elapsed_s, BOUNDS_S)


class BatchCall(_WholeRun):
    """Implements `Call`."""

    __slots__ = ()

    def walk(self, run: Run, tally: Tally, clock: Clock, slot: Slot = NO_SLOT) -> None:
        begun = clock()
        slot.begin_batch(run)
        try:
            selection = self._select(run, slot)
            if selection is not None:
                if selection.messages:
                    self.handle(selection, run)
                run.succeeded()
        except NotBegun:
            run.unselect()
        except BaseException as error:  # noqa: BLE001 - a worker's edge: the error becomes an outcome
            run.failure = run.judged_by(readable(error))
        slot.end()
        self._note(run, tally, clock() - begun)


class AsyncBatchCall(_WholeRun):
    """Implements `AsyncCall`."""

    __slots__ = ()

    async def walk(self, run: Run, tally: Tally, clock: Clock, slot: Slot = NO_SLOT) -> None:
        begun = clock()
        slot.begin_batch(run)
        try:
            selection = self._select(run, slot)
            if selection is not None:
                if selection.messages:
                    await self.handle(selection, run)
                run.succeeded()
        except BaseException as error:  # noqa: BLE001 - a worker's edge: the error becomes an outcome
            run.failure = run.judged_by(readable(error))
        slot.end()
        self._note(run, tally, clock() - begun)


WALKS = tuple(kind.walk.__code__ for kind in (RecordCall, AsyncRecordCall, BatchCall, AsyncBatchCall))
"""Frames of these have the run that a worker has in flight as their local variable `run`."""


# -- composing a call


class Handler:
    """A user's function, of single records or of lists, with everything known about it. Made before the consumer
    starts; raises ConfigError.

    `order` decides which records of a batch must wait behind one that cannot be handed over. With `sensitive`, every
    record is scanned before anything of it is decoded or handed on. A record for which `passes` is false is finished
    without a call. `decoding` is what there is to say about decoding beside the annotation; `encode` makes the bytes of
    what its context sends. `exactly_once`: what is sent waits for the transaction of its record. `max_deliveries`: from
    this delivery on, a queue's record is dead-lettered without a call; one later if it is spared.
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
        around: Around = NOTHING_AROUND,
        passes: Filter | None = None,
        decoding: Decoding = BY_ANNOTATION,
        encode: Encode | None = None,
        exactly_once: bool = False,
        max_deliveries: int | None = None,
    ) -> None:
        self._exactly_once = exactly_once
        self._max_deliveries = max_deliveries
        self.shape = shape
        self._annotation = element_of(shape.annotation, where=shape.where) if shape.batch else shape.annotation
        self._chosen = choose(self._annotation, decoding, tombstones=tombstones, where=shape.where)
        self._lane_of = lane_of(order)
        self._group = group
        self._resources = around.resources
        self._inbox = around.inbox
        self._sensitive = sensitive
        self._passes = passes
        self._encode = encode
        self._logger = logging.getLogger(f"keepfast.handler.{shape.name}")
        self._decode_call: Decode = _as_is if shape.batch else self._chosen.decode
        self._around: Composition | None = None
        function = awaiting(function, shape)
        if around.is_around(shape):
            self._around = compose(function, shape, self._decode_call, around)
        else:
            self._function = positional(function, shape)

    @property
    def ref_of(self) -> Callable[[Message], SchemaRef | None] | None:
        """Which registered schema a record was written with, where topics have schemas."""
        return self._chosen.ref_of

    def call(self, sink: Sink, *, tracing: Tracing | None = None, retry_topics: bool = False) -> RecordCall | BatchCall:
        """What threads do for a `def` handler. `sink` is where its context sends to."""
        handle = self._handle(_SYNC, sink, tracing, retry_topics=retry_topics)
        if self.shape.batch:
            return BatchCall(handle, self._opened(retry_topics=retry_topics), self._lane_of)
        return RecordCall(handle)

    def call_async(
        self, sink: Sink, *, tracing: Tracing | None = None, retry_topics: bool = False
    ) -> AsyncRecordCall | AsyncBatchCall:
        """What worker coroutines do for an `async def` handler."""
        handle = self._handle(_ASYNC, sink, tracing, retry_topics=retry_topics)
        if self.shape.batch:
            return AsyncBatchCall(handle, self._opened(retry_topics=retry_topics), self._lane_of)
        return AsyncRecordCall(handle)

    def _handle(self, bodies: _Bodies, sink: Sink, tracing: Tracing | None, *, retry_topics: bool) -> Handle:
        is_batch, sensitive, passes = self.shape.batch, self._sensitive, self._passes
        handle = self._inner(bodies, self._sender(sink, tracing))
        scan = None if sensitive is None or is_batch else partial(_scanned, sensitive)
        if scan is not None and passes is None:
            handle = _prepared(handle, scan)
        handle = _traced(bodies, handle, self._group, tracing, is_batch=is_batch)
        if self._inbox is not None and self._inbox.gate is not None:
            handle = _in_turn(handle, self._inbox.gate)
        if self._chosen.ensure is not None and not is_batch and (tracing is not None or self._around is not None):
            handle = _prepared(handle, partial(_ensured, self._chosen.ensure))
        if self._chosen.keys is not None and not is_batch:
            handle = _prepared(handle, partial(_ensured, self._chosen.keys.ensure))
        if passes is not None and not is_batch:
            handle = _prepared(handle, partial(_filtered, passes))
            handle = handle if scan is None else _prepared(handle, scan)
        if self._max_deliveries is not None:
            handle = _prepared(handle, partial(_within_deliveries, self._max_deliveries))
        return _prepared(handle, _counted_on if is_batch else _restored) if retry_topics else handle

    def _sender(self, sink: Sink, tracing: Tracing | None) -> Sender:
        """What `ctx.send` does."""
        if self._exactly_once or (self._inbox is not None and self._inbox.outbox):
            return BufferedSender(None if tracing is None else tracing.with_context)
        return AcknowledgedSender(sink if tracing is None else tracing.sink(sink))

    def _inner(self, bodies: _Bodies, sender: Sender) -> Handle:
        handle = self._innermost(bodies, sender)
        if self._exactly_once:
            handle = bodies.giving(handle)
        return _prepared(handle, _whole) if self._chosen.by_record and not self.shape.batch else handle

    def _innermost(self, bodies: _Bodies, sender: Sender) -> Handle:
        if self._around is not None:
            context_for = self._context_for(sender) if self._around.takes_context else None
            return bodies.with_steps(self._around, context_for)
        function, decode = self._function, self._decode_call
        if self.shape.context is not None:
            return bodies.with_context(function, decode, self._context_for(sender))
        if bodies is _SYNC and not self.shape.batch and self._chosen.as_is:
            return _direct_bytes(function, decode)
        return bodies.direct(function, decode)

    def _opened(self, *, retry_topics: bool) -> Callable[[Message], Any]:
        """What a batch does with each record before it hands the list over."""
        decode, sensitive, passes = self._chosen.decode, self._sensitive, self._passes
        by_record, keys = self._chosen.by_record, self._chosen.keys

        def opened(message: Message) -> Any:
            if retry_topics:
                message = _own(message)
            if sensitive is not None:
                message = _scanned(sensitive, message)
            if passes is not None:
                message = _filtered(passes, message)
            if keys is not None:
                keys.ensure(message)
            return decode(message) if by_record else decode(message.value())

        plain = not (retry_topics or sensitive or passes or by_record or keys)
        return (lambda message: decode(message.value())) if plain else opened

    def _context_for(self, sender: Sender) -> Callable[[Any, Run], Any]:
        group, logger, resources = self._group, self._logger, self._resources
        encode, key_of = self._encode, self._chosen.keys

        def made(message: Message, run: Run, sender: Sender) -> Context:
            return Context(
                message,
                run,
                group=group,
                logger=logger,
                sender=sender,
                resources=resources,
                encode=encode,
                key_of=key_of,
            )

        def context_of(message: Message, run: Run) -> Context:
            own = sender.of(message) if isinstance(sender, BufferedSender) else sender
            return made(original(message), run, own)

        def context_for(message: Message, run: Run) -> Context:
            run.sends = None
            return made(message, run, sender)

        def batch_context_for(selection: SelectedRecords, run: Run) -> BatchContext:
            run.sends = None
            return BatchContext(selection.messages, run, context_of, group=group, logger=logger, resources=resources)

        if self.shape.batch:
            return batch_context_for
        return (lambda whole, run: context_for(whole.message, run)) if self._chosen.by_record else context_for


def record_call(
    handle: Handle, *, group: str, tracing: Tracing | None = None, retry_topics: bool = False
) -> RecordCall:
    """The call of a sync function that takes the message and its run as they are."""
    handle = _traced(_SYNC, handle, group, tracing, is_batch=False)
    return RecordCall(_prepared(handle, _restored) if retry_topics else handle)


def _traced(bodies: _Bodies, handle: Handle, group: str, tracing: Tracing | None, *, is_batch: bool) -> Handle:
    if tracing is None:
        return handle
    begin = tracing.begin_batch if is_batch else tracing.begin
    return bodies.around(handle, partial(begin, group=group), tracing.end)


# -- stages


def _prepared(handle: Handle, prepare: Callable[[Any, Run], Any]) -> Handle:
    """What `prepare` returns is handled in place of what it gets. Sync and async alike: nothing is awaited here."""

    def handle_prepared(subject: Any, run: Run) -> Any:
        return handle(prepare(subject, run), run)

    return handle_prepared


def attempt_of(message: Returned, run: Run) -> int:
    """Which attempt this is, counted from the first one in its own topic; a failed record knows, a new run does not."""
    return run.attempt if run.failed_record is not None else message.past.failures + 1


def _in_turn(handle: Handle, gate: SerialGate) -> Handle:
    """Of plain handlers. Raises NotBegun if the run is asked to stop before its turn has come."""

    def handle_in_turn(subject: Any, run: Run) -> None:
        with gate.of(run):
            handle(subject, run)

    return handle_in_turn


def _restored(message: Message, run: Run) -> Message:
    """The original of a record from a retry topic, as if it had never been away."""
    if not isinstance(message, Returned):
        return message
    own = _own(message)
    run.attempt = attempt_of(message, run)  # the run is the worker's while it is out, and for one record at a time
    return own


def _counted_on(selection: SelectedRecords, run: Run) -> SelectedRecords:
    """Records of a batch share its attempt; a single one has its own."""
    first = selection.messages[0]
    if len(selection.messages) == 1 and isinstance(first, Returned):
        run.attempt = attempt_of(first, run)
    return selection


def _own(message: Message) -> Message:
    """Raises Discard for a record that another group has moved."""
    if isinstance(message, Returned) and message.past.foreign:
        raise Discard("it was moved here by another group, whose retry topics have the same name")
    return original(message)


def _scanned(policy: CardNumbers, message: Message, run: Run | None = None) -> Message:  # noqa: ARG001 - as a stage
    found = policy.scan(message.key(), message.value(), read_headers(message))
    if found is not None:
        raise SensitiveData(found)
    return message


def _within_deliveries(limit: int, message: Message, run: Run) -> Message:
    """Raises TooManyDeliveries."""
    if (deliveries := deliveries_of(message)) >= limit + run.partition.spared:
        raise TooManyDeliveries(deliveries)
    return message


def _filtered(passes: Filter, message: Message, run: Run | None = None) -> Message:  # noqa: ARG001 - as a stage
    passed = passes(RawRecord(message))
    if not passed:
        raise FilteredOut
    if passed is not True:
        refuse_awaitable(passed, "the filter", "return true or false from it")
    return message


def _ensured(ensure: Callable[[Message], None], message: Message, run: Run) -> Message:  # noqa: ARG001 - as a stage
    ensure(message)
    return message


class WholeRecord:
    """Stands for a message whose decoder wants all of it: what it gives for the value is the message."""

    __slots__ = ("message",)

    def __init__(self, message: Message) -> None:
        self.message = message

    def value(self) -> Message:
        return self.message


def _whole(message: Message, run: Run) -> WholeRecord:  # noqa: ARG001 - as a stage
    return WholeRecord(message)


def _as_is(value: Any) -> Any:
    """In place of a decoder: the values of a batch are decoded when its records are selected."""
    return value


def _direct_bytes(function: Callable[..., Any], decode: Decode) -> Handle:
    def handle_bytes(message: Message, run: Run) -> None:  # noqa: ARG001 - one shape for all
        value = message.value()
        result = function(decode(value) if value is None else value)
        if result is not None:
            refuse_awaitable(result)

    return handle_bytes


def _direct(function: Callable[..., Any], decode: Decode) -> Handle:
    def handle_direct(subject: Any, run: Run) -> None:  # noqa: ARG001 - one shape for all
        result = function(decode(subject.value()))
        if result is not None:
            refuse_awaitable(result)

    return handle_direct


def _direct_async(function: Callable[..., Any], decode: Decode) -> Handle:
    return lambda subject, run: function(decode(subject.value()))  # noqa: ARG005 - one shape for all


def _with_context(function: Callable[..., Any], decode: Decode, context_for: Callable[[Any, Run], Any]) -> Handle:
    def handle_with_context(subject: Any, run: Run) -> None:
        context = context_for(subject, run)
        try:
            result = function(decode(subject.value()), context)
            if result is not None:
                refuse_awaitable(result)
        except BaseException as error:
            if run.sends is not None:
                wait_for_sends(run, error)
            raise
        if run.sends is not None:
            wait_for_sends(run)

    return handle_with_context


def _with_context_async(function: Callable[..., Any], decode: Decode, context_for: Callable[[Any, Run], Any]) -> Handle:
    async def handle_with_context(subject: Any, run: Run) -> None:
        context = context_for(subject, run)
        try:
            await function(decode(subject.value()), context)
        except BaseException as error:
            if run.sends is not None:
                await wait_for_sends_async(run, error)
            raise
        if run.sends is not None:
            await wait_for_sends_async(run)

    return handle_with_context


def _around(handle: Handle, begin: Callable[[Any, Run], S], end: Callable[[S, BaseException | None], None]) -> Handle:
    """`begin` before and `end` after each call; `end` gets what `begin` returned, and what the call raised."""

    def handle_within(subject: Any, run: Run) -> None:
        state = begin(subject, run)
        try:
            handle(subject, run)
        except BaseException as error:
            end(state, error)
            raise
        end(state, None)

    return handle_within


def _around_async(
    handle: Handle, begin: Callable[[Any, Run], S], end: Callable[[S, BaseException | None], None]
) -> Handle:
    async def handle_within(subject: Any, run: Run) -> None:
        state = begin(subject, run)
        try:
            await handle(subject, run)
        except BaseException as error:
            end(state, error)
            raise
        end(state, None)

    return handle_within


def _giving(handle: Handle) -> Handle:
    """What an attempt has sent that goes well becomes outputs of its record."""

    def handle_giving(subject: Any, run: Run) -> None:
        handle(subject, run)
        if isinstance(run.sends, BufferedSends):
            run.sends.give(run)

    return handle_giving


def _giving_async(handle: Handle) -> Handle:
    async def handle_giving(subject: Any, run: Run) -> None:
        await handle(subject, run)
        if isinstance(run.sends, BufferedSends):
            run.sends.give(run)

    return handle_giving


@dataclass(frozen=True, slots=True)
class _Bodies:
    """Of each stage that waits for the user's function, the body that calls it or the one that awaits it."""

    direct: Callable[[Callable[..., Any], Decode], Handle]
    with_context: Callable[[Callable[..., Any], Decode, Callable[[Any, Run], Any]], Handle]
    around: Callable[[Handle, Callable[[Any, Run], Any], Callable[[Any, BaseException | None], None]], Handle]
    giving: Callable[[Handle], Handle]
    with_steps: Callable[[Composition, Callable[[Any, Run], Any] | None], Handle]


_SYNC = _Bodies(
    _direct, _with_context, _around, _giving, lambda steps, context_for: around_sync(steps, context_for, wait_for_sends)
)
_ASYNC = _Bodies(
    _direct_async,
    _with_context_async,
    _around_async,
    _giving_async,
    lambda steps, context_for: around_async(steps, context_for, wait_for_sends_async),
)


# -- what the handler sent


def wait_for_sends(run: Run, error: BaseException | None = None) -> None:
    """Block until everything that the attempt sent is answered, since a rule may finish its record whatever the handler
    raised (`error`).

    Raises the error of a failed send instead of `error`. The handler is over: its timeout does not run meanwhile.
    """
    sends = run.sends
    if sends is None:
        return
    run.sending = True
    try:
        failure = sends.wait()
    finally:
        run.sending = False
    if failure is not None and failure is not error:
        _replace(error, failure)


async def wait_for_sends_async(run: Run, error: BaseException | None = None) -> None:
    """As `wait_for_sends`. A cancellation by others than the loop does not end the wait; it is a failure afterwards."""
    sends, cancelled = run.sends, None
    if sends is None or isinstance(error, GeneratorExit):
        return  # GeneratorExit: the event loop is gone, and a coroutine that is being closed must not await
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
    if failure is not None and failure is not error:
        _replace(error, failure)
    if cancelled is not None and error is None:
        raise cancelled


def _replace(error: BaseException | None, failure: SinkError) -> NoReturn:
    failure.raised = error
    raise failure
