"""Records that become visible together: one Kafka transaction after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Producer

from keepfast.core.errors import Fault, SinkError
from keepfast.core.ports import PRODUCER_HANGS
from keepfast.core.records import Outgoing, Receipt
from keepfast.kafka.call_thread import CallThread, Hangs
from keepfast.kafka.client_log import LOGGER
from keepfast.kafka.config import Connection, Producing, Properties, sink_properties
from keepfast.kafka.faults import CLIENT_ERRORS, config_error, error_in, sink_error
from keepfast.kafka.producer_worker import produce
from keepfast.kafka.sink import receipt

REQUEST_TIMEOUT_S: Final = 30.0
GIVE_UP_S: Final = REQUEST_TIMEOUT_S + 15.0
"""When a call counts as one that hangs, as some do whatever their timeout (librdkafka #5456, #5511)."""
TRANSACTION_TIMEOUT_MS: Final = 15_000
"""How long a transaction of a process that died keeps readers waiting, unless it is resumed before."""
POLL_S: Final = 0.05
FENCED: Final = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


def transaction_properties(connection: Connection, transactional_id: str) -> Properties:
    """For `TransactionalSink`."""
    return {
        **sink_properties(connection, Producing(linger_ms=5)),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS - 1_000,
    }


class TransactionalSink:
    """One thread. Raises SinkError; `code` FENCED: another process has begun with the same transactional id. After
    PRODUCER_HANGS it can only be closed; another sink fences what it has left open.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)
        self._made: Producer | None = None
        self._calls = CallThread("keepfast-transaction-calls")

    def open(self) -> None:
        """Abort what an earlier process has left open, and keep it from writing more."""
        try:
            self._made = Producer({**self._properties, "logger": LOGGER})
        except CLIENT_ERRORS as error:
            raise config_error("producer", error) from error
        self._call("begin with transactions", lambda: self._client.init_transactions(REQUEST_TIMEOUT_S))

    def begin(self) -> None:
        self._call("begin a transaction", self._client.begin_transaction)

    def send(self, records: Sequence[Outgoing]) -> list[Receipt | SinkError]:
        """Send them in the open transaction, and wait until each is answered."""
        answers: list[Receipt | SinkError | None] = [None] * len(records)
        for number, record in enumerate(records):
            self._produce(record, number, answers)
        self._call("send", lambda: self._client.flush(REQUEST_TIMEOUT_S))
        late = SinkError("The broker gave no answer in time.", fault=Fault.RETRY, code="TIMED_OUT")
        return [late if answer is None else answer for answer in answers]

    def commit(self) -> None:
        self._call("commit the transaction", lambda: self._client.commit_transaction(REQUEST_TIMEOUT_S))

    def abort(self) -> None:
        self._call("abort the transaction", lambda: self._client.abort_transaction(REQUEST_TIMEOUT_S))

    def close(self) -> None:
        """Never raises. An open transaction is aborted by the broker, or by the next process."""
        if self._made is not None and not self._calls.busy:
            self._made.purge()
        self._made = None
        self._calls.close()

    def _produce(self, record: Outgoing, number: int, answers: list[Receipt | SinkError | None]) -> None:
        def delivered(error: KafkaError | None, message: confluent_kafka.Message) -> None:
            sent = receipt(record.topic, message) if error is None else sink_error(f"send to {record.topic}", error)
            answers[number] = sent

        while True:
            try:
                produce(self._client, record, delivered)
                return
            except BufferError:
                self._client.poll(POLL_S)
            except CLIENT_ERRORS as error:
                answers[number] = _translated(f"send to {record.topic}", error)
                return

    def _call(self, what: str, call: Callable[[], object]) -> None:
        try:
            self._calls.call(call, GIVE_UP_S)
        except Hangs as error:
            text = f"Could not {what}: the producer has not answered for {GIVE_UP_S:g} s."
            raise SinkError(text, fault=Fault.RETRY, code=PRODUCER_HANGS) from error
        except CLIENT_ERRORS as error:
            raise _translated(what, error) from error

    @property
    def _client(self) -> Producer:
        if self._made is None:
            raise SinkError("The sink is not open.", fault=Fault.FATAL, code="CLOSED")
        return self._made


def _translated(what: str, error: BaseException) -> SinkError:
    inner = error_in(error) if isinstance(error, KafkaException) else None
    found = sink_error(what, error)
    if inner is not None and inner.name() in FENCED:
        return SinkError(f"{found} Another process has taken over.", fault=Fault.FENCED, code="FENCED")
    return found
