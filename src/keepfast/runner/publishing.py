"""Letters by the user's own `dlq_publisher`: it is called on a worker, and its answer is the receipt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from keepfast.core.errors import Fault, SinkError
from keepfast.core.ports import Delivery, Sink
from keepfast.core.records import Message, Outgoing, Receipt
from keepfast.core.retry_topics import original
from keepfast.core.runs import FailedRecord
from keepfast.core.verdicts import DeadLetter
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.publisher import Publisher
from keepfast.runner.hooks import Hooks, MessageRefused

WHERE = "dlq_publisher"
"""Stands for the topic, which only the user knows."""

DlqPublisher = Callable[..., object]


@dataclass(frozen=True, slots=True)
class HookLetter(Outgoing):
    """What `dlq_publisher` is called with. `about` is the same as a letter of ours, for tests."""

    message: Message | None = None
    error: BaseException | None = None
    retry_count: int = 0
    about: Letter | None = None


class NoSink:
    """In place of a sink where nothing of ours is sent."""

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        delivered(SinkError(f"There is no way to send to {outgoing.topic}.", fault=Fault.FATAL, code="NO_SINK"))

    def close(self, timeout_s: float) -> None:
        pass


class HookPublisher(Publisher):
    """`dlq_publisher(message, error, retry_count=n)` in place of letters of ours.

    None or True is a receipt; False, anything else, or an exception is a failure, after which it is called again, with
    growing pauses, for as long as the partition is ours. One call at a time, on a daemon thread.
    """

    def __init__(
        self,
        publish: DlqPublisher,
        hooks: Hooks,
        sink: Sink,
        *,
        group: str,
        handler: str,
        noted: Callable[[Letter], None] | None = None,
    ) -> None:
        super().__init__(sink, topics={}, partitions={}, group=group, handler=handler, app_version="")
        self._publish = publish
        self._hooks = hooks
        self._noted = noted
        self._waiting: SimpleQueue[tuple[HookLetter, Delivery]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def letter(
        self,
        failed_record: FailedRecord,
        error: BaseException,
        verdict: DeadLetter,
        *,
        classification: str | None = None,
    ) -> Outgoing:
        cause = error.__cause__ if isinstance(error, MessageRefused) and error.__cause__ is not None else error
        about = (
            None if self._noted is None else self.compose(failed_record, cause, verdict, classification=classification)
        )
        retries = max(0, failed_record.failures - 1)
        return HookLetter(
            WHERE, None, message=original(failed_record.message), error=cause, retry_count=retries, about=about
        )

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        if not isinstance(outgoing, HookLetter):
            super().send(outgoing, delivered)
        else:
            self.hand_over(outgoing, delivered)

    def hand_over(self, letter: HookLetter, delivered: Delivery) -> None:
        """To the thread that calls the user's publisher."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="runner-dlq", daemon=True)
            self._thread.start()
        self._waiting.put((letter, delivered))

    def _run(self) -> None:
        while True:
            letter, delivered = self._waiting.get()
            delivered(self.outcome(letter))

    def outcome(self, letter: HookLetter) -> Receipt | SinkError:
        """Call the user's publisher; blocks as long as that does."""
        hooks, message = self._hooks, letter.message
        if message is None:
            return SinkError("A letter without a record.", fault=Fault.FATAL, code="NO_RECORD")
        known: Any = None
        try:
            with hooks.turn.of(None):
                known = hooks.as_far_as_known(message)
                answer = self._publish(known, letter.error, retry_count=letter.retry_count)
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the error becomes an outcome
            text = f"dlq_publisher failed with {type(error).__name__}"
            return SinkError(text, fault=Fault.RETRY, code="NOT_PUBLISHED")
        if answer is None or answer is True:
            hooks.log.info(
                "dead_letter_published", **hooks.about(known), retry_count=letter.retry_count, **_place(message)
            )
            if self._noted is not None and letter.about is not None:
                self._noted(letter.about)
            return Receipt(WHERE, message.partition(), -1)  # where it is, only the hook knows
        returned = "False" if answer is False else f"something of type {type(answer).__name__}"
        text = f"dlq_publisher returned {returned}; only None and True mean that it is published"
        return SinkError(text, fault=Fault.RETRY, code="NOT_PUBLISHED")


def _place(message: Message) -> dict[str, object]:
    return {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
