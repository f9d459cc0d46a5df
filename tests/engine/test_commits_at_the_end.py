"""The position behind the last record of a partition: markers of transactions and records of aborted ones. And the last
records of a burst.
"""

from __future__ import annotations

import pytest

from keepfast.core.commit_metadata import read
from keepfast.core.policies import CommitPolicy
from keepfast.engine.commits import END_S
from tests.engine.world import World

MODES = [CommitPolicy(mode="each"), CommitPolicy(mode="interval", every_s=0.1, every_records=1_000)]


def world_with(keys: str, policy: CommitPolicy = MODES[0]) -> World:
    world = World(lambda _: None, batch=None, partitions=1, order="key", commit=policy)
    world.feed(keys)
    return world


def reach(world: World, end: int) -> None:
    world.loop.on_end(world.places[0], end)


@pytest.mark.parametrize("policy", MODES, ids=["each", "interval"])
def test_it_is_committed_a_moment_later_if_no_record_comes(policy: CommitPolicy) -> None:
    world = world_with("ab", policy)
    world.play(steps=10)
    assert world.committed() == 2
    requests = len(world.source.requests)
    reach(world, 5)
    assert world.loop.committer.due_in(world.clock.now) <= END_S, "an idle loop must wake up for it"
    world.step(pass_s=END_S / 2)
    world.step()
    assert world.committed() == 2, "the next record would carry it along"
    world.play(steps=10)
    assert world.committed() == 5
    assert len(world.source.requests) == requests + 1
    reach(world, 5)
    world.play(steps=20)
    assert len(world.source.requests) == requests + 1, "it is known already"


def test_a_record_that_comes_meanwhile_carries_it_along() -> None:
    world = world_with("ab")
    world.play(steps=10)
    reach(world, 3)
    requests = len(world.source.requests)
    world._ends[world.places[0]] = 3
    world.feed("c")
    world.play(steps=20)
    assert world.committed() == 4
    assert len(world.source.requests) == requests + 1


@pytest.mark.parametrize("policy", MODES, ids=["each", "interval"])
def test_nothing_is_committed_past_a_record_that_is_not_finished(policy: CommitPolicy) -> None:
    world = world_with("abc", policy)
    world.step()
    world.step()
    assert len(world.workers.out) == 3
    reach(world, 7)
    world.work(0)
    world.work(1)  # c, while b is at work
    for _ in range(20):
        world.step(pass_s=0.3)
    assert world.committed() == 1
    world.work()
    world.play(steps=10)
    assert world.committed() == 7


def test_what_was_dropped_because_the_partition_goes_is_not_passed() -> None:
    world = world_with("ab")
    world.play(steps=10)
    world.loop.ownership.get(world.places[0]).closing = True  # type: ignore[union-attr]
    world.feed("c")
    world.step()  # dropped: the next owner reads it
    reach(world, 5)
    world.loop.committer.drain(world.clock.now + 60)
    world.source.answer()
    assert world.committed() == 2


def test_what_was_dropped_because_the_consumer_stops_is_not_passed() -> None:
    world = world_with("ab")
    world.play(steps=10)
    world.loop.intake.close()
    world.feed("c")
    world.step()
    reach(world, 5)
    world.stop()
    world.play(steps=5)
    assert world.committed() == 2


def test_a_stop_commits_it_at_once() -> None:
    world = world_with("ab")
    world.play(steps=10)
    reach(world, 5)
    world.stop()
    world.step()
    world.source.answer()
    assert world.committed() == 5


def test_lag_is_0_as_soon_as_it_is_known() -> None:
    world = world_with("ab")
    world.source.seen[world.places[0]] = 4
    world.play(steps=10)
    [before] = world.loop.status.look(world.clock.now).partitions
    reach(world, 4)
    [after] = world.loop.status.look(world.clock.now).partitions
    assert (before.lag, after.lag) == (2, 0)


def test_the_lease_of_the_crash_guard_lies_behind_it() -> None:
    world = World(lambda _: None, batch=None, partitions=1, order="key", max_deliveries=3)
    world.feed("ab")
    world.play(steps=2)
    reach(world, 100_000)  # an aborted transaction of that many records
    for _ in range(5):
        world.step(pass_s=0.3)
    position = world.source.committed_at[world.places[0]]
    guard = read(position.metadata, offset=100_000)[1]
    assert guard.startswith("d"), "the lease counts from the commit"
    assert not guard.startswith("d-")
    world._ends[world.places[0]] = 100_000
    world.feed("c")
    world.play(steps=10)
    assert world.done == ["0:0", "0:1", "0:100000"]


@pytest.mark.parametrize(("records", "at_once"), [(99, False), (100, True)])
def test_a_burst_that_is_over_is_committed_before_the_interval_is(records: int, *, at_once: bool) -> None:
    policy = CommitPolicy(mode="interval", every_s=60.0, every_records=1_000)
    world = World(lambda _: None, batch=None, partitions=1, order="key", commit=policy)
    world.feed("a" * 1_000)
    world.play(steps=20)
    assert world.committed() == 1_000
    world.feed("." * records)
    world.play(steps=20)
    assert (world.committed() > 1_000) is at_once
    if at_once:
        assert world.committed() == 1_000 + records
