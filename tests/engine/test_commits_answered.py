"""A partition whose lease has run out continues when the commit is confirmed: so the client is polled for the answer
even when there is no room for more records.
"""

from __future__ import annotations

import pytest

from keepfast.core.guards import BreakerPolicy
from keepfast.core.policies import BufferPolicy, CommitPolicy
from keepfast.core.records import Message
from tests.engine.world import World

STEP_S = 0.001


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_full_buffer_does_not_keep_the_answer_from_a_partition_that_waits_for_it(partitions: int) -> None:
    world = World(
        lambda _: None,
        batch=None,
        partitions=partitions,
        max_deliveries=3,
        commit=CommitPolicy(mode="interval", every_s=60.0, every_records=10_000_000),
        buffer=BufferPolicy(records=100),
    )
    world.source.answers = False  # the lease is asked for, and nothing may start before
    for partition in range(partitions):
        world.feed("." * 150, partition=partition)
    for _ in range(20):
        world.step(pass_s=STEP_S)
    assert all(len(partition.buffer) >= 100 for partition in world.loop.ownership), "everything is full"
    assert not world.workers.out
    world.source.answers = True
    for _ in range(5):
        world.step(pass_s=STEP_S)
    assert world.workers.out, "the answer came, and nothing starts"


def test_what_is_taken_in_while_it_waits_is_little() -> None:
    world = World(
        lambda _: None,
        batch=None,
        partitions=1,
        max_deliveries=3,
        commit=CommitPolicy(mode="interval", every_s=60.0, every_records=10_000_000),
        buffer=BufferPolicy(records=600),
    )
    world.source.answers = False
    world.feed("." * 5_000)
    for _ in range(15):
        world.step(pass_s=STEP_S)
    [partition] = world.loop.ownership
    sweep = world.loop.plan.sweep
    assert 600 <= len(partition.buffer) <= 2 * sweep + 15, "beside the sweeps that filled it, one record a turn"


@pytest.mark.parametrize(("fetched", "pauses"), [(3_900, False), (9_000, True)])
def test_the_rest_of_a_fetch_is_taken_in_while_a_partition_waits_for_its_answer(fetched: int, *, pauses: bool) -> None:
    world = World(
        lambda _: None,
        batch=None,
        partitions=2,
        max_deliveries=3,
        commit=CommitPolicy(mode="interval", every_s=60.0, every_records=10_000_000),
        buffer=BufferPolicy(records=1_000),
    )
    world.source.answers = False
    world.feed("." * fetched)
    steps = 0
    while not world.source.paused and steps < 20:
        world.step(pass_s=STEP_S)
        steps += 1
    held = max(len(partition.buffer) for partition in world.loop.ownership)
    assert bool(world.source.paused) == pauses
    assert min(fetched, 4_000) <= held <= 4_000 + 2 * (world.loop.plan.sweep + 1)


def test_what_is_full_is_paused_at_once_where_each_record_waits_for_its_commit() -> None:
    world = World(lambda _: None, batch=None, partitions=1, buffer=BufferPolicy(records=600))
    world.feed("." * 5_000)
    _turns(world, 1)
    world.source.answers = False
    _turns(world, 15)
    [partition] = world.loop.ownership
    assert world.loop.committer.under_way
    assert world.source.paused == {partition.place}, "each poll hands out a record instead of waiting for the answer"


def test_a_batch_that_is_overdue_while_the_breaker_is_open_does_not_keep_the_answer_away() -> None:
    def handle(values: list[str]) -> None:
        if any(value.startswith("0:") for value in values):
            raise ConnectionRefusedError("down")

    breaker = BreakerPolicy(failures=1, share=0.01, window_s=60.0, open_s=60.0, max_open_s=60.0)
    world = World(handle, wait_s=0.0, size=2, partitions=2, breaker=breaker)
    world.feed("a", partition=1)
    _turns(world, 3)
    world.source.answers = False
    world.feed("aa", partition=1)
    _turns(world, 3)
    assert world.loop.committer.under_way
    world.feed("aa")
    _turns(world, 5)
    assert "breaker" in world.loop.holds, "the batch of the other partition failed, and its retry is due at once"
    world.source.answers = True
    _turns(world, 2)
    assert not world.loop.committer.under_way, "the answer is there, and nobody looks for it"


def test_a_consumer_that_is_held_waits_in_the_client_although_a_batch_is_overdue() -> None:
    def refuse(values: list[str]) -> None:
        raise ConnectionRefusedError("down")

    world = World(refuse, wait_s=0.0, size=2)
    world.feed("aa")
    _turns(world, 3)
    world.loop.holds.add("by hand")
    waits: list[float] = []
    poll = world.source.poll

    def look(timeout_s: float) -> Message | None:
        waits.append(timeout_s)
        return poll(timeout_s)

    world.source.poll = look  # type: ignore[method-assign]
    _turns(world, 10, pass_s=1.0)
    assert min(waits[2:]) > 0, "it turns without a pause for as long as the hold lasts"


def _turns(world: World, count: int, pass_s: float = STEP_S) -> None:
    for _ in range(count):
        world.step(pass_s=pass_s)
        while world.workers.out:
            world.work()
