"""A broker may be told to take less metadata with a commit than ours needs: then less is said, and nothing stands."""

from __future__ import annotations

import pytest

from keepfast.core import commit_metadata
from keepfast.core.policies import CommitPolicy
from tests.engine.test_crash_guard import committed_guard
from tests.engine.world import World

RECORDS = 300


def play(largest: int, *, commit: CommitPolicy) -> World:
    """The first record takes until all others are done."""
    world = World(lambda _: None, order="none", batch=None, partitions=1, max_deliveries=3, commit=commit, capacity=2)
    world.source.most_metadata = largest
    world.feed("." * RECORDS)
    for _ in range(100):
        world.step(pass_s=0.01)
        if world.workers.out:
            break
    assert world.workers.out, "nothing starts"
    first = world.workers.out.pop(0)
    first.current = 0  # its worker is at it
    for _ in range(4 * RECORDS):
        world.step(pass_s=0.01)
        if world.workers.out:
            world.work()
    assert len(world.done) == RECORDS - 1
    world.workers.out.append(first)
    return world


@pytest.mark.parametrize("largest", [0, 20, 50])
@pytest.mark.parametrize("mode", ["each", "interval"])
def test_everything_goes_on_and_is_committed(largest: int, mode: str) -> None:
    world = play(largest, commit=CommitPolicy(mode=mode))  # type: ignore[arg-type]
    world.play(steps=10)
    assert world.committed() == RECORDS
    assert not world.loop.holds


def test_what_fits_is_still_recorded() -> None:
    world = play(50, commit=CommitPolicy(mode="each"))
    [position] = world.source.committed_at.values()
    known = commit_metadata.decode(position.metadata, offset=position.offset)
    assert [offset in known for offset in (0, 1, 2, RECORDS - 1)] == [False, True, True, False]
    assert committed_guard(world).lease is not None
