"""Letters by the user's own `dlq_publisher`: it is called on a worker, and its answer is the receipt."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from queue import SimpleQueue

from keepfast.core.errors import Fault, SinkError
from keepfast.core.ports import Delivery, Sink
from keepfast.core.records import Message, Outgoing, Receipt
from keepfast.core.retry_topics import original
from keepfast.core.runs import FailedRecord
from keepfast.core.verdicts import DeadLetter
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.publisher import Publisher
from keepfast.runner.hooks import Hooks, MessageRefused

REPLY_TIMEOUT_S = 120.0
"""How long a future of the publisher may take: as long as kafka-python's producer tries to deliver a record."""

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

    False or an exception is a failure, after which it is called again, with growing pauses, for as long as the
    partition is ours; anything else is a receipt. A future or a coroutine is awaited, and its outcome counts in the
    same way. One call at a time, on a daemon thread.
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
        """Call the user's publisher, and wait for a future that it returns; blocks as long as that takes."""
        hooks, message = self._hooks, letter.message
        if message is None:
            return SinkError("A letter without a record.", fault=Fault.FATAL, code="NO_RECORD")
        try:
            with hooks.turn.of(None):
                error = hooks.own_error(message, letter.error)
                answer = self._publish(hooks.as_far_as_known(message), error, retry_count=letter.retry_count)
            published = _answered(answer) is not False
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the error becomes an outcome
            return _not_published(f"dlq_publisher failed with {type(error).__name__}")
        if not published:
            return _not_published("dlq_publisher returned False, which means that it is not published")
        if self._noted is not None and letter.about is not None:
            self._noted(letter.about)
        return Receipt(WHERE, message.partition(), -1)  # where it is, only the hook knows


def _answered(answer: object) -> object:
    """What a future comes to, of any library; anything else as it is. Raises what the future does, or TimeoutError."""
    if asyncio.isfuture(answer):
        return asyncio.run_coroutine_threadsafe(_awaited(answer), answer.get_loop()).result(REPLY_TIMEOUT_S)
    if inspect.iscoroutine(answer):
        return asyncio.run(_awaited(answer))
    for wait, notify in (("result", "add_done_callback"), ("get", "add_callback")):  # the second is kafka-python's
        if hasattr(answer, wait) and hasattr(answer, notify):
            return getattr(answer, wait)(REPLY_TIMEOUT_S)
    return answer


async def _awaited(answer: Awaitable[object]) -> object:
    return await asyncio.wait_for(answer, REPLY_TIMEOUT_S)


def _not_published(why: str) -> SinkError:
    return SinkError(why, fault=Fault.RETRY, code="NOT_PUBLISHED")
