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
- After the brokers were restarted while the producer was idle, `send_offsets_to_transaction` may never return, whatever
  its timeout (librdkafka #5456, #5511). A producer cannot be destroyed while one of its calls has not returned.
- Offsets without a member id and with a negative generation count as those of a program outside of the group, and may
  be stored while the group has members.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Producer

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import PRODUCER_HANGS, CommitOutcome, Position
from keepfast.core.records import Output
from keepfast.kafka.call_thread import CallThread, Hangs
from keepfast.kafka.client_log import LOGGER
from keepfast.kafka.commits import CommitRequest
from keepfast.kafka.faults import CLIENT_ERRORS, config_error, error_in, sink_error, source_error
from keepfast.kafka.places import names_of
from keepfast.kafka.producer_worker import produce
from keepfast.kafka.source import CLOSED, KafkaSource, client_position

CALL_S = 1.0
"""Longest wait in one call of the client; what it says can be repeated is."""
GIVE_UP_S = 15.0
"""From when on a step that is repeated has failed, and a call that should return after CALL_S hangs. The broker aborts
what is open before.
"""
MAX_HUNG = 3
"""So many producers may hang at the same time before the consumer fails: none of them can be destroyed."""
REPLY_POLL_S = 0.005
"""Longest poll while a transaction is under way: its answer comes from another thread."""
FLUSH_EVERY = 1000
PURGED = ("_PURGE_QUEUE", "_PURGE_INFLIGHT")


NO_MEMBER = SourceError(
    "The consumer is no member of its group at the moment; it commits when it has joined again.",
    fault=Fault.REBALANCING,
    code="NO_MEMBER",
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is to be committed, by the member that this metadata is about."""

    positions: tuple[Position, ...]
    member: Any


class Unknown(Exception):
    """Whether the transaction was committed is not known."""

    def __init__(self, reason: SourceError) -> None:
        super().__init__(str(reason))
        self.reason = reason


Answer = CommitOutcome | SourceError
"""The outcome of a transaction, or why it is not known."""


class TransactionWorker:
    """One transaction at a time, on a thread of its own: every step of it blocks. Any thread may call it.

    The producer's calls are made by another thread, the `CallThread`. If one does not return, that thread and its
    producer are given up, and a new producer fences the old one. `properties` are the producer's. `answered` gets the
    answer of each transaction, on the worker's thread.
    """

    def __init__(self, properties: Mapping[str, Any], answered: Callable[[Transaction, Answer], None]) -> None:
        self._properties = dict(properties)
        self._answered = answered
        self._waiting: SimpleQueue[Transaction | None] = SimpleQueue()
        self._producer: Producer | None = None
        self._made: Producer | None = None  # and not ready yet
        self._calls = CallThread("keepfast-transaction-calls")
        self._hung: list[CallThread] = []
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
            answer: Answer
            try:
                answer = self._carry_out(transaction)
            except Unknown as unknown:
                answer = unknown.reason
            except BaseException as error:  # noqa: BLE001 - the thread's edge: nothing is known of the transaction
                LOGGER.exception("transaction_failed")
                answer, self._producer = _reason(transaction.positions, error), None
            self._answered(transaction, answer)
            if not isinstance(answer, CommitOutcome):
                self._end_open()
        self._calls.close()

    def _carry_out(self, transaction: Transaction) -> CommitOutcome:
        """Raises Unknown."""
        try:
            return self._attempt(transaction)
        except Hangs as error:
            raise Unknown(self._hang_reason(transaction.positions)) from error

    def _attempt(self, transaction: Transaction) -> CommitOutcome:
        """Raises Unknown and Hangs."""
        begun = committing = False
        positions = transaction.positions
        try:
            producer = self._ready()
            producer.begin_transaction()
            begun = True
            refused = self._produce(producer, positions)
            if refused is not None:
                self._abort()
                return _refused(positions, *refused)
            offsets = list(map(client_position, positions))
            self._repeat(partial(producer.send_offsets_to_transaction, offsets, transaction.member))
            committing = True
            self._repeat(producer.commit_transaction)
        except CLIENT_ERRORS as error:
            inner = error_in(error)
            aborts = inner is not None and inner.txn_requires_abort()
            if committing and not aborts:
                self._producer = None
                LOGGER.warning("transaction_unknown: %s", error)
                raise Unknown(_reason(positions, error)) from error
            if not begun or (inner is not None and inner.fatal()):
                self._producer = None  # the next one ends what this one has left open
            elif not self._abort() and committing:
                raise Unknown(_reason(positions, error)) from error
            return _failed(positions, error)
        return CommitOutcome(positions)

    def _ready(self) -> Producer:
        """Raises what the client raises, and Hangs."""
        if self._producer is None:
            made, self._made = self._made or self._make(), None
            self._repeat(made.init_transactions)
            self._producer = made
        return self._producer

    def _make(self) -> Producer:
        try:
            return Producer({**self._properties, "error_cb": _on_error, "logger": LOGGER})
        except CLIENT_ERRORS as error:
            raise config_error("producer", error) from error

    def _abort(self) -> bool:
        """Whether it is known to be aborted. If not, a new producer aborts it. Raises Hangs."""
        producer = self._producer
        try:
            if producer is not None:
                self._repeat(producer.abort_transaction)
                return True
        except CLIENT_ERRORS as error:
            LOGGER.warning("transaction_not_aborted: %s", error)
            self._producer = None
        return False

    def _end_open(self) -> None:
        """Let a new producer abort what the last one has left open: until then the group's offsets cannot be read. If
        it cannot, the next transaction tries again.
        """
        try:
            self._ready()
        except (Hangs, *CLIENT_ERRORS) as error:
            LOGGER.warning("transaction_not_aborted: %s", error)

    def _produce(self, producer: Producer, positions: Sequence[Position]) -> tuple[Position, Output, KafkaError] | None:
        """Produce all outputs, and wait until each is acknowledged. Returns one that was refused, of those that the
        client has not given up because of another. Raises Hangs.
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
        while count and not refused and self._call(partial(producer.flush, CALL_S), GIVE_UP_S):
            if time.monotonic() >= until:
                break
        if not refused:
            return None
        producer.poll(0)
        return next((one for one in refused if one[2].name() not in PURGED), refused[0])

    def _repeat(self, call: Callable[[float], object]) -> None:
        """Until it succeeds, or fails for good. Raises what the client raises, and Hangs."""
        until = time.monotonic() + GIVE_UP_S
        while True:
            try:
                self._call(partial(call, CALL_S), GIVE_UP_S)
                return
            except KafkaException as error:
                inner = error_in(error)
                if inner is None or not inner.retriable() or time.monotonic() >= until:
                    raise

    def _call(self, call: Callable[[], T], within_s: float) -> T:
        """Raises what the client raises. Raises Hangs if the call does not return: its producer is given up."""
        try:
            return self._calls.call(call, within_s)
        except Hangs:
            LOGGER.error("producer_hangs: a call has not returned for %g s; a new producer replaces it", within_s)
            self._hung = [*(one for one in self._hung if one.busy), self._calls]
            self._calls = CallThread("keepfast-transaction-calls")
            self._producer = None
            raise

    def _hang_reason(self, positions: Sequence[Position]) -> SourceError:
        names = names_of([one.place for one in positions])
        text = f"Could not commit {names} in a transaction: the producer has not answered for {GIVE_UP_S:g} s."
        if len(self._hung) < MAX_HUNG:
            return SourceError(f"{text} A new one replaces it.", fault=Fault.RETRY, code=PRODUCER_HANGS)
        text = f"{text} {MAX_HUNG} producers hang, and cannot be ended: the process must be restarted."
        return SourceError(text, fault=Fault.FATAL, code=PRODUCER_HANGS)


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
    reason = _reason(positions, error)
    return CommitOutcome((), tuple((one, reason) for one in positions))


def _reason(positions: Sequence[Position], error: BaseException) -> SourceError:
    what = f"commit {names_of([one.place for one in positions])} in a transaction"
    reason = source_error(what, error_in(error) or error)
    if reason.fault is Fault.FATAL:  # of the producer, which is replaced; not of the member
        return SourceError(str(reason), fault=Fault.RETRY, code=reason.code)
    return reason


def is_of_a_member(metadata: bytes) -> bool:
    """Whether `consumer_group_metadata` describes a member of the group: with a member id and a generation. A client
    that was excluded has neither until it joins again. A format that is not known counts as a member's.
    """
    head = b"CGMDv2:"
    behind = len(head) + struct.calcsize("=i")
    group, end, member = metadata[behind:].partition(b"\0")
    if not (metadata.startswith(head) and group and end):
        return True
    (generation,) = struct.unpack_from("=i", metadata, len(head))
    return bool(generation >= 0 and member.partition(b"\0")[0])


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
        self._answer: Answer | None = None
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
        if not is_of_a_member(bytes(member)):
            self._unsent = CommitRequest(tuple(positions)).all_failed(NO_MEMBER)
            return
        self._transaction = Transaction(tuple(positions), member)
        self._worker.begin(self._transaction)

    def poll(self, timeout_s: float) -> Any:
        return super().poll(min(timeout_s, REPLY_POLL_S) if self._transaction is not None else timeout_s)

    def serve(self, timeout_s: float) -> float:
        """As of any source. A transaction whose outcome is unknown counts as absent."""
        if self._transaction is not None and self._has_answer.wait(timeout_s):
            if not isinstance(self._answer, CommitOutcome):
                return float("inf")
            self._take_answer()
            return 0.0
        return 0.0 if self._transaction is not None else super().serve(timeout_s)

    def _on_answer(self, transaction: Transaction, answer: Answer) -> None:
        """On the worker's thread. Nothing waits any more for one that the last client has begun."""
        if transaction is self._transaction:
            self._answer = answer
            self._has_answer.set()

    def _take_answer(self) -> None:
        self._has_answer.clear()
        answer, transaction = self._answer, self._transaction
        self._answer = self._transaction = None
        if isinstance(answer, CommitOutcome):
            self._notify(self._listener.on_committed, answer)
        elif answer is not None and transaction is not None:
            self._notify(self._listener.on_error, answer, None)
            if not self._closing and answer.fault is not Fault.FATAL:
                self._has_failed = True  # nothing more may be committed by this member
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
