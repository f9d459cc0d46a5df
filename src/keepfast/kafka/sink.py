"""The producing client behind the port: idempotent, acknowledged by all in-sync replicas, never blocking its caller."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import confluent_kafka
from confluent_kafka import KafkaError

from keepfast.core.errors import Fault, SinkError
from keepfast.core.ports import Delivery
from keepfast.core.records import Outgoing, Receipt
from keepfast.kafka.faults import error_in, fault_of, sink_error
from keepfast.kafka.producer_worker import ProducerWorker, Sending, is_fatal

_log = logging.getLogger("keepfast.kafka.sink")

RENEW_S, OFTEN_S = 1.0, 30.0
"""A client that failed for good is replaced at once; if the last one failed less than so long ago, after a second."""


class KafkaSink:
    """Any thread may call `send` and `close`. Reports come on a thread of its own, or from `send` if nothing was sent.

    When the client's queue is full, records wait here, in order, and go out as room appears; later ones queue up behind
    them. How many those are is the caller's business: each of them is a record that its lane is waiting for.

    Two things that the client leaves to its user are seen to here. The broker refuses a batch that is too large as a
    whole: each of its records is then sent once more in a batch of its own, so that TOO_LARGE is always said of that
    very record. And an idempotent client that cannot keep its promise any longer takes nothing more, for ever: it is
    replaced, and what it had not delivered is sent once more.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)
        self._lock = threading.Lock()  # guards the fields below; never held while a line is called
        self._line: ProducerWorker | None = None
        self._lone: ProducerWorker | None = None  # for batches of one record
        self._broken: list[ProducerWorker] = []
        self._broke_at = self._renew_at = float("-inf")
        self._closing = False

    def open(self) -> None:
        """Make the client and start the reporting thread; `send` does it otherwise. Raises ConfigError."""
        self._batched()

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        """Never blocks, never raises; calls `delivered` exactly once, from any thread, perhaps before this returns."""
        self._send(Sending(outgoing, delivered))

    def close(self, timeout_s: float) -> None:
        """Flush what is under way for at most timeout_s; what is not acknowledged by then is reported as failed."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._closing = True
            lines = [line for line in (self._line, self._lone, *self._broken) if line is not None]
            self._line = self._lone = None
            self._broken.clear()
        for line in lines:
            line.flush(deadline)
        for line in lines:
            for one in line.close():
                tell(one.delivered, closed(one.outgoing.topic))

    def _send(self, one: Sending, *, alone: bool = False) -> None:
        failed: Exception | None
        try:
            line = self._lone_line() if alone else self._batched()
            failed = line.put(one)
        except Exception as error:  # noqa: BLE001 - whatever it is, it becomes the outcome of this record
            failed = error
        if failed is None:
            return
        if is_fatal(error_in(failed)) and not one.again:
            self._send(replace(one, again=True), alone=alone)
            return
        if not isinstance(failed, SinkError):
            failed = sink_error(f"send to {one.outgoing.topic}", failed)
        tell(one.delivered, failed)

    def _batched(self) -> ProducerWorker:
        with self._lock:
            if self._line is None:
                self._line = self._new_line()
            return self._line

    def _lone_line(self) -> ProducerWorker:
        with self._lock:
            if self._lone is None:
                self._lone = self._new_line(lone=True)
            return self._lone

    def _new_line(self, *, lone: bool = False) -> ProducerWorker:
        """With the lock. Raises ConfigError and SinkError."""
        if self._closing:
            raise SinkError("The sink is closed.", fault=Fault.FATAL, code="CLOSED")
        if time.monotonic() < self._renew_at:
            raise SinkError("The client has failed and is about to be replaced.", fault=Fault.RETRY, code="RENEWING")
        return ProducerWorker(self._properties, reported=self._reported, broke=self._broke, lone=lone)

    def _broke(self, line: ProducerWorker) -> None:
        """From any thread: this line takes nothing more."""
        now = time.monotonic()
        with self._lock:
            self._line = None if line is self._line else self._line
            self._lone = None if line is self._lone else self._lone
            self._renew_at = now + RENEW_S if now - self._broke_at < OFTEN_S else now
            self._broke_at = now
            self._broken = [*(one for one in self._broken if not one.ended), line]
        _log.error("producer_failed: %s; it is replaced", line.fatal)

    def _reported(
        self, line: ProducerWorker, one: Sending, word: confluent_kafka.Message | KafkaError | Exception
    ) -> None:
        """On the line's thread: what became of a record."""
        topic = one.outgoing.topic
        if isinstance(word, confluent_kafka.Message):
            tell(one.delivered, Receipt(topic, cast(int, word.partition()), cast(int, word.offset())))
            return
        error = word if isinstance(word, KafkaError) else None
        purged = error is not None and error.name() in ("_PURGE_QUEUE", "_PURGE_INFLIGHT")
        if self._closing and purged:
            tell(one.delivered, closed(topic))
        elif (purged or is_fatal(error)) and not one.again:
            self._send(replace(one, again=True), alone=line.lone)
        elif error is not None and fault_of(error) is Fault.TOO_LARGE and not (line.lone or self._closing):
            self._send(one, alone=True)
        else:
            tell(one.delivered, sink_error(f"send to {topic}", line.fatal if purged and line.fatal else word))


def closed(topic: str) -> SinkError:
    text = f"Could not send to {topic}: the sink closed before the broker acknowledged the record."
    return SinkError(text, fault=Fault.RETRY, code="CLOSED")


def tell(delivered: Delivery, outcome: Receipt | SinkError) -> None:
    try:
        delivered(outcome)
    except Exception:  # noqa: BLE001 - raised into the client, it would hit the reports of other records
        _log.exception("sink_delivery_callback_failed")
