"""What waits for its time, and what does not wait any more."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from keepfast.core.errors import RetryLater
from keepfast.core.policies import Order
from keepfast.core.runs import FailedRecord
from keepfast.engine.timers import Timers
from tests.engine.world import World

CYCLES, RECORDS = 12, 40


def test_items_come_out_when_they_are_due_in_order() -> None:
    timers: Timers[str] = Timers()
    for due, item in [(3.0, "c"), (1.0, "a"), (1.0, "b")]:
        timers.add(due, item)
    assert (timers.next_in(0.5), timers.due(0.9), timers.due(1.0)) == (0.5, [], ["a", "b"])
    assert (len(timers), timers.due(5.0), timers.next_in(5.0)) == (1, ["c"], float("inf"))


def test_items_that_are_not_wanted_are_removed_once_they_are_most_of_it() -> None:
    wanted = set(range(10))
    timers: Timers[int] = Timers(wanted.__contains__)
    for item in range(10):
        timers.add(100.0 - item, item)
    wanted -= set(range(5))
    timers.dropped(5)
    assert len(timers) == 10, "half of it is not worth the while"
    wanted -= {5}
    timers.dropped(1)
    assert len(timers) == 4
    assert timers.due(100.0) == [9, 8, 7, 6], "in the order in which they are due"


def test_items_that_are_not_wanted_are_never_handed_out() -> None:
    wanted = {2}
    timers: Timers[int] = Timers(wanted.__contains__)
    for item in (1, 2, 3):
        timers.add(float(item), item)
    assert timers.due(3.0) == [2]
    timers.dropped(2)
    assert len(timers) == 0


def refuse(values: list[str]) -> None:
    raise RetryLater(after_s=3600)


def waiting_cases() -> int:
    gc.collect()
    return sum(type(one) is FailedRecord for one in gc.get_objects())  # isinstance would ask lazy objects of others


@pytest.mark.parametrize("order", ["key", "none"])
@pytest.mark.parametrize("lost", [False, True], ids=["revoked", "lost"])
@pytest.mark.parametrize("size", [1, 4])
def test_records_that_wait_for_a_retry_are_let_go_with_their_partition(order: Order, lost: bool, size: int) -> None:
    world = World(refuse, order=order, size=size, wait_s=0.0, capacity=RECORDS, partitions=2)
    before = waiting_cases()

    def wait_all(partition: int) -> None:
        place = world.places[partition]
        world._ends[place] = 0
        world.feed("".join(chr(0x4E00 + 100 * partition + number) for number in range(RECORDS)), partition=partition)
        for _ in range(RECORDS):
            world.step()
            while world.workers.out:
                world.work()
                world.step()

    wait_all(1)
    for _ in range(CYCLES):
        wait_all(0)
        (world.loop.on_lost if lost else world.loop.on_revoked)([world.places[0]])
        world.loop.on_assigned([world.places[0]])
    lanes: Any = world.loop.lanes
    assert len(world.loop.failures._timers) + len(lanes._timers) <= 2 * RECORDS, (
        "what waits of the other one, and as much"
    )
    assert waiting_cases() - before <= 2 * RECORDS
    world.play(steps=10, pass_s=1000.0)
    assert {place for place, *_ in [name.split(":") for call in world.calls for name in call]} == {"0", "1"}


def test_a_record_that_is_ready_and_held_is_let_go_with_its_partition() -> None:
    world = World(refuse, order="none", size=1, wait_s=0.0, capacity=RECORDS, partitions=2)
    world.feed("." * RECORDS)
    for _ in range(RECORDS):
        world.step()
        while world.workers.out:
            world.work()
            world.step()
    place = world.places[0]
    world.loop.ownership.hold(place, "operator", 0.0)
    world.step(pass_s=4000.0)
    assert len(world.loop.failures.ready) == RECORDS, "their time has come, and they may not start"
    world.loop.on_lost([place])
    assert len(world.loop.failures.ready) == 0
