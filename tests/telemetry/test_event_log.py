"""Events as lines of the log, and as JSON for another process."""

from __future__ import annotations

import json
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from keepfast.core import events
from keepfast.core.errors import Fault
from keepfast.core.verdicts import DeadLetter, HaltConsumer, Move
from keepfast.telemetry.event_log import EventLog, EventWriter
from keepfast.telemetry.logs import FLOODS
from tests.support.events import BATCH, ORDERS, PLACE, RECORD, SAMPLES, SECRET, SOURCE
from tests.support.log_capture import LogCapture, LogEntry

LOGGED = [event for event in SAMPLES if not isinstance(event, events.RunFinished | events.Committed)]


def lines_of(event: events.Event) -> list[LogEntry]:
    with LogCapture() as log:
        EventLog().on_event(event)
    return log.entries


@pytest.mark.parametrize("event", LOGGED, ids=lambda event: type(event).__name__)
def test_each_event_is_one_line_that_names_its_consumer_and_shows_no_text_of_an_error(event: events.Event) -> None:
    [line] = lines_of(event)
    assert line.fields["consumer"] == "charge"
    assert line.fields["consumer_group"] == "payments.charge"
    assert SECRET not in str(line)
    if isinstance(event, events.RecordEvent):
        assert (line.fields["topic"], line.fields["partition"], line.fields["offset"]) == ("orders", 2, 17)


def test_a_line_about_a_record_says_what_was_raised_where_and_how_long_it_took() -> None:
    about_records = [one for one in LOGGED if isinstance(one, events.RecordEvent)]
    assert len(about_records) >= 8
    for event in about_records:
        [line] = lines_of(replace(event, error_message="no stock", raised_at="shop/stock.py:17", took_s=0.0123))
        shown = {name: line.fields.get(name) for name in ("error_message", "at", "processing_ms")}
        assert shown == {"error_message": "no stock", "at": "shop/stock.py:17", "processing_ms": 12.3}, line.event
    batch = next(one for one in LOGGED if isinstance(one, events.BatchFailed))
    [line] = lines_of(replace(batch, error_message="no stock", took_s=1.0))
    assert (line.fields["error_message"], line.fields["processing_ms"]) == ("no stock", 1000.0)


def raised() -> BaseException:
    token = "Bearer abcdefgh12345678"
    try:
        raise ValueError(f"no stock\n{token}")
    except ValueError as error:
        return error


def test_a_traceback_is_there_where_it_was_asked_for_and_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    event = events.RecordFailed(*SOURCE, **RECORD | {"error": raised()}, verdict=DeadLetter("r", "c"))
    [without] = lines_of(event)
    assert "traceback" not in without.fields
    monkeypatch.setattr("keepfast.telemetry.logs._tracebacks", True)
    [line] = lines_of(event)
    shown = line.fields["traceback"]
    assert shown[0] == "Traceback (most recent call last):"
    assert any("in raised" in one for one in shown)
    assert "ValueError: no stock" in shown
    assert "abcdefgh12345678" not in str(shown[-2:])


@pytest.mark.parametrize(
    ("event", "level", "name"),
    [
        (events.RecordFailed(*SOURCE, **RECORD, verdict=DeadLetter("r", "c")), "warning", "dead_lettering"),
        (
            events.RecordFailed(*SOURCE, **RECORD | {"kind": "retryable"}, verdict=DeadLetter("r", "c")),
            "error",
            "dead_lettering",
        ),
        (
            events.RecordFailed(*SOURCE, **RECORD | {"code": "CRASHED"}, verdict=DeadLetter("r", "CRASHED")),
            "error",
            "dead_lettering",
        ),
        (events.RecordFailed(*SOURCE, **RECORD, verdict=Move(1, 5.0, "r")), "warning", "moving_to_retry_topic"),
        (events.RecordFailed(*SOURCE, **RECORD, verdict=HaltConsumer("r")), "error", "halting"),
        (events.RecordFailed(*SOURCE, **RECORD, verdict=None), "warning", "retry_held"),
        (events.BatchFailed(*SOURCE, **BATCH, partitions=(), records=2, verdict=None), "warning", "batch_retry_held"),
        (
            events.BatchFailed(*SOURCE, **BATCH, partitions=(), records=2, verdict=DeadLetter("r", "c")),
            "warning",
            "batch_split",
        ),
        (events.Revoked(*SOURCE, partitions=(ORDERS,)), "info", "partitions_revoked"),
        (events.Revoked(*SOURCE, partitions=(ORDERS,), unconfirmed=(ORDERS,)), "warning", "partitions_revoked"),
        (events.Held(*SOURCE, hold="commit"), "warning", "consumer_held"),
        (events.Held(*SOURCE, hold="stale_run", topic="orders", partition=2), "warning", "partition_held"),
        (events.Held(*SOURCE, hold="commit_refused", topic="orders", partition=2), "error", "partition_held"),
        (
            events.PreviousOwnerCrashed(*SOURCE, **PLACE, in_flight=0, in_flight_below=None, suspected=True),
            "info",
            "previous_owner_crashed",
        ),
        (
            events.PreviousOwnerCrashed(*SOURCE, **PLACE, in_flight=None, in_flight_below=99, suspected=True),
            "warning",
            "previous_owner_crashed",
        ),
        (
            events.HandlerTimedOut(*SOURCE, **PLACE, attempt=1, timeout_s=1.0, given_up=False, abandoned=1),
            "error",
            "handler_overdue",
        ),
    ],
)
def test_the_line_depends_on_what_was_decided(event: events.Event, level: str, name: str) -> None:
    assert [(line.level, line.event) for line in lines_of(event)] == [(level, name)]


