"""One producer client with its reporting thread, and the records that wait for room in the client's queue."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Producer

from keepfast.core.ports import Delivery
from keepfast.core.records import Outgoing
from keepfast.kafka.client_log import LOGGER
from keepfast.kafka.faults import CLIENT_ERRORS, config_error, error_in

POLL_S = 0.1
"""How long one poll of the reporting thread waits. Each report wakes it; this only bounds the time to stop."""
RETRY_S = 0.01
"""How long one poll waits while records wait for room in the client's queue."""
LEAVE_TIMEOUT_S = 5.0
"""How long a client may take to report its remaining records after a fatal error."""


def produce(client: Producer, outgoing: Outgoing, on_delivery: Callable[[KafkaError | None, Any], None]) -> None:
    """Put it into the client's queue. Raises BufferError if that is full, and what else the client raises."""
    client.produce(
        outgoing.topic,
        value=outgoing.value,
        key=outgoing.key,
        partition=-1 if outgoing.partition is None else outgoing.partition,
        timestamp=outgoing.timestamp_ms or 0,
        headers=cast("list[tuple[str, str | bytes | None]]", list(outgoing.headers)),
        on_delivery=on_delivery,
    )


@dataclass(slots=True, frozen=True)
class Sending:
    """A record in flight. `again`: it was sent before, by a client that has failed since."""

    outgoing: Outgoing
    delivered: Delivery
    again: bool = False


Reported = Callable[["ProducerWorker", Sending, confluent_kafka.Message | KafkaError | Exception], None]


class ProducerWorker:
    """Any thread may call it. Every record put in is passed to `reported` exactly once, on the worker's own thread.

    `fatal` is the error after which the client accepts no records (an idempotent producer that has lost its sequence);
    `on_fatal` is called once when that happens, and then all records that were not acknowledged are reported.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        reported: Reported,
        on_fatal: Callable[[ProducerWorker], None],
        unbatched: bool = False,
        client: Producer | None = None,
    ) -> None:
        """Creates the client, unless one is given, and starts its thread. `unbatched`: one record a batch. Raises
        ConfigError.
        """
        if unbatched:
            properties = {**properties, "batch.num.messages": 1}
        try:
            made = Producer({**properties, "error_cb": _on_error, "logger": LOGGER}) if client is None else client
            self._client: Producer = made
        except CLIENT_ERRORS as error:
            raise config_error("producer", error) from error
        self.unbatched = unbatched
        self._reported = reported
        self._on_fatal = on_fatal
        self._lock = threading.Lock()  # guards the order of sending, and the fields below
        self._waiting: deque[Sending] = deque()
        self._leave_by: float | None = None
        self.fatal: KafkaError | None = None
        self._thread = threading.Thread(target=self._report, name="keepfast-sink", daemon=True)
        self._thread.start()

    def put(self, one: Sending) -> Exception | None:
        """Send it, or queue it until there is room. Returns why it cannot be sent at all (then nothing is reported)."""
        with self._lock:
            if self._waiting:
                self._waiting.append(one)
                return None
            try:
                self._produce(one)
                return None
            except BufferError:
                self._waiting.append(one)
                return None
            except CLIENT_ERRORS as error:
                failed = error
        if is_fatal(error_in(failed)):
            self._fail(error_in(failed))
        return failed

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def flush(self, deadline: float) -> None:
        """Wait until everything is reported, at most until the deadline."""
        # The reporting thread continues meanwhile: it also sends the records that still wait here.
        while (len(self._client) or self._waiting) and (left_s := deadline - time.monotonic()) > 0:
            self._serve(partial(self._client.flush, min(left_s, POLL_S)))

    def close(self) -> list[Sending]:
        """Stop now: records that are not acknowledged are reported, those that were never sent are returned."""
        with self._lock:
            self._leave_by = 0.0
            left = list(self._waiting)
            self._waiting.clear()
        self._thread.join()
        self._client.purge()
        self._serve(partial(self._client.flush, 1.0))  # serves the reports of what was purged; nothing is on the wire
        return left

    def _produce(self, one: Sending) -> None:
        def on_delivery(error: KafkaError | None, message: confluent_kafka.Message) -> None:
            self._reported(self, one, message if error is None else error)

        produce(self._client, one.outgoing, on_delivery)

    def _report(self) -> None:
        """The reporting thread. Polls until `close`, or until a failed client has reported everything."""
        while True:
            with self._lock:
                leave_by, crowded = self._leave_by, bool(self._waiting)
            if leave_by is not None and (time.monotonic() >= leave_by or not (crowded or len(self._client))):
                return
            self._serve(partial(self._client.poll, RETRY_S if crowded else POLL_S))
            if crowded:
                self._send_waiting()

    def _serve(self, call: Callable[[], object]) -> None:
        """The client raises a fatal error from the call that serves its events."""
        try:
            call()
        except KafkaException as exception:
            error = error_in(exception)
            if is_fatal(error):
                self._fail(error)
            else:
                LOGGER.warning("producer: %s", exception)

    def _fail(self, error: KafkaError | None) -> None:
        with self._lock:
            if self.fatal is not None or error is None:
                return
            self.fatal = error
            if self._leave_by is None:
                self._leave_by = time.monotonic() + LEAVE_TIMEOUT_S
        self._on_fatal(self)
        self._client.purge()

    def _send_waiting(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    return
                one = self._waiting[0]
                try:
                    self._produce(one)
                except BufferError:
                    return
                except CLIENT_ERRORS as error:
                    failed = error
                else:
                    self._waiting.popleft()
                    continue
                self._waiting.popleft()
            self._reported(self, one, error_in(failed) or failed)


def is_fatal(error: KafkaError | None) -> bool:
    """Whether the client accepts no records after this."""
    return error is not None and (error.fatal() or error.name() == "_FATAL")


def _on_error(error: KafkaError) -> None:
    LOGGER.warning("%s producer: %s", error.name(), error.str())
