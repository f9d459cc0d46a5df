"""What a handler may ask for beside the value: where the record comes from, which attempt it is, and a way to send."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core.errors import Abandoned, SinkError
from holdfast.core.ports import Outgoing, Receipt, Sink
from holdfast.core.records import Headers, Message, read_headers
from holdfast.core.runs import Run


class Sends:
    """What one attempt has sent, and whether all of it was acknowledged. Any thread may answer."""

    __slots__ = ("_failure", "_lock", "_notify", "_pending")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending = 0
        self._failure: SinkError | None = None
        self._notify: Any = None

    def begin(self) -> None:
        with self._lock:
            self._pending += 1

    def delivered(self, outcome: Receipt | SinkError) -> None:
        with self._lock:
            self._pending -= 1
            if isinstance(outcome, SinkError) and self._failure is None:
                self._failure = outcome
            notify = self._notify if self._pending == 0 else None
        if notify is not None:
            notify()

    def wait(self) -> None:
        """Block until everything is answered. Raises the first SinkError."""
        answered = threading.Event()
        if self._when_answered(answered.set):
            answered.wait()
        if self._failure is not None:
            raise self._failure

    async def wait_async(self) -> None:
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        if self._when_answered(lambda: loop.call_soon_threadsafe(answered.set)):
            await answered.wait()
        if self._failure is not None:
            raise self._failure

    def _when_answered(self, notify: Any) -> bool:
        with self._lock:
            if self._pending == 0:
                return False
            self._notify = notify
            return True


class Context:
    """One attempt at one record. Valid while the handler runs, and no longer than its `timeout_s`: after that, `send`
    raises Abandoned.

    A record that came back from a retry topic looks as it did in its own topic: `topic`, `partition`, `offset`,
    `timestamp_ms` and `headers` are the original's, and `attempt` counts on.
    """

    __slots__ = ("_message", "_run", "_sends", "_sink", "attempt", "group", "logger")

    def __init__(self, message: Message, run: Run, *, group: str, logger: logging.Logger, sink: Sink) -> None:
        self._message = message
        self._run = run
        self._sink = sink
        self._sends: Sends | None = None
        self.attempt = run.attempt
        self.group = group
        self.logger = logger

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
    def raw(self) -> bytes | None:
        """The value as it came, before decoding."""
        return self._message.value()

    @property
    def headers(self) -> Headers:
        """All headers in order; a name may occur more than once."""
        return read_headers(self._message)

    @property
    def timestamp_ms(self) -> int | None:
        kind, timestamp_ms = self._message.timestamp()
        return timestamp_ms if kind else None

    @property
    def abandoned(self) -> bool:
        """Whether the record has timed out. Then nothing that the handler still does for it counts, so it may stop."""
        return self._run.abandoned

    def header(self, name: str) -> bytes | None:
        """The last header of that name."""
        return next((value for found, value in reversed(self.headers) if found == name), None)

    def send(
        self,
        topic: str,
        value: Any,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Produce a record. Returns at once; the record being handled counts as finished only when this one is
        acknowledged by all in-sync replicas. If it is not, the attempt has failed and the handler runs again.

        `value` may be bytes, str, None, or anything that JSON can say (pydantic models, dataclasses and structs too).
        Raises Abandoned, and sends nothing, if the record has timed out.
        """
        if self._run.abandoned:
            raise Abandoned(
                f"{self.topic}[{self.partition}] offset {self.offset} has timed out and is given up, so nothing more is"
                " sent for it; end the handler, or raise its timeout_s."
            )
        if self._sends is None:
            self._sends = Sends()
        outgoing = Outgoing(topic, to_bytes(value), to_bytes(key), _pairs(headers))
        self._sends.begin()
        self._sink.send(outgoing, self._sends.delivered)

    @property
    def sends(self) -> Sends | None:
        """What this attempt has sent, if anything."""
        return self._sends


def to_bytes(value: Any) -> bytes | None:
    """A value as it goes into Kafka: bytes and None as they are, text as UTF-8, everything else as JSON."""
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
            return msgspec.json.encode(value)


def _pairs(headers: Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | None]]) -> Headers:
    if isinstance(headers, Mapping):
        return tuple((name, to_bytes(value)) for name, value in headers.items())
    return tuple(headers)
