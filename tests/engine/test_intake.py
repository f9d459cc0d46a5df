"""When a partition that is full is paused, and when it is waited for."""

from __future__ import annotations

import pytest

from keepfast.core.runs import Partition
from keepfast.engine.intake import LASTS_S, PAUSE_AFTER_S, RECORDS_AT_MOST, RESUME_S
from tests.engine.world import World

QUOTA = 1000
TICK_S = PAUSE_AFTER_S / 5


def full_world(records: int = 3 * QUOTA) -> World:
    """The client has more than the quota of the first partition, in one stretch, and a record of the other."""
    world = World(lambda values: None, batch=None)
    world.feed("." * records)
    world.feed(".", partition=1)
    world.loop.intake.poll(0.0, 0.0)
    return world


def take(partition: Partition, count: int) -> None:
    """Workers take so many records."""
    taken = len(partition.buffer[:count])
    del partition.buffer[:taken]
    partition.buffered_seq += taken


@pytest.mark.parametrize("inline", [True, False])
def test_a_full_partition_that_gets_shorter_fast_enough_is_waited_for(inline: bool) -> None:
    world = full_world()
    intake, [first, _] = world.loop.intake, world.loop.ownership
    assert len(first.buffer) >= QUOTA
    now, waiting = 0.0, len(world.source.waiting)
    while len(first.buffer) > QUOTA // 2:  # it takes long, and never stops
        now += TICK_S
        intake.poll(now, 0.0, inline=inline)
        assert not world.source.paused
        take(first, 60)
    if inline:
        assert len(world.source.waiting) > waiting - 2 * QUOTA, "polled now and then, for the membership"


@pytest.mark.parametrize("taken", [0, 5])
def test_one_that_lasts_for_long_is_paused_and_the_others_are_read(taken: int) -> None:
    world = full_world()
    intake, [first, _] = world.loop.intake, world.loop.ownership
    for tick in range(20):
        take(first, taken)
        intake.poll(tick * PAUSE_AFTER_S / 2, 0.0, inline=True)
    assert world.source.paused == {world.places[0]}
    assert not world.source.waiting, "also while it is full"


def test_one_that_stops_getting_shorter_is_paused() -> None:
    world = full_world()
    intake, [first, _], now = world.loop.intake, world.loop.ownership, 0.0
    for _ in range(10):
        now += TICK_S
        intake.poll(now, 0.0)
        take(first, 60)
    stopped_at = now
    while not world.source.paused:
        now += TICK_S
        intake.poll(now, 0.0)
        assert now - stopped_at <= 2 * LASTS_S
    assert len(first.buffer) < RECORDS_AT_MOST * QUOTA


@pytest.mark.parametrize("filled", [True, False])
def test_one_that_is_paused_is_resumed_while_it_lasts_longer_than_a_fetch(filled: bool) -> None:
    world = full_world(6 * QUOTA)
    intake, [first, _], now = world.loop.intake, world.loop.ownership, 0.0
    if filled:
        intake.fill(now)
    while not world.source.paused:
        now += TICK_S
        take(first, 40)
        intake.poll(now, 0.0)
        assert len(first.buffer) <= RECORDS_AT_MOST * QUOTA + QUOTA
    while world.source.paused:
        now += TICK_S
        take(first, 40)
        intake.poll(now, 0.0)
    lasts_s = len(first.buffer) / (40 / TICK_S)
    assert lasts_s == pytest.approx(RESUME_S, rel=0.3)


def test_what_the_client_has_of_a_full_partition_is_taken_in_up_to_a_bound() -> None:
    world = full_world()
    intake, [first, second] = world.loop.intake, world.loop.ownership
    intake.fill(0.0)
    assert (len(first.buffer), len(second.buffer)) == (3 * QUOTA, 1)
    assert not world.source.paused
    world.feed("." * 5 * QUOTA)
    intake.fill(0.0)
    assert RECORDS_AT_MOST * QUOTA <= len(first.buffer) <= (RECORDS_AT_MOST + 1) * QUOTA
    assert world.source.paused == {world.places[0]}


def test_one_that_holds_all_it_may_takes_nothing_more() -> None:
    world = full_world(5 * QUOTA)
    intake, [first, _] = world.loop.intake, world.loop.ownership
    while len(first.buffer) < RECORDS_AT_MOST * QUOTA:  # one by one, as answers are awaited
        intake.serve_on(0.0)
    intake.fill(0.0)
    assert len(first.buffer) == RECORDS_AT_MOST * QUOTA
    assert world.source.paused == {world.places[0]}
