"""A producer of confluent-kafka that somebody else has made, behind the port.

What it was made with cannot be read: whether it is idempotent, and how many replicas it waits for (all, unless its
maker said otherwise). Nor can it be replaced when it fails for good; then every record fails until the next start.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, cast

import confluent_kafka
from confluent_kafka import KafkaError, Producer

from keepfast.core.errors import ConfigError, Fault, SinkError
from keepfast.core.ports import Delivery, Outgoing, Receipt
from keepfast.kafka.faults import sink_error
from keepfast.kafka.line import Line, Sending
from keepfast.kafka.sink import closed, tell

_log = logging.getLogger("keepfast.kafka.sink")


class AdoptedSink:
    """Any thread may call it. Raises ConfigError for a client that is no plain Producer."""

    def __init__(self, client: Any) -> None:
        if type(client).produce is not Producer.produce:
            raise ConfigError(
                f"producer_factory: a {type(client).__name__} serialises by itself, but a letter is bytes already;"
                " return a plain confluent_kafka.Producer, or the dict of its configuration."
            )
        self._client: Producer = client
        self._lock = threading.Lock()  # guards the fields below
        self._line: Line | None = None
        self._closing = False

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        """Never blocks, never raises; calls `delivered` exactly once, from any thread, perhaps before this returns."""
        failed: Exception | None
        try:
            failed = self._open().put(Sending(outgoing, delivered))
        except Exception as error:  # noqa: BLE001 - whatever it is, it becomes the outcome of this record
            failed = error
        if failed is not None:
            tell(delivered, failed if isinstance(failed, SinkError) else _said(outgoing.topic, failed))

    def close(self, timeout_s: float) -> None:
        """Flush what is under way, by others too, for at most timeout_s."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._closing = True
            line, self._line = self._line, None
        if line is None:
            self._client.flush(timeout_s)
            return
        line.flush(deadline)
        for one in line.close():
            tell(one.delivered, closed(one.outgoing.topic))

    def _open(self) -> Line:
        with self._lock:
            if self._closing:
                raise SinkError("The sink is closed.", fault=Fault.FATAL, code="CLOSED")
            if self._line is None:
                self._line = Line({}, reported=self._reported, broke=_broke, client=self._client)
            return self._line

    def _reported(self, line: Line, one: Sending, word: confluent_kafka.Message | KafkaError | Exception) -> None:
        topic = one.outgoing.topic
        if isinstance(word, confluent_kafka.Message):
            tell(one.delivered, Receipt(topic, cast(int, word.partition()), cast(int, word.offset())))
        elif isinstance(word, KafkaError) and word.name() in ("_PURGE_QUEUE", "_PURGE_INFLIGHT"):
            tell(one.delivered, closed(topic) if line.fatal is None else _said(topic, line.fatal))
        else:
            tell(one.delivered, _said(topic, word))


def _said(topic: str, word: KafkaError | Exception) -> SinkError:
    return sink_error(f"send to {topic}", word)


def _broke(line: Line) -> None:
    _log.error("producer_failed: %s; it came from producer_factory and is not replaced: restart", line.fatal)
