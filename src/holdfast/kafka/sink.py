"""The producing client behind the port: idempotent, acknowledged by all in-sync replicas, never blocking its caller."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import confluent_kafka
from confluent_kafka import KafkaError, Producer

from holdfast.core.errors import Fault, SinkError
from holdfast.core.ports import Delivery, Outgoing, Receipt
from holdfast.kafka.client_log import LOGGER
from holdfast.kafka.faults import CLIENT_ERRORS, config_error, sink_error

_log = logging.getLogger("holdfast.kafka.sink")

POLL_S = 0.1
"""How long the reporting thread waits for reports at a time. It is woken by each report; this only bounds its end."""
RETRY_S = 0.01
"""The same, while records wait for room in the client's queue."""


@dataclass(slots=True, frozen=True)
class _Waiting:
    outgoing: Outgoing
    delivered: Delivery


class KafkaSink:
    """Any thread may call `send` and `close`. Reports come on a thread of its own, or from `send` if nothing was sent.

    When the client's queue is full, records wait here, in order, and go out as room appears; later ones queue up behind
    them. How many those are is the caller's business: each of them is a record that its lane is waiting for.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)
        self._lock = threading.Lock()  # guards the order of sending, and the fields below
        self._client: Producer | None = None
        self._thread: threading.Thread | None = None
        self._waiting: deque[_Waiting] = deque()
        self._closing = False

    def open(self) -> None:
        """Make the client and start the reporting thread; `send` does it otherwise. Raises ConfigError."""
        with self._lock:
            self._ready()

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        """Never blocks, never raises; calls `delivered` exactly once, from any thread, perhaps before this returns."""
        try:
            with self._lock:
                failed = self._enqueue(_Waiting(outgoing, delivered))
        except Exception as error:  # noqa: BLE001 - whatever it is, it becomes the outcome of this record
            failed = sink_error(f"send to {outgoing.topic}", error)
        if failed is not None:
            _tell(delivered, failed)

    def close(self, timeout_s: float) -> None:
        """Flush what is under way for at most timeout_s; what is not acknowledged by then is reported as failed."""
        with self._lock:
            self._closing = True
            client, thread = self._client, self._thread
        if client is None or thread is None:
            return
        # The reporting thread goes on during the flush: it is also the one that sends what still waits here.
        deadline = time.monotonic() + timeout_s
        while (len(client) or self._waiting) and (left_s := deadline - time.monotonic()) > 0:
            client.flush(min(left_s, POLL_S))
        with self._lock:
            self._client = None
            left = list(self._waiting)
            self._waiting.clear()
        thread.join()
        for one in left:
            _tell(one.delivered, _closed(one.outgoing.topic))
        client.purge()
        client.flush(1.0)  # serves the reports of what was purged; nothing is on the wire any more

    def _ready(self) -> Producer:
        if self._closing:
            raise SinkError("The sink is closed.", fault=Fault.FATAL, code="CLOSED")
        if self._client is None:
            try:
                self._client = Producer({**self._properties, "error_cb": _on_error, "logger": LOGGER})
            except CLIENT_ERRORS as error:
                raise config_error("producer", error) from error
            self._thread = threading.Thread(target=self._report, name="holdfast-sink", daemon=True)
            self._thread.start()
        return self._client

    def _enqueue(self, one: _Waiting) -> SinkError | None:
        """With the lock. None: it is on its way, or waits for room."""
        try:
            client = self._ready()
        except SinkError as error:
            return error
        if self._waiting:
            self._waiting.append(one)
            return None
        try:
            _produce(client, one)
        except BufferError:
            self._waiting.append(one)
        except CLIENT_ERRORS as error:
            return sink_error(f"send to {one.outgoing.topic}", error)
        return None

    def _report(self) -> None:
        """The reporting thread. Polls until `close` has taken the client away."""
        while True:
            with self._lock:
                client, crowded = self._client, bool(self._waiting)
            if client is None:
                return
            client.poll(RETRY_S if crowded else POLL_S)
            if crowded:
                self._send_waiting()

    def _send_waiting(self) -> None:
        refused: list[tuple[Delivery, SinkError]] = []
        with self._lock:
            while self._waiting and self._client is not None:
                one = self._waiting[0]
                try:
                    _produce(self._client, one)
                except BufferError:
                    break
                except CLIENT_ERRORS as error:
                    refused.append((one.delivered, sink_error(f"send to {one.outgoing.topic}", error)))
                self._waiting.popleft()
        for delivered, failed in refused:
            _tell(delivered, failed)


def _produce(client: Producer, one: _Waiting) -> None:
    outgoing = one.outgoing
    client.produce(
        outgoing.topic,
        value=outgoing.value,
        key=outgoing.key,
        partition=-1 if outgoing.partition is None else outgoing.partition,
        timestamp=outgoing.timestamp_ms or 0,
        headers=cast("list[tuple[str, str | bytes | None]]", list(outgoing.headers)),
        on_delivery=_reporter(outgoing.topic, one.delivered),
    )


def _reporter(topic: str, delivered: Delivery) -> Callable[[KafkaError | None, confluent_kafka.Message], None]:
    def on_delivery(error: KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is None:
            where = cast(int, message.partition()), cast(int, message.offset())
            _tell(delivered, Receipt(topic, *where))
        elif error.name() in ("_PURGE_QUEUE", "_PURGE_INFLIGHT"):
            _tell(delivered, _closed(topic))
        else:
            _tell(delivered, sink_error(f"send to {topic}", error))

    return on_delivery


def _closed(topic: str) -> SinkError:
    text = f"Could not send to {topic}: the sink closed before the broker acknowledged the record."
    return SinkError(text, fault=Fault.RETRY, code="CLOSED")


def _tell(delivered: Delivery, outcome: Receipt | SinkError) -> None:
    try:
        delivered(outcome)
    except Exception:  # noqa: BLE001 - raised into the client, it would hit the reports of other records
        _log.exception("sink_delivery_callback_failed")


def _on_error(error: KafkaError) -> None:
    LOGGER.warning("%s producer: %s", error.name(), error.str())
