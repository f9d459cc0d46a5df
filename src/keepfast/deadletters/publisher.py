"""Builds letters and passes them to the sink. A letter is built once; only the sending is repeated."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping

from keepfast.core.errors import DecodeError, KeepfastError, error_class, error_type, readable
from keepfast.core.inbox import origin_of
from keepfast.core.policies import LetterFormat
from keepfast.core.ports import Delivery, Sink, Spool
from keepfast.core.records import Message, Outgoing, Record
from keepfast.core.replays import ReplayMark
from keepfast.core.retry_topics import original, source_of
from keepfast.core.runs import FailedRecord
from keepfast.core.schemas import SchemaRef
from keepfast.core.verdicts import DeadLetter
from keepfast.deadletters import checked, ours
from keepfast.deadletters.fingerprint import fingerprint, user_frame, user_place
from keepfast.deadletters.letter import (
    MAX_MESSAGE,
    MAX_REASON,
    MAX_STACK,
    TIMESTAMP_TYPES,
    Attempted,
    Letter,
)
from keepfast.deadletters.writing import write
from keepfast.redact.masking import DEFAULT_RULES, MaskingRules


class Publisher:
    """Letters of one consumer. `topics` maps each source topic to its dead-letter topic, `partitions` has the number
    of partitions of those.

    A letter goes to its record's partition number; where there is no such partition, its key decides. That of a record
    which came back from retry topics is about the original record, with all its attempts. Error texts in the letter
    are masked; the original bytes never are. `spool` takes letters that the sink cannot deliver; `missing` is called
    with a topic that does not exist, `schema_of` with a record, to name its schema; both never block.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        topics: Mapping[str, str],
        partitions: Mapping[str, int],
        group: str,
        handler: str,
        app_version: str,
        form: LetterFormat = "envelope",
        masking: MaskingRules = DEFAULT_RULES,
        spool: Spool | None = None,
        missing: Callable[[str], None] | None = None,
        schema_of: Callable[[Message], SchemaRef | None] | None = None,
    ) -> None:
        self.spool = spool
        self.missing = missing
        self._sink = sink
        self._topics = topics
        self._partitions = partitions
        self._group = group
        self._handler = handler
        self._package = handler.partition(":")[0].partition(".")[0]
        self._app_version = app_version
        self._form: LetterFormat = form
        self._masking = masking
        self._schema_of = schema_of

    def letter(
        self,
        failed_record: FailedRecord,
        error: BaseException,
        verdict: DeadLetter,
        *,
        classification: str | None = None,
    ) -> Outgoing:
        """The letter: original key, original headers then ours, the value in the configured format."""
        letter = self.compose(failed_record, error, verdict, classification=classification)
        value, headers = write(letter, self._form)
        record = original(failed_record.message)
        topic = self._topics[source_of(failed_record.message)]
        return Outgoing(
            topic=topic,
            value=value,
            key=letter.key,
            headers=headers,
            partition=record.partition() if record.partition() < self._partitions.get(topic, 0) else None,
            timestamp_ms=None,
        )

    def compose(
        self,
        failed_record: FailedRecord,
        error: BaseException,
        verdict: DeadLetter,
        *,
        classification: str | None = None,
    ) -> Letter:
        """The contents of the letter, independent of the format."""
        message = original(failed_record.message)
        record = Record.of(message)
        kind, _ = message.timestamp()
        headers = ours.originals(record.headers)
        text, known_class = self._masking.short(_text_of(error), MAX_MESSAGE), error_class(error)
        if classification is None:
            classification = "non-retryable" if isinstance(error, KeepfastError) else "retryable"
        return Letter(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            timestamp_type=TIMESTAMP_TYPES[kind] if 0 <= kind < len(TIMESTAMP_TYPES) else "CreateTime",
            key=record.key,
            value=record.value,
            headers=headers,
            error_type=error_type(error),
            error_class=known_class,
            error_cause=error_class(_root_cause(error)),
            error_message=text,
            error_code=verdict.code,
            classification=classification,
            reason=self._masking.short(verdict.reason, MAX_REASON),
            fingerprint=fingerprint(known_class, text, user_frame(error, package=self._package)),
            stack_trace=self._masking.short_end(_stack_of(error), MAX_STACK),
            failed_at_ms=_ms(failed_record.attempts[-1].at) if failed_record.attempts else None,
            retry_count=max(0, failed_record.failures - 1),
            attempts=tuple(Attempted(_ms(attempt.at), attempt.error_type) for attempt in failed_record.attempts),
            group=self._group,
            handler=self._handler,
            app_version=self._app_version,
            trace_id=checked.trace_id(ours.last(headers, ours.TRACEPARENT)),
            origin=origin_of(failed_record.message, failed_record.partition.topic_id),
            replay=ReplayMark.of(record.headers, self._group),
            schema=self._schema_of(message) if self._schema_of is not None else None,
            format=self._form,
        )

    def place(self, error: BaseException) -> str:
        """`file:line` in the user's code where it was raised; empty if it was raised elsewhere."""
        return user_place(error, package=self._package)

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        self._sink.send(outgoing, delivered)


def _ms(wall_s: float) -> int:
    return max(0, round(wall_s * 1000))


def _root_cause(error: BaseException) -> BaseException:
    """What the error was raised from in the first place; itself if that is nothing."""
    seen = {id(error)}
    while error.__cause__ is not None and id(error.__cause__) not in seen:
        error = readable(error.__cause__)
        seen.add(id(error))
    return error


def _text_of(error: BaseException) -> str:
    try:
        return (isinstance(error, DecodeError) and error.detail) or str(error)
    except BaseException:  # noqa: BLE001  # whatever a foreign __str__ raises must not take the loop down with it
        return "(the error's text could not be read)"


def _stack_of(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(error)
        if isinstance(error, DecodeError) and error.trail:
            lines.append("Raised by the record's own validation at (most recent call last):\n")
            lines += (f'  File "{place.file}", line {place.line}, in {place.function}\n' for place in error.trail)
        return "".join(lines)
    except BaseException:  # noqa: BLE001  # nor may a foreign __repr__ or a broken traceback
        return ""
