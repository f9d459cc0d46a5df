"""When a partition that is full is paused, and when it is waited for."""

from __future__ import annotations

from keepfast.engine.intake import PAUSE_AFTER_S
from tests.engine.world import World

QUOTA = 1000


def full_world() -> World:
    """The client has three times the quota of the first partition, in one stretch, and a record of the other."""
    world = World(lambda values: None, batch=None)
    world.feed("." * 3 * QUOTA)
    world.feed(".", partition=1)
    world.loop.intake.poll(0.0, 0.0)
    return world


def test_a_full_partition_that_the_loop_itself_makes_shorter_is_waited_for() -> None:
    world = full_world()
    intake, [first, _] = world.loop.intake, world.loop.ownership
    assert len(first.buffer) >= QUOTA
    now, waiting = 0.0, len(world.source.waiting)
    while len(first.buffer) > QUOTA // 2:  # it takes long, and never stops
        now += PAUSE_AFTER_S / 5
        intake.poll(now, 0.0, inline=True)
        assert not world.source.paused
        del first.buffer[:60]
    assert len(world.source.waiting) > waiting - 2 * QUOTA, "polled now and then, for the membership"


def test_one_that_does_not_get_shorter_is_paused_and_the_others_are_read() -> None:
    world = full_world()
    intake, now = world.loop.intake, 0.0
    for _ in range(20):
        now += PAUSE_AFTER_S / 2
        intake.poll(now, 0.0, inline=True)
    assert world.source.paused == {world.places[0]}
    assert not world.source.waiting, "also while it is full"
