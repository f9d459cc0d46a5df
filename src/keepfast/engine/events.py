"""Emits a loop's events to its observers. Owner: the loop thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keepfast.core.events import Committed, Event, Observer, RunFinished
from keepfast.core.records import RecordPlace
from keepfast.core.retry_topics import original
from keepfast.core.runs import FailedRecord, Run
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.loop")


class Events:
    """Hands each event to the observers that want its type, in their order, on the caller's thread.

    `source` is how every event begins: consumer and group. `wants_runs` and `wants_commits`: whether an observer wants
    the events that the hot path would cause. `keeps_errors`: see `Observer`.
    """

    def __init__(self, consumer: str, group: str, observers: Sequence[Observer]) -> None:
        self.source = (consumer, group)
        self._observers: dict[type[Event], list[Observer]] = {}
        for observer in observers:
            for wanted in observer.wants:
                self._observers.setdefault(wanted, []).append(observer)
        self.wants_runs = RunFinished in self._observers
        self.wants_commits = Committed in self._observers
        self.keeps_errors = any(observer.keeps_errors for observer in observers)
        self._failed: set[int] = set()

    def emit(self, event: Event) -> None:
        """An observer that raises harms neither the loop nor the others; the first time it is logged."""
        for observer in self._observers.get(type(event), ()):
            try:
                observer.on_event(event)
            except BaseException as error:  # noqa: BLE001 - whatever an observer does, the loop continues
                self._log_failure(observer, event, error)

    def _log_failure(self, observer: Observer, event: Event, error: BaseException) -> None:
        if id(observer) in self._failed:
            return
        self._failed.add(id(observer))
        log.error(
            "observer_failed",
            consumer=self.source[0],
            observer=type(observer).__name__,
            of=type(event).__name__,
            exc=error,
            consequence="it is called for further events nevertheless; what it raises then is not logged",
        )


def run_finished(events: Events, run: Run, first: int, end: int) -> RunFinished:
    """About the records of the run from position `first` to `end`: they are done."""
    dropped, known, came_back = frozenset(run.filtered), frozenset(run.skipped), False
    records: list[RecordPlace] = []
    filtered: list[RecordPlace] = []
    skipped: list[RecordPlace] = []
    for position, message in enumerate(run.messages[first:end], first):
        one = original(message)
        place = RecordPlace(one.topic(), one.partition(), one.offset())
        (filtered if position in dropped else skipped if position in known else records).append(place)
        came_back = one is not message  # all of a partition did, or none
    retry_topic = run.partition.place.topic if came_back else ""
    return RunFinished(
        *events.source,
        records=tuple(records),
        filtered=tuple(filtered),
        skipped=tuple(skipped),
        retry_topic=retry_topic,
    )


def record_fields(failed_record: FailedRecord, error: BaseException | None) -> dict[str, Any]:
    """What every event about a failed record has beside consumer and group."""
    record, found = original(failed_record.message), failed_record.found
    if found is None:
        raise RuntimeError("a record that has not failed is reported as one")
    last = failed_record.attempts[-1]
    return {
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
        "attempt": failed_record.failures,
        "error": error,
        "error_type": last.error_type,
        "error_message": last.message,
        "raised_at": last.raised_at,
        "took_s": last.took_s,
        "kind": found.kind,
        "code": found.code,
        "rule": found.rule,
        "retry_topic": "" if record is failed_record.message else failed_record.partition.place.topic,
    }
