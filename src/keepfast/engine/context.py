"""What a handler may take beside the value: where the record comes from, which attempt it is, and a way to send."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, overload

import msgspec

from keepfast.core.errors import Abandoned, SinkError
from keepfast.core.ports import Sink
from keepfast.core.records import Headers, Message, Outgoing, Receipt, read_headers
from keepfast.core.runs import Run
from keepfast.deadletters import ours

_first_send = threading.Lock()
"""Held while the first send of an attempt creates its `Sends`: a handler may send from several threads of its own."""


Encoded = tuple[bytes | None, bytes | None, Headers]
"""Value, key and headers as they go into Kafka."""
Encode = Callable[[str, Any, Any, Headers], Encoded]
"""From a topic, a value, a key and headers to what is sent. Raises ValueError or TypeError. Any thread, without
blocking.
"""
KeyOf = Callable[[Message], Any]
"""The decoded key of a record."""


class HandlerSends:
    """The records that one attempt has sent, and whether all were acknowledged. Any thread may send and answer.

    Implements `core.runs.Sends`.
    """

    __slots__ = ("_closed", "_failure", "_lock", "_notify", "_pending")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending = 0
        self._failure: SinkError | None = None
        self._notify: Callable[[], object] | None = None
        self._closed = False

    @classmethod
    def of(cls, run: Run) -> HandlerSends:
        """The sends of the current attempt, made on first use."""
        with _first_send:
            sends = run.sends
            if not isinstance(sends, HandlerSends):
                sends = run.sends = cls()
            return sends

    def begin(self) -> bool:
        """A record is about to be sent. False: the sends are closed, and it must not be."""
        with self._lock:
            if not self._closed:
                self._pending += 1
            return not self._closed

    def delivered(self, outcome: Receipt | SinkError) -> None:
        with self._lock:
            self._pending -= 1
            if isinstance(outcome, SinkError) and self._failure is None:
                self._failure = outcome
            notify = self._notify if self._pending == 0 else None
        if notify is not None:
            notify()

    def wait(self) -> SinkError | None:
        """Block until every send is answered, or they are closed. Returns the first failure."""
        answered = threading.Event()
        if self._when_answered(answered.set):
            answered.wait()
        return self._failure

    async def wait_async(self) -> SinkError | None:
        """Wait until every send is answered, or they are closed. Returns the first failure."""
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        if self._when_answered(lambda: loop.call_soon_threadsafe(answered.set)):
            await answered.wait()
        return self._failure

    def close(self, answered: Callable[[SinkError | None], None]) -> None:
        """See the protocol. Ends `wait` and `wait_async`."""
        with self._lock:
            self._closed = True
            waiter, self._notify = self._notify, lambda: answered(self._failure)
            pending = self._pending
        if waiter is not None:
            waiter()
        if pending == 0:
            answered(self._failure)

    def _when_answered(self, notify: Callable[[], object]) -> bool:
        with self._lock:
            if self._pending == 0 or self._closed:
                return False
            self._notify = notify
            return True


class BufferedSends:
    """What one attempt has sent, and for which record of a batch, until a transaction takes it. Any thread may send.

    Implements `core.runs.Sends`: there is nothing to wait for, and what an attempt that fails has sent is dropped.
    """

    __slots__ = ("_closed", "_lock", "_sent")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: list[tuple[Message | None, Outgoing]] = []
        self._closed = False

    @classmethod
    def of(cls, run: Run) -> BufferedSends:
        """Those of the current attempt, made on first use."""
        with _first_send:
            sends = run.sends
            if not isinstance(sends, BufferedSends):
                sends = run.sends = cls()
            return sends

    def add(self, outgoing: Outgoing, record: Message | None) -> bool:
        """False: the sends are closed, and it was not added."""
        with self._lock:
            if not self._closed:
                self._sent.append((record, outgoing))
            return not self._closed

    def take(self) -> list[tuple[Message | None, Outgoing]]:
        """All of them, in the order in which they were sent. No more are added."""
        with self._lock:
            self._closed = True
            taken, self._sent = self._sent, []
            return taken

    def give(self, run: Run) -> None:
        """The attempt has gone well: they are outputs of their records."""
        for record, outgoing in self.take():
            run.give(run.messages[run.current] if record is None else record, (outgoing,))

    def wait(self) -> SinkError | None:
        return None

    async def wait_async(self) -> SinkError | None:
        return None

    def close(self, answered: Callable[[SinkError | None], None]) -> None:
        """See the protocol."""
        self.take()
        answered(None)


class Sender(Protocol):
    """What `ctx.send` of one consumer does with a record. Chosen once, when the consumer's call is composed."""

    def send(self, outgoing: Outgoing, run: Run) -> bool:
        """Take it for the attempt that this run is at. False: the attempt is abandoned, and it was not taken. Any
        thread; never blocks.

        The loop sets `run.abandoned` and then closes `run.sends`, so ask only when the run has them.
        """
        ...


