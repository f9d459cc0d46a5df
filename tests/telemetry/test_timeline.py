"""The last events of a process in memory."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from keepfast.core.events import Assigned, DeadLettered, Event, Held, Released, SubscriptionChanged
from keepfast.core.records import TopicPartition
from keepfast.telemetry.timeline import ALIKE_S, MAX_EVENTS, Timeline


def letter(offset: int, **more: Any) -> DeadLettered:
    fields: dict[str, Any] = {
        "topic": "orders",
        "partition": 0,
        "attempt": 1,
        "error": None,
        "error_type": "ValueError",
    }
    fields |= {
        "kind": "non-retryable",
        "code": "VALUE_INVALID",
        "rule": "value",
        "reason": "bad",
        "letter_topic": "dlq",
    }
    return DeadLettered("charge", "payments", offset=offset, **fields | more)


def test_letters_that_follow_each_other_are_one_entry_and_push_nothing_out() -> None:
    now = [1000.0]
    timeline = Timeline(lambda: now[0])
    timeline.on_event(Assigned("charge", "payments", partitions=(TopicPartition("orders", 0),)))
    for offset in range(2 * MAX_EVENTS):
        timeline.on_event(letter(offset))
    assigned, letters = timeline.entries()
    assert (assigned.text, letters.count) == ("The consumer got orders[0]", 2 * MAX_EVENTS)
    assert f"offset {2 * MAX_EVENTS - 1}" in letters.text, "the last of them"
    now[0] += ALIKE_S + 1
    timeline.on_event(letter(1))
    assert [one.count for one in timeline.entries()] == [1, 2 * MAX_EVENTS, 1]


def test_the_oldest_entries_go_and_numbers_grow() -> None:
    timeline = Timeline(lambda: 0.0)
    for number in range(MAX_EVENTS + 10):
        timeline.on_event(Released("charge", "payments", hold=f"hold{number}"))
    entries = timeline.entries()
    assert len(entries) == MAX_EVENTS
    assert entries[-1].number == MAX_EVENTS + 10


def test_it_says_who_holds_what_and_texts_are_one_line() -> None:
    timeline = Timeline(lambda: 0.0)
    timeline.on_event(Held("charge", "payments", hold="operator", topic="orders", partition=3, by="ada"))
    timeline.on_event(letter(1, reason="two\nlines"))
    held, failed = timeline.entries()
    assert held.text == "orders[3] is held by ada: paused by an operator"
    assert "\n" not in failed.text


def test_it_wants_every_event_that_happens_rarely() -> None:
    assert {Assigned, DeadLettered, Held} <= Timeline().wants
    assert not any(one.__name__ in ("RunFinished", "Committed", "RecordFailed") for one in Timeline().wants)


def test_every_event_is_a_sentence_without_names_of_fields() -> None:
    """Each with made-up values; what is not a sentence is a list of fields, or an error."""
    timeline = Timeline(lambda: 0.0)
    kinds = sorted(timeline.wants, key=lambda kind: kind.__name__)
    for kind in kinds:
        timeline.on_event(made_up(kind))
    for kind, entry in zip(kinds, timeline.entries(), strict=True):
        assert entry.event == kind.__name__
        assert entry.text[0].isupper() or entry.text.startswith("a topic["), entry.text
        assert not any(field.name in entry.text for field in fields(kind) if "_" in field.name), entry.text
        assert len(entry.text.split()) >= 4, entry.text


def made_up(kind: type[Event]) -> Event:
    values: dict[str, Any] = {"str": "a topic", "int": 7, "float": 2.5, "bool": True, "Partitions": ()}
    chosen: dict[str, Any] = {
        field.name: values.get(str(field.type)) for field in fields(kind) if field.default is MISSING
    }
    return kind(**chosen | ({"added": ("a",), "removed": ("b",)} if kind is SubscriptionChanged else {}))
