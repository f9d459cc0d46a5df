"""Positions are committed again although they have not changed: soon after the assignment, before the broker forgets
them, and after a commit that may be delivered late.
"""

from __future__ import annotations

import pytest

from keepfast.core.errors import Fault, SourceError
from keepfast.engine.renewals import AFTER_DOUBT_S, renewed_every_s
from tests.engine.world import World

HOUR_S = 3600.0


def committed_within(world: World, seconds: float, *, step_s: float = 1.0) -> list[float]:
    """When, from now on, a request has had partition 0, while nothing happens."""
    begun, found = world.clock.now, list[float]()
    while world.clock.now - begun < seconds:
        before = len(world.source.requests)
        world.step(pass_s=step_s)
        found += [world.clock.now - begun for request in world.source.requests[before:] if world.places[0] in request]
    return found


def finish_one(world: World) -> None:
    """A record comes, is processed, and its commit is sent."""
    world.feed("a")
    world.step()
    world.step()
    world.work()
    world.step()


@pytest.fixture
def world() -> World:
    """Two partitions that were assigned and are idle."""
    world = World(lambda _: None, batch=None, renewed_every_s=HOUR_S)
    world.step()
    return world


def test_the_position_of_an_idle_partition_is_committed_after_the_assignment_and_then_every_time(world: World) -> None:
    times = committed_within(world, 3 * HOUR_S, step_s=5.0)
    assert len(times) == 3
    assert times[0] <= 5.0
    assert [round((later - times[0]) / HOUR_S, 2) for later in times[1:]] == [1, 2]
    assert {place: position.offset for place, position in world.source.committed_at.items()} == dict.fromkeys(
        world.places, 0
    )


def test_a_position_that_has_no_number_yet_is_committed_when_it_has_one() -> None:
    world = World(lambda _: None, batch=None)
    world.source.committed = lambda places, timeout_s: []  # type: ignore[method-assign]
    world.loop.on_revoked(world.places)
    world.loop.on_assigned(world.places)
    assert committed_within(world, 60.0) == []
    world.feed("a")
    world.step()
    world.step()
    assert world.workers.out, "it runs, and is not finished"
    assert committed_within(world, 5.0)
    assert world.source.committed_at[world.places[0]].offset == 0


def test_after_a_commit_that_was_sent_twice_the_positions_are_committed_some_more_times(world: World) -> None:
    committed_within(world, 10.0)
    finish_one(world)
    world.loop.on_commit_repeated()
    assert committed_within(world, 200.0) == pytest.approx(AFTER_DOUBT_S, abs=1.1)
    assert world.source.committed_at[world.places[0]].offset == 1


def test_a_commit_that_was_sent_before_a_reset_may_be_stored_after_it(world: World) -> None:
    committed_within(world, 10.0)
    world.loop.on_commit_repeated()
    world.loop.on_error(SourceError("cut", fault=Fault.OUT_OF_RANGE, code="_AUTO_OFFSET_RESET"), world.places[0])
    finish_one(world)
    assert committed_within(world, 200.0)[-1] >= AFTER_DOUBT_S[-1], "the new epoch has not forgotten it"


def test_a_commit_that_failed_may_be_stored_late(world: World) -> None:
    committed_within(world, 10.0)
    world.source.refused = {world.places[0]: Fault.RETRY}
    finish_one(world)
    world.source.refused = {}
    assert len(committed_within(world, 200.0)) == 1 + len(AFTER_DOUBT_S), "it is retried, and then again"


def test_nothing_is_committed_again_of_a_partition_that_is_revoked(world: World) -> None:
    committed_within(world, 10.0)
    world.source.answers = False
    world.step(pass_s=HOUR_S)
    world.step()
    world.source.answers = True
    world.loop.on_revoked(world.places)
    before = len(world.source.requests)
    world.step(pass_s=HOUR_S)
    assert len(world.source.requests) == before


def test_a_drain_does_not_wait_for_the_answer_to_a_position_that_is_known(world: World) -> None:
    committed_within(world, 10.0)
    partition = world.loop.ownership.get(world.places[0])
    assert partition is not None
    world.source.refused = dict.fromkeys(world.places, Fault.RETRY)
    world.step(pass_s=HOUR_S)
    world.step(pass_s=1.0)
    assert world.source.requests[-1] == world.places
    assert not world.loop.committer.is_owed(partition), "what is stored has not changed"


def test_how_often_follows_from_the_retention() -> None:
    week_s = 7 * 24 * HOUR_S
    assert renewed_every_s(week_s) == 24 * HOUR_S, "at most a day"
    assert renewed_every_s(60.0) == 15.0
    assert renewed_every_s(None) == 6 * HOUR_S