@pytest.mark.parametrize(
    ("target", "next_step", "level", "name"),
    [
        ("dead-letter-topic", "retry", "error", "dead_letter_publish_failed"),
        ("dead-letter-topic", "spool", "error", "dead_letter_publish_failed"),
        ("dead-letter-topic", "adjust", "warning", "dead_letter_adjusted"),
        ("retry-topic", "retry", "error", "retry_topic_publish_failed"),
        ("retry-topic", "stay", "error", "retry_topic_publish_failed"),
        ("retry-topic", "adjust", "warning", "retry_topic_record_adjusted"),
        ("spool", "retry", "error", "spool_write_failed"),
    ],
)
def test_what_is_not_accepted_says_where_and_what_happens_next(
    target: str, next_step: str, level: str, name: str
) -> None:
    fault = None if target == "spool" else Fault.TOO_LARGE
    step: dict[str, Any] = {
        "target": target,
        "publish_topic": "t",
        "message": "no",
        "next_step": next_step,
        "fault": fault,
    }
    [line] = lines_of(events.PublishFailed(*SOURCE, **RECORD | step, retry_in_s=0.5))
    assert (line.level, line.event) == (level, name)
    assert ("backoff_delay_ms" in line.fields) == (next_step == "retry")
    assert ("consequence" in line.fields) == (next_step == "stay")
    assert line.event in FLOODS, "each record may cause one"


def test_what_a_user_stops_by_a_bug_of_ours_shows_where_and_a_handlers_halt_does_not() -> None:
    def failed() -> BaseException:
        try:
            raise RuntimeError("broken")
        except RuntimeError as error:
            return error

    [ours] = lines_of(events.Halted(*SOURCE, kind="failed", reason="RuntimeError", error=failed()))
    [theirs] = lines_of(events.Halted(*SOURCE, **PLACE, kind="halted", reason="stop", error=failed()))
    assert "exc_at" in ours.fields
    assert "exc" not in theirs.fields


@pytest.mark.parametrize("event", LOGGED, ids=lambda event: type(event).__name__)
def test_an_event_is_a_line_of_json_for_another_process(event: events.Event, tmp_path: Path) -> None:
    target = tmp_path / "events"
    fd = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.set_inheritable(fd, True)
        EventWriter(fd).on_event(event)
        assert not os.get_inheritable(fd), "processes that a handler starts do not get it"
    finally:
        os.close(fd)
    assert target.read_bytes().endswith(b"\n")
    line = json.loads(target.read_text())
    assert line["event"] == type(event).__name__
    assert set(line) == {"event", *(field.name for field in fields(event))} - {"error"}
    assert SECRET not in target.read_text()


def test_both_want_what_the_log_has_a_line_for() -> None:
    assert EventLog().wants == {type(event) for event in LOGGED}
    assert EventWriter(os.open(os.devnull, os.O_WRONLY)).wants == EventLog().wants


def test_an_offset_out_of_range_is_not_said_to_be_due_to_deleted_records_alone() -> None:
    event = events.PartitionReset(*SOURCE, **PLACE, reason="offset_out_of_range", policy="earliest")
    [line] = lines_of(event)
    assert (line.level, line.event) == ("error", "partition_reset")
    assert "or the log is another one" in line.fields["consequence"]
