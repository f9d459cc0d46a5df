"""Commits as transactions: offsets of a group together with the outputs of the records that they cover, or nothing.

What the client and the broker do, as far as this file depends on it (measured; Kafka 4.3, confluent-kafka 2.16.1,
decision 0049):

- A plain commit made while a transaction is open wins over it, whatever the transaction becomes: so there is none.
- `committed()` of a `read_committed` client waits while a transaction on the partition is open, until its timeout;
  UNSTABLE_OFFSET_COMMIT is never seen. A `read_uncommitted` client gets the old offset at once.
- Offsets with the metadata of an older generation are refused (classic), or those of partitions that have gone to
  another member (KIP-848); inside `on_revoked` they are still accepted.
- After its transaction timed out at the broker, a producer is fenced for good: a new one replaces it.
- The next transaction waits for the end of the last one at the broker by trying again every `retry.backoff.ms`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Producer

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import CommitOutcome, Position
from keepfast.core.records import Output
from keepfast.kafka.client_log import LOGGER
from keepfast.kafka.commits import CommitRequest
from keepfast.kafka.faults import CLIENT_ERRORS, config_error, error_in, sink_error, source_error
from keepfast.kafka.places import names_of
from keepfast.kafka.producer_worker import produce
from keepfast.kafka.source import CLOSED, KafkaSource, client_position

CALL_S = 1.0
"""Longest wait in one call of the client; what it says can be repeated is."""
GIVE_UP_S = 30.0
"""From when on a step that is repeated has failed. The broker aborts what is open long before."""
REPLY_POLL_S = 0.005
"""Longest poll while a transaction is under way: its answer comes from another thread."""
FLUSH_EVERY = 1000
PURGED = ("_PURGE_QUEUE", "_PURGE_INFLIGHT")


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is to be committed, by the member that this metadata is about."""

    positions: tuple[Position, ...]
    member: Any


class Unknown(Exception):
    """Whether the transaction was committed is not known."""


class TransactionWorker:
    """One transaction at a time, on a thread of its own: every step of it blocks. Any thread may call it.

    `properties` are the producer's. `answered` gets the outcome of each, on the worker's thread; None if it is unknown.
    """

    def __init__(
        self, properties: Mapping[str, Any], answered: Callable[[Transaction, CommitOutcome | None], None]
    ) -> None:
        self._properties = dict(properties)
        self._answered = answered
        self._waiting: SimpleQueue[Transaction | None] = SimpleQueue()
        self._producer: Producer | None = None
        self._made: Producer | None = None  # and not ready yet
        self._thread = threading.Thread(target=self._work, name="keepfast-transactions", daemon=True)

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    def start(self) -> None:
        """Raises ConfigError."""
        self._made = self._make()
        self._thread.start()

    def begin(self, transaction: Transaction) -> None:
        """Never blocks."""
        self._waiting.put(transaction)

    def close(self, timeout_s: float) -> None:
        """Wait for the one under way, at most timeout_s."""
        self._waiting.put(None)
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while (transaction := self._waiting.get()) is not None:
            try:
                outcome = self._carry_out(transaction)
            except Unknown:
                outcome = None
            except BaseException:  # noqa: BLE001 - the thread's edge: whatever it is, nothing is known of the transaction
                LOGGER.exception("transaction_failed")
                outcome, self._producer = None, None
            self._answered(transaction, outcome)

    def _carry_out(self, transaction: Transaction) -> CommitOutcome:
        """Raises Unknown."""
        begun = committing = False
        try:
            producer = self._ready()
            producer.begin_transaction()
            begun = True
            refused = _produce(producer, transaction.positions)
            if refused is not None:
                self._abort()
                return _refused(transaction.positions, *refused)
            offsets = list(map(client_position, transaction.positions))
            _repeat(partial(producer.send_offsets_to_transaction, offsets, transaction.member))
            committing = True
            _repeat(producer.commit_transaction)
        except CLIENT_ERRORS as error:
            inner = error_in(error)
            aborts = inner is not None and inner.txn_requires_abort()
            if committing and not aborts:
                self._producer = None
                LOGGER.warning("transaction_unknown: %s", error)
                raise Unknown from error
            if not begun or (inner is not None and inner.fatal()):
                self._producer = None  # the next one ends what this one has left open
            elif not self._abort() and committing:
                raise Unknown from error
            return _failed(transaction.positions, error)
        return CommitOutcome(transaction.positions)

    def _ready(self) -> Producer:
        """Raises what the client raises."""
        if self._producer is None:
            made, self._made = self._made or self._make(), None
            _repeat(made.init_transactions)
            self._producer = made
        return self._producer

    def _make(self) -> Producer:
        try:
            return Producer({**self._properties, "error_cb": _on_error, "logger": LOGGER})
        except CLIENT_ERRORS as error:
            raise config_error("producer", error) from error

    def _abort(self) -> bool:
        """Whether it is known to be aborted. If not, a new producer replaces this one, which aborts it."""
        producer = self._producer
        try:
            if producer is not None:
                _repeat(producer.abort_transaction)
                return True
        except CLIENT_ERRORS as error:
            LOGGER.warning("transaction_not_aborted: %s", error)
            self._producer = None
        return False


def _repeat(call: Callable[[float], object]) -> None:
    """Until it succeeds, or fails for good. Raises what the client raises."""
    until = time.monotonic() + GIVE_UP_S
    while True:
        try:
            call(CALL_S)
            return
        except KafkaException as error:
            inner = error_in(error)
            if inner is None or not inner.retriable() or time.monotonic() >= until:
                raise


