"""The producing client behind the port, on kafka-python: for producers created by a user's own factory.

Limits of the library: it cannot send a header without a value or a record with neither key nor value, and does not
distinguish a missing topic from unreachable brokers. Its `send` may block for `max_block_ms`, so it runs on a thread
here.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from queue import SimpleQueue
from typing import Any

from keepfast.core.errors import ConfigError, Fault, SinkError
from keepfast.core.ports import Delivery
from keepfast.core.records import Outgoing, Receipt
from keepfast.kafka.kafka_python.faults import sink_error

_log = logging.getLogger("keepfast.kafka.sink")

ALL = (-1, "all")


class _Sending:
    """One record in flight. Answered once, by whichever thread comes first."""

    __slots__ = ("_delivered", "_lock", "outgoing")

    def __init__(self, outgoing: Outgoing, delivered: Delivery) -> None:
        self.outgoing = outgoing
        self._delivered: Delivery | None = delivered
        self._lock = threading.Lock()

    def answer(self, outcome: Receipt | SinkError) -> bool:
        with self._lock:
            delivered, self._delivered = self._delivered, None
        if delivered is None:
            return False
        try:
            delivered(outcome)
        except Exception:  # noqa: BLE001 - raised into the client, it would hit the reports of other records
            _log.exception("sink_delivery_callback_failed")
        return True


class KafkaPythonSink:
    """Any thread may call `send` and `close`. Raises ConfigError if the producer does not wait for all replicas, or
    would change the bytes it is given.
    """

    def __init__(self, client: Any) -> None:
        _require_usable(client.config)
        self._client = client
        self._lock = threading.Lock()  # guards the fields below
        self._closing = False
        self._thread: threading.Thread | None = None
        self._under_way: set[_Sending] = set()
        self._waiting: SimpleQueue[_Sending | None] = SimpleQueue()

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        """Never blocks, never raises; calls `delivered` exactly once, from any thread, perhaps before this returns."""
        sending = _Sending(outgoing, delivered)
        with self._lock:
            open_ = not self._closing
            if open_:
                self._under_way.add(sending)
                self._waiting.put(sending)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="kafka-python-sink", daemon=True)
                    self._thread.start()
        if not open_:
            sending.answer(SinkError("The sink is closed.", fault=Fault.FATAL, code="CLOSED"))

    def close(self, timeout_s: float) -> None:
        """Flush records in flight for at most timeout_s; those not acknowledged by then are reported as failed."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._closing = True
            thread = self._thread
        if thread is not None:
            self._waiting.put(None)
            thread.join(max(0.0, deadline - time.monotonic()))
        with contextlib.suppress(Exception):  # it could not flush in time: reported record by record
            self._client.close(timeout=max(0.0, deadline - time.monotonic()))
        for sending in list(self._under_way):
            text = f"Could not send to {sending.outgoing.topic}: the sink closed before the broker acknowledged it."
            self._answer(sending, SinkError(text, fault=Fault.RETRY, code="CLOSED"))

    def _run(self) -> None:
        while (sending := self._waiting.get()) is not None:
            try:
                self._send(sending)
            except Exception as error:  # noqa: BLE001 - whatever it is, it becomes the outcome of this record
                self._answer(sending, _refusal(sending.outgoing, error))

    def _send(self, sending: _Sending) -> None:
        outgoing = sending.outgoing
        topic = outgoing.topic
        sent = self._client.send(
            topic,
            value=outgoing.value,
            key=outgoing.key,
            headers=list(outgoing.headers),
            partition=outgoing.partition,
            timestamp_ms=outgoing.timestamp_ms,
        )
        sent.add_callback(lambda found: self._answer(sending, Receipt(topic, found.partition, found.offset)))
        sent.add_errback(lambda error: self._answer(sending, sink_error(f"send to {topic}", error)))

    def _answer(self, sending: _Sending, outcome: Receipt | SinkError) -> None:
        if sending.answer(outcome):
            with self._lock:
                self._under_way.discard(sending)


def _refusal(outgoing: Outgoing, error: Exception) -> SinkError:
    what = f"send to {outgoing.topic}"
    if isinstance(error, TypeError | ValueError):
        if outgoing.partition is not None and "partition" in str(error):
            return SinkError(f"Could not {what}: {error}.", fault=Fault.MISSING, code="UNKNOWN_PARTITION")
        text = f"Could not {what}: kafka-python cannot send this record ({error}); use a confluent-kafka producer."
        return SinkError(text, fault=Fault.REFUSED, code="NOT_TAKEN")
    return sink_error(what, error)


def _require_usable(config: Any) -> None:
    problems = []
    if config["acks"] not in ALL:
        problems.append(
            f"producer_factory: the KafkaProducer has acks={config['acks']!r}, so a letter could be lost with a broker;"
            ' make it with acks="all".'
        )
    if config["key_serializer"] is not None or config["value_serializer"] is not None:
        problems.append(
            "producer_factory: the KafkaProducer serialises values, but a letter is already bytes; create it without"
            " key_serializer and value_serializer, or publish dead letters with a dlq_publisher of your own."
        )
    if problems:
        raise ConfigError(*problems)
