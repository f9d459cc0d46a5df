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

RENEW_DELAY_S, FREQUENT_S = 1.0, 30.0
"""A client is replaced at once after a fatal error, or after RENEW_DELAY_S if another failed within FREQUENT_S."""


class KafkaSink:
    """Any thread may call `send` and `close`. Reports come on a thread of its own, or from `send` if nothing was sent.

    When the client's queue is full, records wait here, in order, and are sent as room appears; later ones queue behind
    them. The caller bounds their number: each of them is a record that its lane is waiting for.

    It handles two cases that the client leaves to its user. The broker refuses a batch that is too large as a whole:
    each of its records is then sent once more in a batch of its own, so that TOO_LARGE always concerns that single
    record. And after a fatal error an idempotent client accepts no more records: it is replaced, and records that it
    had not delivered are sent once more.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)
        self._lock = threading.Lock()  # guards the fields below; never held while a worker is called
        self._worker: ProducerWorker | None = None
        self._unbatched: ProducerWorker | None = None  # for batches of one record
        self._failed: list[ProducerWorker] = []
        self._failed_at = self._renew_at = float("-inf")
        self._closing = False

    def open(self) -> None:
        """Create the client and start the reporting thread; otherwise the first `send` does. Raises ConfigError."""
        self._batched_worker()

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        """Never blocks, never raises; calls `delivered` exactly once, from any thread, perhaps before this returns."""
        self._send(Sending(outgoing, delivered))

    def close(self, timeout_s: float) -> None:
        """Flush records in flight for at most timeout_s; those not acknowledged by then are reported as failed."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._closing = True
            workers = [worker for worker in (self._worker, self._unbatched, *self._failed) if worker is not None]
            self._worker = self._unbatched = None
            self._failed.clear()
        for worker in workers:
            worker.flush(deadline)
        for worker in workers:
            for one in worker.close():
                notify(one.delivered, closed(one.outgoing.topic))

    def _send(self, one: Sending, *, unbatched: bool = False) -> None:
        failed: Exception | None
        try:
            worker = self._unbatched_worker() if unbatched else self._batched_worker()
            failed = worker.put(one)
        except Exception as error:  # noqa: BLE001 - whatever it is, it becomes the outcome of this record
            failed = error
        if failed is None:
            return
        if is_fatal(error_in(failed)) and not one.again:
            self._send(replace(one, again=True), unbatched=unbatched)
            return
        if not isinstance(failed, SinkError):
            failed = sink_error(f"send to {one.outgoing.topic}", failed)
        notify(one.delivered, failed)

    def _batched_worker(self) -> ProducerWorker:
        with self._lock:
            if self._worker is None:
                self._worker = self._new_worker()
            return self._worker

    def _unbatched_worker(self) -> ProducerWorker:
        with self._lock:
            if self._unbatched is None:
                self._unbatched = self._new_worker(unbatched=True)
            return self._unbatched

    def _new_worker(self, *, unbatched: bool = False) -> ProducerWorker:
        """With the lock. Raises ConfigError and SinkError."""
        if self._closing:
            raise SinkError("The sink is closed.", fault=Fault.FATAL, code="CLOSED")
        if time.monotonic() < self._renew_at:
            raise SinkError("The client has failed and is about to be replaced.", fault=Fault.RETRY, code="RENEWING")
        return ProducerWorker(self._properties, reported=self._reported, on_fatal=self._on_fatal, unbatched=unbatched)

    def _on_fatal(self, worker: ProducerWorker) -> None:
        """From any thread: this worker accepts no more records."""
        now = time.monotonic()
        with self._lock:
            self._worker = None if worker is self._worker else self._worker
            self._unbatched = None if worker is self._unbatched else self._unbatched
            self._renew_at = now + RENEW_DELAY_S if now - self._failed_at < FREQUENT_S else now
            self._failed_at = now
            self._failed = [*(one for one in self._failed if not one.ended), worker]
        _log.error("producer_failed: %s; it is replaced", worker.fatal)

    def _reported(
        self, worker: ProducerWorker, one: Sending, report: confluent_kafka.Message | KafkaError | Exception
    ) -> None:
        """On the worker's thread: the outcome of a record."""
        topic = one.outgoing.topic
        if isinstance(report, confluent_kafka.Message):
            notify(one.delivered, receipt(topic, report))
            return
        error = report if isinstance(report, KafkaError) else None
        purged = error is not None and error.name() in ("_PURGE_QUEUE", "_PURGE_INFLIGHT")
        if self._closing and purged:
            notify(one.delivered, closed(topic))
        elif (purged or is_fatal(error)) and not one.again:
            self._send(replace(one, again=True), unbatched=worker.unbatched)
        elif error is not None and fault_of(error) is Fault.TOO_LARGE and not (worker.unbatched or self._closing):
            self._send(one, unbatched=True)
        else:
            notify(one.delivered, sink_error(f"send to {topic}", worker.fatal if purged and worker.fatal else report))


def receipt(topic: str, report: confluent_kafka.Message) -> Receipt | SinkError:
    """Where the broker has put a record. The client also reports records as delivered without a place, because a later
    one of the partition was: of a partition that is new to the producer, the broker may have refused the first batch
    and taken the second. So only a place is a confirmation.
    """
    offset = report.offset()
    if offset is None or offset < 0:
        text = f"Could not send to {topic}: the client reported the record as delivered, and not where."
        return SinkError(text, fault=Fault.RETRY, code="UNCONFIRMED")
    return Receipt(topic, cast(int, report.partition()), offset)


def closed(topic: str) -> SinkError:
    text = f"Could not send to {topic}: the sink closed before the broker acknowledged the record."
    return SinkError(text, fault=Fault.RETRY, code="CLOSED")


def notify(delivered: Delivery, outcome: Receipt | SinkError) -> None:
    try:
        delivered(outcome)
    except Exception:  # noqa: BLE001 - raised into the client, it would break the reports of other records
        _log.exception("sink_delivery_callback_failed")