class AcknowledgedSender:
    """Implements `Sender`: records are produced at once, and their attempt waits until all are acknowledged."""

    __slots__ = ("_sink",)

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def send(self, outgoing: Outgoing, run: Run) -> bool:
        sends = HandlerSends.of(run)
        if run.abandoned or not sends.begin():
            return False
        self._sink.send(outgoing, sends.delivered)
        return True


class BufferedSender:
    """Implements `Sender`: records wait in `run.sends` for the transaction of their attempt: that of an inbox, or that
    of the offsets. `prepare` may replace each of them. `record`: the one of a batch that the context is about.
    """

    __slots__ = ("_prepare", "_record")

    def __init__(self, prepare: Callable[[Outgoing], Outgoing] | None = None, record: Message | None = None) -> None:
        self._prepare = prepare
        self._record = record

    def of(self, record: Message) -> BufferedSender:
        return BufferedSender(self._prepare, record)

    def send(self, outgoing: Outgoing, run: Run) -> bool:
        sends = BufferedSends.of(run)
        if self._prepare is not None:
            outgoing = self._prepare(outgoing)
        return not run.abandoned and sends.add(outgoing, self._record)


class RecordView:
    """What is known of a record without decoding it. Read from the client's message when it is asked for."""

    __slots__ = ("_message",)

    def __init__(self, message: Message) -> None:
        self._message = message

    @property
    def topic(self) -> str:
        return self._message.topic()

    @property
    def partition(self) -> int:
        return self._message.partition()

    @property
    def offset(self) -> int:
        return self._message.offset()

    @property
    def key(self) -> bytes | None:
        return self._message.key()

    @property
    def headers(self) -> Headers:
        """All headers in order; a name may occur more than once. Those named `keepfast-…` are left out."""
        headers = read_headers(self._message)
        if any(ours.is_ours(name) for name, _ in headers):
            return tuple(pair for pair in headers if not ours.is_ours(pair[0]))
        return headers

    @property
    def timestamp_ms(self) -> int | None:
        kind, timestamp_ms = self._message.timestamp()
        return timestamp_ms if kind else None

    @property
    def replays(self) -> int:
        """How often the record was replayed from a dead letter; 0 if it never was."""
        return ours.replays(read_headers(self._message))

    def header(self, name: str) -> bytes | None:
        """The value of the last header of that name; None if there is none."""
        return ours.last(self.headers, name)


class RawRecord(RecordView):
    """A record before it is decoded: what a filter gets. A record that came back from a retry topic looks as it did in
    its own topic.
    """

    __slots__ = ()

    @property
    def value(self) -> bytes | None:
        """The value in bytes; None for a tombstone."""
        return self._message.value()


