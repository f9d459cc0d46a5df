"""The statements, levels and fields that the consumer standard asks for, of a run in which everything happens once. The
file beside this has them all; after a change that is meant, write it again: `python -m tests.telemetry.scripted`.
"""

from __future__ import annotations

import io
import json
import logging
from collections import Counter
from types import SimpleNamespace

import pytest

from keepfast.telemetry import logs
from keepfast.telemetry.logs import get_logger
from tests.telemetry.scripted import GOLDEN, SECRET, logging_as_it_was, scripted_lines

FIELDS = {"retry_count", "error_type", "error_classification", "consumer_group", "partition", "offset"}


def test_the_log_is_that_of_the_standard() -> None:
    assert scripted_lines() == GOLDEN.read_text().splitlines()


def test_every_statement_has_its_level_and_its_fields() -> None:
    printed = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    assert all(set(line) >= FIELDS for line in printed)
    assert all(
        isinstance(line["backoff_delay_ms"], int)
        for line in printed
        if line["event"] in ("retry_scheduled", "moving_to_retry_topic")
    )
    levels = {(line["event"], line["error_classification"]): line["level"] for line in printed}
    assert levels == {
        ("retry_scheduled", "retryable"): "warning",  # a retry, with its number and delay
        ("retry_succeeded", "retryable"): "info",
        ("dead_lettering", "retryable"): "error",  # the retries are used up
        ("dead_lettering", "non-retryable"): "warning",  # final at once
        ("dead_lettered", "retryable"): "info",  # routed to the dead-letter topic
        ("dead_lettered", "non-retryable"): "info",
        ("record_discarded", "discard"): "warning",
    }
    assert all("error_message" in line and line["at"].startswith("tests/telemetry/scripted.py:") for line in printed)
    assert SECRET not in GOLDEN.read_text()


def test_a_storm_is_sampled_and_every_discarded_record_is_logged() -> None:
    stream = io.StringIO()
    log = get_logger("keepfast.consumer")
    with logging_as_it_was():
        logs.configure(format="json", stream=stream, max_lines=3)
        heard: list[str] = []
        listener = logging.Handler()
        listener.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("keepfast").addHandler(listener)
        for number in range(50):
            log.warning("retry_scheduled", topic="orders", error_type="TimeoutError", offset=number)
            log.warning("record_discarded", topic="orders", error_type="Discard", offset=number)
            log.error("dead_letter_publish_failed", topic="orders", error_type="ValueError", offset=number)
        log.warning("retry_scheduled", topic="orders", error_type="OSError", offset=1)
    printed = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["error_type"], line["offset"]) for line in printed if line["event"] == "retry_scheduled"] == [
        ("TimeoutError", 0),
        ("TimeoutError", 1),
        ("TimeoutError", 2),
        ("OSError", 1),
    ]
    assert len([line for line in printed if line["event"] == "dead_letter_publish_failed"]) == 3
    assert len([line for line in printed if line["event"] == "record_discarded"]) == 50
    assert len(heard) == 151, "other listeners get all"


def test_lines_and_numbers_of_suppressed_ones_add_up_also_at_the_end() -> None:
    stream = io.StringIO()
    log = get_logger("keepfast.consumer")
    with logging_as_it_was():
        logs.configure(format="json", stream=stream, max_lines=3)
        for number in range(2000):  # more kinds than windows are kept for
            log.warning("retry_scheduled", topic="orders", error_type=f"E{number % 1500}", offset=number)
            log.warning("dead_lettering", topic="orders", error_type="ValueError", offset=number)
            log.info("dead_lettered", topic="orders", error_type="ValueError", offset=number)
        logs.configure(format="json", stream=io.StringIO())  # which ends the output before
    said = [json.loads(line) for line in stream.getvalue().splitlines()]
    written = Counter(line["event"] for line in said)
    assert [line["offset"] for line in said if line["event"] == "dead_lettered"] == list(range(2000))
    assert written["dead_lettering"] == 3
    suppressed = sum(line["suppressed"] for line in said if "suppressed" in line)
    assert written["retry_scheduled"] + written["dead_lettering"] + suppressed == 4000
    assert {line["suppressed"] for line in said if line.get("of") == "dead_lettering"} == {1997}


def test_how_many_lines_were_left_out_is_reported_also_if_no_more_of_them_come(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, now = io.StringIO(), [100.0]
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    log = get_logger("keepfast.consumer")
    with logging_as_it_was():
        logs.configure(format="json", stream=stream, max_lines=2)
        for number in range(7):
            log.warning("retry_scheduled", consumer_group="g", topic="orders", error_type="OSError", offset=number)
        for pass_s in (logs.STORM_S / 2, logs.STORM_S, logs.STORM_S):
            now[0] += pass_s
            log.info("stopping")
    printed = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in printed] == [
        *("retry_scheduled", "retry_scheduled", "stopping"),
        *("log_lines_suppressed", "stopping", "stopping"),
    ]
    reported = {name: value for name, value in printed[3].items() if name not in ("ts", "logger", "event")}
    where = {"consumer_group": "g", "topic": "orders", "error_type": "OSError"}
    assert reported == {"level": "warning", "of": "retry_scheduled", "suppressed": 5} | where
