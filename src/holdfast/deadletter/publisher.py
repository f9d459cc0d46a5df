"""Builds letters and hands them to the sink. A letter is built once; only the sending is repeated."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from dataclasses import replace

from holdfast.core.errors import HoldfastError
from holdfast.core.ports import Delivery, Outgoing, Sink
from holdfast.core.records import Record
from holdfast.core.runs import Case
from holdfast.core.verdicts import Bury
from holdfast.deadletter.envelope import Diagnosis, as_json, envelope, letter_id

LONGEST_MESSAGE = 4_000
LONGEST_STACK = 16_000


class Publisher:
    """Letters of one consumer. `topics` maps each source topic to where its letters go, `partitions` says how many
    those have.

    A letter goes to its record's partition number; where there is no such partition, its key decides.
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
    ) -> None:
        self._sink = sink
        self._topics = topics
        self._partitions = partitions
        self._group = group
        self._handler = handler
        self._app_version = app_version

    def letter(self, case: Case, error: BaseException, verdict: Bury) -> Outgoing:
        """The letter for a case: original key, original headers then ours, the envelope as value."""
        record = Record.of(case.message)
        final = isinstance(error, HoldfastError)
        diagnosis = Diagnosis(
            error_type=type(error).__name__,
            error_message=_text_of(error)[:LONGEST_MESSAGE],
            stack_trace="".join(traceback.format_exception(error))[-LONGEST_STACK:],
            classification="non-retryable" if final else "retryable",
            code=verdict.code,
            reason=verdict.reason,
            attempts=tuple((attempt.at, attempt.error_type) for attempt in case.attempts),
            group=self._group,
            handler=self._handler,
            app_version=self._app_version,
        )
        kept = [(name, value) for name, value in record.headers if not name.startswith("holdfast-")]
        ours = [
            ("holdfast-letter-id", letter_id(self._group, record).encode()),
            ("holdfast-error-code", verdict.code.encode("utf-8", "replace")),
        ]
        topic = self._topics[record.topic]
        return Outgoing(
            topic=topic,
            value=envelope(record, diagnosis),
            key=record.key,
            headers=(*kept, *ours),
            partition=record.partition if record.partition < self._partitions.get(topic, 0) else None,
            timestamp_ms=None,
        )

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        self._sink.send(outgoing, delivered)

    def shrink(self, outgoing: Outgoing) -> Outgoing:
        """Refused as too large: leave out the diagnostics, never the original bytes."""
        fields = json.loads(outgoing.value or b"{}")
        for name in ("stack_trace", "error_message"):
            fields[name] = ""
        return replace(outgoing, value=as_json(fields))


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # a foreign __str__ must not take the loop down with it
        return "(the error cannot be put into words)"