class Context(RecordView):
    """One attempt at one record. Valid while the handler runs, and no longer than its `timeout_s`: after that, `send`
    raises Abandoned.

    A record that came back from a retry topic looks as it did in its own topic: `topic`, `partition`, `offset`,
    `timestamp_ms` and `headers` are the original's, and `attempt` counts on.
    """

    __slots__ = ("_encode", "_key_of", "_run", "_sender", "attempt", "group", "logger", "resources")

    def __init__(
        self,
        message: Message,
        run: Run,
        *,
        group: str,
        logger: logging.Logger,
        sender: Sender,
        resources: Any = None,
        encode: Encode | None = None,
        key_of: KeyOf | None = None,
    ) -> None:
        self._message = message
        self._key_of = key_of
        self._run = run
        self._sender = sender
        self._encode = encode
        self.attempt = run.attempt
        self.group = group
        self.logger = logger
        self.resources: Any = resources
        """What the app's lifespan has yielded; None without one."""

    @property
    def raw(self) -> bytes | None:
        """The value in bytes, before decoding."""
        return self._message.value()

    @property
    def decoded_key(self) -> Any:
        """The key as its schema says, if `app.schema(topic, …, key=…)` declares one: plain data, or a message of
        Protobuf. Without one, the bytes, as `key`. Decoded whenever it is asked for. Raises DecodeError, which makes
        the record undecodable.
        """
        return self.key if self._key_of is None else self._key_of(self._message)

    @property
    def cloudevent(self) -> Mapping[str, Any] | None:
        """The attributes of the CloudEvent that the record is (`id`, `source`, `type`, `time`, extensions); None if it
        is none. Read from the record whenever it is asked for.
        """
        from keepfast.decode.cloudevents import event_of

        try:
            return dict(event_of(self._message).get_attributes())
        except Exception:  # noqa: BLE001 - of whatever kind: it is no event
            return None

    @property
    def abandoned(self) -> bool:
        """Whether the record has timed out. What the handler still does for it has no effect, so it may stop."""
        return self._run.abandoned

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Produce a record. Returns at once; the record being handled counts as finished only when this one is
        acknowledged by all in-sync replicas, whatever the handler returns or raises. If it is not, the attempt has
        failed with the error of the send, whatever the handler raised (except for Halt), and the handler runs again.

        `value` may be bytes, str, None, or anything that can be JSON (pydantic models, dataclasses and structs too). A
        topic with a schema (`app.schema`) gets it in that, and the same holds for `key`. Raises Abandoned, and sends
        nothing, if the record has timed out; ValueError for a header named `keepfast-…`, and for a value that does not
        fit its schema.
        """
        outgoing = outgoing_of(self._encode, topic, value, key, headers)
        if not self._sender.send(outgoing, self._run):
            raise Abandoned(
                f"{self.topic}[{self.partition}] offset {self.offset} has timed out, so nothing more is sent for it;"
                " return from the handler, or raise its timeout_s."
            )


def outgoing_of(
    encode: Encode | None,
    topic: str,
    value: Any,
    key: Any,
    headers: Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | None]],
    *,
    partition: int | None = None,
) -> Outgoing:
    """A record that user code sends. Raises ValueError and TypeError for what cannot be sent."""
    pairs = to_headers(headers)
    if encode is None:
        return Outgoing(topic, to_bytes(value), to_bytes(key), pairs, partition)
    data, own_key, pairs = encode(topic, value, key, pairs)
    return Outgoing(topic, data, own_key, pairs, partition)


ContextOf = Callable[[Message, Run], Context]


class BatchContext(Sequence[Context]):
    """One attempt at one batch: a `Context` for each record, in the order of the list. Valid while the handler runs."""

    __slots__ = ("_context_of", "_made", "_messages", "_run", "attempt", "group", "logger", "resources")

    def __init__(
        self,
        messages: Sequence[Message],
        run: Run,
        context_of: ContextOf,
        *,
        group: str,
        logger: logging.Logger,
        resources: Any = None,
    ) -> None:
        self._messages = messages
        self._run = run
        self._context_of = context_of
        self._made: dict[int, Context] = {}
        self.attempt = run.attempt
        self.group = group
        self.logger = logger
        self.resources: Any = resources
        """What the app's lifespan has yielded; None without one."""

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
        key: Any = None,
        headers: Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Produce a record, as `Context.send` does; no record of the batch counts as finished before it is
        acknowledged. The same holds for what is sent by the context of one record.
        """
        self[0].send(topic, value, key, headers)

    def only(self, positions: Sequence[int]) -> BatchContext:
        """The same attempt at some of its records."""
        messages = [self._messages[position] for position in positions]
        return BatchContext(
            messages, self._run, self._context_of, group=self.group, logger=self.logger, resources=self.resources
        )

    @property
    def abandoned(self) -> bool:
        """Whether the call has timed out, as `Context.abandoned`."""
        return self._run.abandoned


def to_bytes(value: Any) -> bytes | None:
    """A value as it goes into Kafka: bytes and None as they are, text as UTF-8, everything else as JSON. Raises
    TypeError for what cannot be JSON.
    """
    match value:
        case None | bytes():
            return value
        case bytearray() | memoryview():
            return bytes(value)
        case str():
            return value.encode()
        case _ if hasattr(value, "model_dump_json"):
            return str(value.model_dump_json()).encode()
        case _:
            return _to_json(value)


def _to_json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except TypeError as error:
        raise TypeError(
            f"{type(value).__name__} cannot become JSON ({error}); send bytes, str, None, or what can: a dict, list,"
            " dataclass, msgspec.Struct or pydantic model"
        ) from error


def to_headers(headers: Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | None]]) -> Headers:
    """Headers of a record that user code sends. Raises ValueError for a name that is reserved for keepfast."""
    found = headers.items() if isinstance(headers, Mapping) else headers
    pairs = tuple((name, to_bytes(value)) for name, value in found)
    reserved = next((name for name, _ in pairs if ours.is_ours(name)), None)
    if reserved is not None:
        raise ValueError(
            f"the header {reserved!r} is reserved: names must not begin with {ours.PREFIX!r}; give it another name"
        )
    return pairs
