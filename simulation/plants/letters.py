"""Plants in letters in flight: those that cannot be built, that are too large, or that are not accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keepfast.core.errors import Fault, SinkError
from keepfast.core.records import Outgoing, Receipt
from keepfast.core.runs import FailedRecord
from keepfast.deadletters.publisher import Publisher
from keepfast.engine.forwarding import ForwardedRecord, Forwarder
from simulation.plants.plant import Patch, plant

QUEUE = 2
"""So many letters have room in the producer of the plant that loses the next one."""


@plant
def p28_gives_a_letter_up_that_is_too_large(patch: Patch) -> None:
    """It is neither made smaller nor kept: its lane waits for it forever."""
    _given_up_if(patch, Fault.TOO_LARGE)


@plant
def p28_takes_a_letter_that_is_too_large_for_done(patch: Patch) -> None:
    _done_if(patch, Fault.TOO_LARGE)


@plant
def p29_takes_a_letter_for_done_when_its_topic_may_not_be_written_to(patch: Patch) -> None:
    _done_if(patch, Fault.REFUSED)


@plant
def p29_gives_a_letter_up_whose_topic_may_not_be_written_to(patch: Patch) -> None:
    _given_up_if(patch, Fault.REFUSED)


@plant
def p30_takes_a_letter_for_sent_when_the_queue_of_the_producer_is_full(patch: Patch) -> None:
    waiting: dict[Publisher, int] = {}

    def send(self: Publisher, outgoing: Outgoing, delivered: Any) -> None:
        if waiting.get(self, 0) >= QUEUE:
            delivered(Receipt(outgoing.topic, 0, 0))
            return

        def answered(outcome: Any) -> None:
            waiting[self] -= 1
            delivered(outcome)

        waiting[self] = waiting.get(self, 0) + 1
        before(self, outgoing, answered)

    before = patch.set(Publisher, "send", send)


@plant
def p46_cannot_build_a_letter_without_a_value(patch: Patch) -> None:
    def compose(self: Publisher, failed_record: FailedRecord, *args: Any, **named: Any) -> Any:
        if failed_record.message.value() is None:
            raise TypeError("a bytes-like object is required, not 'NoneType'")
        return before(self, failed_record, *args, **named)

    before = patch.set(Publisher, "compose", compose)


def _done_if(patch: Patch, fault: Fault) -> None:
    _instead(patch, fault, lambda self, record: self._done(record, "topic"))


def _given_up_if(patch: Patch, fault: Fault) -> None:
    _instead(patch, fault, lambda *_: None)


def _instead(patch: Patch, fault: Fault, act: Callable[[Forwarder, ForwardedRecord], None]) -> None:
    def not_published(self: Forwarder, record: ForwardedRecord, error: SinkError, now: float) -> None:
        if error.fault is fault and record.kind == "dead-letter":
            act(self, record)
        else:
            before(self, record, error, now)

    before = patch.set(Forwarder, "_not_published", not_published)
