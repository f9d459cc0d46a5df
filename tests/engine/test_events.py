"""What a loop tells its observers: who is called, what an observer can break, and what the hot path builds."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, is_dataclass

import pytest

from keepfast.core.events import EVENT_TYPES, Assigned, Committed, Event, Held, Lost, RunFinished
from keepfast.core.records import RecordPlace, TopicPartition
from keepfast.core.retry_topics import Returned, Tier, Tiers
from keepfast.core.runs import Partition, Run
from keepfast.engine.events import Events, run_finished
from keepfast.telemetry.event_log import EventLog
from keepfast.testing.fakes.log import FakeMessage
from tests.support.events import SAMPLES, SOURCE
from tests.support.log_capture import LogCapture
from tests.support.messages import message


class Kept:
    """Implements `core.events.Observer`."""

    keeps_errors = False

    def __init__(self, *wants: type[Event], error: BaseException | None = None) -> None:
        self.wants = frozenset(wants)
        self.seen: list[Event] = []
        self._error = error

    def on_event(self, event: Event) -> None:
        self.seen.append(event)
        if self._error is not None:
            raise self._error


def test_an_observer_gets_the_types_it_wants_and_no_other() -> None:
    holds, losses = Kept(Held), Kept(Lost, Assigned)
    events = Events(*SOURCE, (holds, losses))
    held, lost = Held(*SOURCE, hold="breaker"), Lost(*SOURCE, partitions=(TopicPartition("orders", 1),))
    for event in (held, lost, RunFinished(*SOURCE, records=(RecordPlace("orders", 1, 1),))):
        events.emit(event)
    assert (holds.seen, losses.seen) == ([held], [lost])


def test_an_observer_that_raises_harms_neither_the_loop_nor_the_others_and_is_logged_once() -> None:
    bad, good = Kept(Held, error=ValueError("secret")), Kept(Held)
    events = Events(*SOURCE, (bad, good))
    with LogCapture() as log:
        for _ in range(3):
            events.emit(Held(*SOURCE, hold="breaker"))
    assert (len(bad.seen), len(good.seen)) == (3, 3), "it is still called"
    [line] = log.of("observer_failed")
    assert line.level == "error"
    assert line.fields.items() >= {"consumer": "charge", "observer": "Kept", "of": "Held"}.items()


def test_an_observer_that_exits_does_not_end_the_loop() -> None:
    exits = Kept(Held, error=SystemExit(1))
    Events(*SOURCE, (exits,)).emit(Held(*SOURCE, hold="breaker"))
    assert len(exits.seen) == 1


def run_of(count: int) -> Run:
    partition = Partition(TopicPartition("orders", 0), epoch=1, start=0)
    return Run(partition, [message(offset) for offset in range(count)], range(count), {})


def test_a_run_of_which_everything_was_reported_before_is_no_error() -> None:
    run = run_of(1)
    assert run_finished(Events(*SOURCE, ()), run, 1, 1).records == ()


def test_a_run_reports_what_was_filtered_apart_from_what_succeeded() -> None:
    run = run_of(5)
    run.filtered = [0, 3]
    event = run_finished(Events(*SOURCE, ()), run, 1, 5)
    assert [place.offset for place in event.records] == [1, 2, 4]
    assert [place.offset for place in event.filtered] == [3]


def test_a_run_of_a_retry_topic_says_so_also_where_its_records_do_not_say_where_they_came_from() -> None:
    name = "orders.g.retry.5s"
    tiers = Tiers(group="g", delays_s=(5,), topics={name: Tier(name, "orders", 5, 4)})
    place = TopicPartition(name, 2)
    forged = Returned(FakeMessage(place, 99, key=None, value=b"v"), tiers.topics[name], tiers)
    run = Run(Partition(place, epoch=1, start=0), [forged], [0], {})
    event = run_finished(Events(*SOURCE, ()), run, 0, 1)
    assert (event.records, event.retry_topic) == ((RecordPlace(name, 2, 99),), name)


def test_what_the_hot_path_would_cause_is_wanted_only_if_an_observer_wants_it() -> None:
    idle = Events(*SOURCE, (EventLog(), Kept(Held)))
    assert (idle.wants_runs, idle.wants_commits, idle.keeps_errors) == (False, False, False)
    assert Events(*SOURCE, (Kept(RunFinished),)).wants_runs
    assert Events(*SOURCE, (Kept(Committed),)).wants_commits


@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.__name__)
def test_an_event_is_a_frozen_value_that_names_its_consumer_and_says_what_it_means(kind: type[Event]) -> None:
    assert is_dataclass(kind)
    assert [one.name for one in fields(kind)][:2] == ["consumer", "group"]
    assert kind.__doc__ is not None
    assert not kind.__doc__.startswith(f"{kind.__name__}(")
    assert "__dict__" not in dir(kind)
    with pytest.raises(FrozenInstanceError):
        Held(*SOURCE, hold="breaker").hold = "storm"  # type: ignore[misc]


def test_there_is_a_sample_of_every_event() -> None:
    assert {type(event) for event in SAMPLES} == set(EVENT_TYPES)