def _produce(producer: Producer, positions: Sequence[Position]) -> tuple[Position, Output, KafkaError] | None:
    """Produce all outputs, and wait until each is acknowledged. Returns one that was refused, of those that the client
    has not given up because of another.
    """
    refused: list[tuple[Position, Output, KafkaError]] = []

    def delivered(position: Position, output: Output, error: KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is not None:
            refused.append((position, output, error))

    count = 0
    for position in positions:
        for output in position.outputs:
            _produce_one(producer, output, partial(delivered, position, output))
            count += 1
            if count % FLUSH_EVERY == 0:
                producer.poll(0)
    until = time.monotonic() + GIVE_UP_S
    while count and not refused and producer.flush(CALL_S) and time.monotonic() < until:
        pass
    if not refused:
        return None
    producer.poll(0)
    return next((one for one in refused if one[2].name() not in PURGED), refused[0])


def _produce_one(producer: Producer, output: Output, delivered: Callable[..., None]) -> None:
    while True:
        try:
            produce(producer, output.outgoing, delivered)
            return
        except BufferError:
            producer.poll(0.05)
        except KafkaException as error:
            inner = error_in(error)
            if inner is None or inner.fatal():
                raise
            delivered(inner, None)
            return


def _refused(positions: Sequence[Position], position: Position, output: Output, error: KafkaError) -> CommitOutcome:
    """One output was refused: that is the failure of its own partition; the others go again."""
    reason = sink_error(f"send to {output.outgoing.topic}", error)
    fault = Fault.REFUSED if reason.fault is Fault.TOO_LARGE else reason.fault
    own = SourceError(f"The transaction was aborted. {reason}", fault=fault, code=reason.code)
    own.refused = output, reason
    others = SourceError(f"The transaction was aborted. {reason}", fault=Fault.RETRY, code=reason.code)
    return CommitOutcome((), tuple((one, own if one is position else others) for one in positions))


def _failed(positions: Sequence[Position], error: Exception) -> CommitOutcome:
    inner = error_in(error)
    reason = source_error(f"commit {names_of([one.place for one in positions])} in a transaction", inner or error)
    if reason.fault is Fault.FATAL:  # of the producer, which is replaced; not of the member
        reason = SourceError(str(reason), fault=Fault.RETRY, code=reason.code)
    return CommitOutcome((), tuple((one, reason) for one in positions))


def _on_error(error: KafkaError) -> None:
    LOGGER.warning("%s producer: %s", error.name(), error.str())


class TransactionalSource(KafkaSource):
    """A member of a group whose commits are transactions. `producer`: the properties of their producer.

    Where the outcome of one cannot be known, nothing may be sent again: the member leaves its partitions, and a new
    one begins at what is committed.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        producer: Mapping[str, Any],
        classic: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(properties, classic=classic)
        self._worker = TransactionWorker(producer, self._on_answer)
        self._transaction: Transaction | None = None
        self._answer: CommitOutcome | None = None
        self._has_answer = threading.Event()

    def _make(self) -> None:
        super()._make()
        if not self._worker.started:
            self._worker.start()

    def commit(self, positions: Sequence[Position]) -> None:
        """See `core.ports.Source`: all positions with their outputs, or nothing."""
        if self._transaction is not None or self._unsent is not None:
            raise SourceError("A commit is already in flight: wait for its outcome.", fault=Fault.FATAL, code="BUSY")
        try:
            member = self._open.consumer_group_metadata()
        except CLIENT_ERRORS as error:
            self._not_sent(CommitRequest(tuple(positions)), error)
            return
        self._transaction = Transaction(tuple(positions), member)
        self._worker.begin(self._transaction)

    def poll(self, timeout_s: float) -> Any:
        return super().poll(min(timeout_s, REPLY_POLL_S) if self._transaction is not None else timeout_s)

    def serve(self, timeout_s: float) -> float:
        """As of any source. A transaction whose outcome is unknown counts as absent."""
        if self._transaction is not None and self._has_answer.wait(timeout_s):
            if self._answer is None:
                return float("inf")
            self._take_answer()
            return 0.0
        return 0.0 if self._transaction is not None else super().serve(timeout_s)

    def _on_answer(self, transaction: Transaction, outcome: CommitOutcome | None) -> None:
        """On the worker's thread. Nothing waits any more for one that the last client has begun."""
        if transaction is self._transaction:
            self._answer = outcome
            self._has_answer.set()

    def _take_answer(self) -> None:
        self._has_answer.clear()
        outcome, transaction = self._answer, self._transaction
        self._answer = self._transaction = None
        if outcome is not None:
            self._notify(self._listener.on_committed, outcome)
        elif transaction is not None:
            if not self._closing:
                self._renew()
            self._notify(self._listener.on_committed, CommitRequest(transaction.positions).all_failed(CLOSED))

    def _before(self) -> bool:
        answered = self._has_answer.is_set()
        if answered:
            self._take_answer()
        return super()._before() or answered

    def _drop_unanswered(self) -> None:
        """The client is replaced or closed, and its partitions are lost: what becomes of the transaction under way is
        for their next owner to find out.
        """
        super()._drop_unanswered()
        transaction, self._transaction = self._transaction, None
        self._has_answer.clear()
        if transaction is not None:
            self._unsent = CommitRequest(transaction.positions).all_failed(CLOSED)

    def close(self, *, leave: bool = True) -> None:
        super().close(leave=leave)
        self._worker.close(CALL_S)
