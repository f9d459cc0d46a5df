"""What a user hands to the runner, called as the runner promises. Workers call it; see `Hooks`.

One function of the user's at a time; one that was given up after its time-out does not count any more.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from keepfast.classify.classification import classify
from keepfast.core.errors import DecodeError, Halt, KeepfastError, Signal, error_class
from keepfast.core.events import RecordEvent
from keepfast.core.guards import CallSpacing
from keepfast.core.records import Message, read_headers
from keepfast.core.runs import Run
from keepfast.core.serial_gate import SerialGate
from keepfast.decode.annotation import decoder_for
from keepfast.decode.failures import DECODE_FAILED, SCHEMA_INVALID, tombstone
from keepfast.runner.checking import LoggerAdapter
from keepfast.telemetry.event_log import RecordLog
from keepfast.telemetry.logs import Logger, get_logger, logger_for

Place = tuple[str, int, int]
"""Topic, partition, offset."""

MAX_CONTEXTS = 10_000
"""Records that failed and whose context is kept: more than can fail at the same time."""


class Anytime(SerialGate):
    """Any number at the same time."""

    @contextmanager
    def of(self, run: Run | None, **_: Any) -> Iterator[None]:  # noqa: ARG002 - as above
        yield


Deserialise = Callable[[str, Any, bytes | None], Any]
OBJECT = "a JSON object"


class ProcessingFailed(KeepfastError):
    """`process_message` returned a failure, as text; like every error that no rule knows, it is retried."""


class RetryableException(KeepfastError):
    """Raise it where a retry may help, whatever the cause: the record is retried. Also for `message_factory`."""


class NonRetryableException(KeepfastError):
    """Raise it where no retry will help, whatever the cause: the record is dead-lettered at once."""


class MessageRefused(DecodeError):
    """`message_factory` failed in a way that no rule knows. Whatever it was: the bytes will not become better."""


class Hooks:
    """The user's functions on the way of one record: bytes → `message_factory` → `process_message` → its result.

    `deserialise` is the consumer's own, where it has one: it is called in place of our decoder.
    Any worker may call it. With `one_at_a_time`, no two functions of the user ever run at the same time, but for one
    that was given up after its time-out.
    """

    def __init__(
        self,
        deserialise: Deserialise | None = None,
        *,
        process_message: Callable[[Any], Any],
        message_factory: Callable[[Any], Any] | None,
        message_context: Callable[[Any], object] | None,
        rate_limit_min_delay_ms: Callable[[], float] | None,
        logger: logging.Logger | LoggerAdapter | None,
        one_at_a_time: bool,
    ) -> None:
        self.process = process_message
        self._factory = message_factory
        self._context = message_context
        self._rate = rate_limit_min_delay_ms
        self._decode = decoder_for(dict[str, Any])
        self._deserialise = deserialise
        self.log: Logger = get_logger("keepfast.consumer") if logger is None else logger_for(logger)
        self.turn = SerialGate() if one_at_a_time else Anytime()
        self.spacing = None if self._rate is None else CallSpacing(overlapping=not one_at_a_time)
        """What `rate_limit_min_delay_ms` returned last: it may block, so a worker calls it."""
        self._contexts: OrderedDict[Place, str] = OrderedDict()
        self._lock = threading.Lock()  # guards the contexts

    @property
    def record_log(self) -> RecordLog:
        """The statements about records on the user's logger, with what `message_context` says."""
        return RecordLog(self.log, self._context_of)

    def call(self, message: Message, run: Run) -> None:
        """Handle one record; returns if it succeeded. Raises what the user's functions raise or return; NotBegun if
        the run is stopped before its turn has come.
        """
        with self.turn.of(run):
            self._call(message)

    def _call(self, message: Message) -> None:
        known = self.parse(message)
        try:
            _judge(self.process(known))
        except Signal:
            raise
        except Exception:
            self._note_context(known, message)
            raise
        finally:
            self._note_call()

    def parse(self, message: Message) -> Any:
        """The user's message. Raises DecodeError, or what `message_factory` raises."""
        data = self.data(message)
        if self._factory is None:
            return data
        try:
            return self._factory(data)
        except KeepfastError:
            raise
        except Exception as error:
            if classify(error).kind != "retryable":
                raise
            text = f"message_factory failed with {type(error).__name__}"
            raise MessageRefused(text, code=SCHEMA_INVALID, error_class=error_class(error)) from error

    def data(self, message: Message) -> Any:
        """The decoded value: a JSON object, or what the consumer's own deserialiser makes of them."""
        value = message.value()
        if self._deserialise is None:
            return self._decode(value)
        if value is None:
            raise tombstone(OBJECT)
        try:
            return self._deserialise(message.topic(), list(read_headers(message)), value)
        except Exception as error:  # noqa: BLE001 - whatever the bytes provoke becomes an outcome
            kind, known = type(error).__name__, error_class(error)
        # Raised outside the except block: such an error may quote the payload and must not travel as __context__.
        raise DecodeError(f"the consumer's value_deserializer failed ({kind})", code=DECODE_FAILED, error_class=known)

    def own_error(self, message: Message, error: BaseException | None) -> BaseException | None:
        """What the consumer's own deserialiser raised, where `error` stands for it; else `error` itself.

        Only for the user's functions, which get the value, too: it may quote the payload.
        """
        value = message.value()
        if type(error) is not DecodeError or self._deserialise is None or value is None:
            return error
        try:
            self._deserialise(message.topic(), list(read_headers(message)), value)
        except Exception as raised:  # noqa: BLE001 - it is what is looked for
            return raised
        return error

    def as_far_as_known(self, message: Message) -> Any:
        """The user's message; else the decoded value; else the bytes."""
        for read in (self.parse, self.data):
            with suppress(Exception):  # it has failed before, or the record would not be here
                return read(message)
        return message.value()

    def _note_call(self) -> None:
        """`process_message` was called: ask how long the next attempt has to wait."""
        if self._rate is None or self.spacing is None:
            return
        try:
            self.spacing.min_delay_s = max(0.0, float(self._rate()) / 1000)
        except Exception as trouble:  # noqa: BLE001 - the last value holds
            self.log.error("rate_limit_min_delay_ms_failed", exc=trouble)  # noqa: TRY400 - our logger shows where
        self.spacing.calls += 1

    def _note_context(self, known: Any, message: Message) -> None:
        """What `message_context` says of a record that failed, for the statements about it."""
        if self._context is None:
            return
        try:
            text = str(self._context(known))
        except Exception as error:  # noqa: BLE001 - it is only there to make the log better
            text = f"(message_context failed: {type(error).__name__})"
        with self._lock:
            self._contexts[message.topic(), message.partition(), message.offset()] = text
            if len(self._contexts) > MAX_CONTEXTS:
                self._contexts.popitem(last=False)

    def _context_of(self, event: RecordEvent) -> Mapping[str, object]:
        with self._lock:
            text = self._contexts.get((event.topic, event.partition, event.offset))
        return {} if text is None else {"context": text}


def _judge(result: Any) -> None:
    """Raises the failure that a result stands for, if it is not success."""
    if result is None or result is True:
        return
    if result is False:
        raise ProcessingFailed("process_message returned False")
    if isinstance(result, Mapping) and isinstance(result.get("success"), bool):
        if result["success"]:
            return
        error = result.get("error")
        if isinstance(error, BaseException):
            raise error
        raise ProcessingFailed("success is False, and there is no error" if error is None else str(error))
    if inspect.iscoroutine(result):
        result.close()
    raise Halt(
        f"process_message returned something of type {type(result).__name__}, which is neither success nor failure;"
        ' return None, True or {"success": …, "error": …}, or raise'
    )
