"""The simulated producing client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from zlib import crc32

from keepfast.core.errors import Fault, SinkError
from keepfast.core.ports import Delivery
from keepfast.core.records import Outgoing, Receipt, TopicPartition
from keepfast.core.retry_topics import STEP
from keepfast.testing.fakes.acts import HandlerSent, LetterSent, SpooledLetterSent
from keepfast.testing.fakes.broker import FakeBroker
from keepfast.testing.fakes.clock import Action
from keepfast.testing.fakes.faults import SendFault
from keepfast.testing.fakes.process import Process
from keepfast.testing.fakes.trace import LetterAcked, LetterFailed, LetterWritten

OUTPUT = "output"
"""Where handlers send to."""


class FakeSink:
    """Implements `core.ports.Sink`. Deliveries are reported by events of the clock, as if from another thread.

    `sent[n]` and `acked[n]` hold what was sent and acknowledged under the number n of the trace's letters.
    """

    def __init__(self, process: Process, broker: FakeBroker) -> None:
        self._process = process
        self._broker = broker
        self._waiting: dict[int, Delivery] = {}
        self._closed = False
        self._arrives_at = 0.0
        self._answers_at = 0.0
        self.sent: list[Outgoing] = []
        self.acked: dict[int, Receipt] = {}

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        self._process.enter()
        self._send(outgoing, delivered, LetterSent)

    def send_spooled(self, outgoing: Outgoing, delivered: Delivery) -> None:
        """Send from a background thread: the spool's."""
        self._send(outgoing, delivered, SpooledLetterSent)

    def send_in_transaction(self, outgoing: Outgoing) -> int:
        """It is part of the next commit, which writes it. Returns its number."""
        self.sent.append(outgoing)
        self._note(len(self.sent) - 1, LetterSent)
        return len(self.sent) - 1

    def send_by_handler(self, outgoing: Outgoing, delivered: Delivery) -> None:
        """Send from the thread of a handler."""
        self._send(outgoing, delivered, HandlerSent)

    def _send(
        self, outgoing: Outgoing, delivered: Delivery, event: type[LetterSent | SpooledLetterSent | HandlerSent]
    ) -> None:
        number = len(self.sent)
        self.sent.append(outgoing)
        self._waiting[number] = delivered
        self._note(number, event)
        if self._closed:
            self._fail(number, Fault.FATAL, "_STATE")
        elif self._size(outgoing) > self._broker.settings.max_message_bytes:
            self._fail(number, Fault.TOO_LARGE, "MSG_SIZE_TOO_LARGE")  # the client itself reports it, before it returns
        else:
            # An idempotent producer keeps the order, and what is on the wire is written even if the process dies.
            settings, handlers = self._broker.settings, outgoing.topic == OUTPUT
            delay_s = self._broker.rng.uniform(*(settings.output_delay_s if handlers else settings.ack_delay_s))
            if handlers:  # another topic: its records may be acknowledged sooner or later
                self._broker.data.after(delay_s, lambda: self._arrive(number, outgoing))
                return
            now = self._now()
            self._arrives_at = max(self._arrives_at, now + delay_s)
            self._broker.data.after(self._arrives_at - now, lambda: self._arrive(number, outgoing))

    def _note(self, number: int, event: type[LetterSent | SpooledLetterSent | HandlerSent]) -> None:
        headers = self.sent[number].headers
        letter = next((value or b"" for name, value in headers if name == "keepfast-letter-id"), b"")
        self._broker.trace.add(event(self._now(), self._process.name, number, letter.decode()))

    def close(self, timeout_s: float) -> None:
        self._process.enter()
        self._process.wait(timeout_s, lambda: not self._waiting)
        self._closed = True
        for number in sorted(self._waiting):
            self._fail(number, Fault.RETRY, "_PURGE_QUEUE")

    def _arrive(self, number: int, outgoing: Outgoing) -> None:
        fault = self._broker.faults.sends.take()
        place = self._place(outgoing)
        if place is None:
            self._answer(lambda: self._fail(number, Fault.MISSING, "UNKNOWN_TOPIC_OR_PART"))
        elif fault is SendFault.RETRY:
            self._answer(lambda: self._fail(number, Fault.RETRY, "_MSG_TIMED_OUT"))
        elif fault is SendFault.REFUSED:
            self._answer(lambda: self._fail(number, Fault.REFUSED, "TOPIC_AUTHORIZATION_FAILED"))
        elif fault is SendFault.TOO_LARGE and outgoing.topic == OUTPUT:  # final, and not what a handler's size is for
            self._answer(lambda: self._fail(number, Fault.RETRY, "_MSG_TIMED_OUT"))
        elif fault is SendFault.TOO_LARGE:
            self._answer(lambda: self._fail(number, Fault.TOO_LARGE, "MSG_SIZE_TOO_LARGE"))
        else:
            offset = self._broker.produce(
                place,
                value=outgoing.value,
                key=outgoing.key,
                headers=outgoing.headers,
                timestamp_ms=outgoing.timestamp_ms,
            )
            self._broker.trace.add(LetterWritten(self._now(), self._process.name, number, place, offset))
            if any(name == STEP for name, _ in outgoing.headers):
                self._broker.trace.fault("moved_to_a_retry_topic")
            if fault is SendFault.WRITTEN:
                self._answer(lambda: self._fail(number, Fault.RETRY, "_MSG_TIMED_OUT"))
            else:
                self._answer(lambda: self._ack(number, Receipt(place.topic, place.partition, offset)))

    def _answer(self, action: Action) -> None:
        now = self._now()
        self._answers_at = max(self._answers_at, now + self._broker.rng.uniform(*self._broker.settings.latency_s))
        self._process.later(self._answers_at - now, action)

    def _ack(self, number: int, receipt: Receipt) -> None:
        delivered = self._waiting.pop(number, None)
        if delivered is None:
            return
        self.acked[number] = receipt
        place = TopicPartition(receipt.topic, receipt.partition)
        self._broker.trace.add(LetterAcked(self._now(), self._process.name, number, place, receipt.offset))
        delivered(receipt)

    def _fail(self, number: int, fault: Fault, code: str) -> None:
        delivered = self._waiting.pop(number, None)
        if delivered is None:
            return
        self._broker.trace.add(LetterFailed(self._now(), self._process.name, number, code))
        topic = self.sent[number].topic
        delivered(SinkError(f"a record for {topic} was not acknowledged: {code}", fault=fault, code=code))

    def _place(self, outgoing: Outgoing) -> TopicPartition | None:
        partitions = self._broker.partitions(outgoing.topic)
        if partitions is None:
            return None
        if outgoing.partition is not None:
            return TopicPartition(outgoing.topic, outgoing.partition) if outgoing.partition < partitions else None
        if outgoing.key is None:
            return TopicPartition(outgoing.topic, self._broker.rng.randrange(partitions))
        return TopicPartition(outgoing.topic, crc32(outgoing.key) % partitions)

    def _size(self, outgoing: Outgoing) -> int:
        headers = sum(len(name) + len(value or b"") for name, value in outgoing.headers)
        return len(outgoing.value or b"") + len(outgoing.key or b"") + headers

    def _now(self) -> float:
        return self._process.clock.monotonic()


class HandlerSink:
    """Implements `core.ports.Sink` for `ctx.send`. The key of what is sent is the number of the call that sends it.

    `unanswered` counts by call what is neither acknowledged nor failed; `answering` is called before each answer.
    """

    def __init__(self, sink: FakeSink, answering: Callable[[], None]) -> None:
        self._sink = sink
        self._answering = answering
        self.unanswered: Counter[int] = Counter()
        self.close = sink.close

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        call = int(outgoing.key or b"")
        self.unanswered[call] += 1

        def answered(outcome: Receipt | SinkError) -> None:
            self._answering()
            self.unanswered[call] -= 1
            delivered(outcome)

        self._sink.send_by_handler(outgoing, answered)
