"""`app.send`: records that belong to no handler's record."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

from keepfast.core.errors import Fault, SinkError
from keepfast.core.ports import Sink
from keepfast.core.records import Outgoing, Receipt
from keepfast.telemetry.logs import LEVELS, get_logger

log = get_logger("keepfast.send")

MAX_RECORDS, MAX_BYTES = 10_000, 64 * 1024 * 1024
"""What may wait for its acknowledgement at the same time."""


class SendFuture:
    """A record on its way. `await` it on any event loop, or call `result` on a thread that may block: both return a
    `Receipt` (topic, partition, offset) once all in-sync replicas have the record, and raise SinkError if it was not
    sent. A failure of a future that is not awaited is logged.

    Cancelling the task that awaits it does not recall the record.
    """

    __slots__ = ("_future",)

    def __init__(self, future: concurrent.futures.Future[Receipt]) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, Receipt]:
        return asyncio.wrap_future(self._future).__await__()

    def result(self, timeout_s: float | None = None) -> Receipt:
        """Block until it is acknowledged. Raises SinkError, and TimeoutError after `timeout_s`."""
        return self._future.result(timeout_s)

    def done(self) -> bool:
        """Whether it is acknowledged or has failed."""
        return self._future.done()

    def add_done_callback(self, called: Callable[[SendFuture], object]) -> None:
        """Call it with this future as soon as it is done, on any thread; at once if it is."""
        self._future.add_done_callback(lambda _: called(self))


class AppSends:
    """What an app sends through its producer, bounded by MAX_RECORDS and MAX_BYTES. Any thread may send."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self._records = self._bytes = 0

    def send(self, outgoing: Outgoing) -> SendFuture:
        """Returns at once. Raises SinkError with the code QUEUE_FULL if too much is unacknowledged."""
        size = _size(outgoing)
        with self._lock:
            if self._records and (self._records >= MAX_RECORDS or self._bytes + size > MAX_BYTES):
                raise SinkError(
                    f"{self._records} records sent with app.send ({self._bytes:,} bytes) are not acknowledged yet, and"
                    " no more are taken: await what app.send returns, or call .result() on it, before you send more.",
                    fault=Fault.RETRY,
                    code="QUEUE_FULL",
                )
            self._records += 1
            self._bytes += size
        future: concurrent.futures.Future[Receipt] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()  # from now on it cannot be cancelled

        def delivered(outcome: Receipt | SinkError) -> None:
            with self._lock:
                self._records -= 1
                self._bytes -= size
            if isinstance(outcome, SinkError):
                topic, now = outgoing.topic, time.monotonic()
                log.sampled(LEVELS["error"], "send_failed", now=now, key=topic, topic=topic, error=outcome)
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self._sink.send(outgoing, delivered)
        return SendFuture(future)


def _size(outgoing: Outgoing) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in outgoing.headers)
    return len(outgoing.value or b"") + len(outgoing.key or b"") + headers
