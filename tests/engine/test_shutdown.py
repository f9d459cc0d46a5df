"""A signal has come: what is finished, what is not begun, what is told, on ports that do as configured."""

from __future__ import annotations

from typing import Any

import pytest

from keepfast.core import commit_metadata, crash_guard
from keepfast.core.crash_guard import Guard, Spans
from keepfast.core.timeouts import TimeoutPolicy
from keepfast.engine.shutdown import REPORT_S
from tests.engine.world import World
from tests.support.log_capture import LogCapture


def world_of(handle: Any = lambda _: None) -> World:
    """Two partitions; the first has a record in flight, and two behind it."""
    world = World(handle, size=1, wait_s=0.0, partitions=2)
    world.feed("abc")
    world.step()
    world.step()
    assert world.out == [["0:0"]]
    return world


def test_what_is_in_hand_is_finished_and_committed_and_nothing_else_starts() -> None:
    def work(_: list[str]) -> None:
        world.stop()
        world.step(pass_s=1.0)
        assert world.loop.ending is None, "somebody is at work"

    world = world_of(work)
    world.work()
    world.step()
    world.step()
    assert (world.done, world.out, world.committed()) == (["0:0"], [], 1)
    assert world.loop.ending is not None
    assert (world.loop.ending.kind, world.loop.ending.unfinished) == ("stopped", 0)


def test_no_partition_is_read_any_more_an_idle_one_neither() -> None:
    world = world_of()
    world.stop()
    world.feed("z", partition=1)
    world.step()
    world.step()
    assert world.source.paused == set(world.places)
    assert world.out == [["0:0"]], "what still came is left to the next owner"


def test_who_waits_for_a_retry_is_not_waited_for() -> None:
    def refuse(_: list[str]) -> None:
        raise TimeoutError

    world = world_of(refuse)
    world.work()
    world.step()
    assert world.out == [], "it waits for a second"
    world.stop()
    world.step()
    world.step()
    assert world.loop.ending is not None
    assert (world.loop.ending.unfinished, world.committed()) == (0, 0)


def test_its_progress_is_reported_every_five_seconds(log: LogCapture) -> None:
    world = world_of()
    world.stop(after_s=30.0)
    world.step()
    assert log.fields("drain_started") == [{"consumer": "c", "consumer_group": "g", "in_flight": 1}]
    world.step(pass_s=REPORT_S - 1)
    assert log.fields("drain_waiting") == []
    world.step(pass_s=1.0)
    world.step(pass_s=REPORT_S)
    assert log.fields("drain_waiting") == [{"consumer": "c", "records": 1, "letters": 0, "commits": 0}] * 2


def test_by_its_deadline_it_is_over_and_what_was_not_finished_is_not_committed() -> None:
    world = world_of()
    world.stop(after_s=10.0)
    world.step(pass_s=9.0)
    assert world.loop.ending is None
    world.step(pass_s=2.0)
    assert world.loop.ending is not None
    assert (world.loop.ending.unfinished, world.committed()) == (1, 0)


@pytest.mark.parametrize("finished", [False, True])
def test_a_last_commit_without_an_answer_is_unfinished_only_if_it_has_more_than_words_of_the_crash_guard(
    finished: bool,
) -> None:
    world = World(lambda _: None, batch=None, partitions=1, order="key", max_deliveries=3)
    world.feed("ab")
    world.play(steps=10)
    assert world.committed() == 2
    world.source.answers = False
    if finished:
        world.feed("c")
        world.step()
        world.step()
        world.work()
    requests = len(world.source.requests)
    world.stop(after_s=10.0)
    world.step(pass_s=1.0)
    assert world.loop.ending is None
    assert len(world.source.requests) == requests + 1, "it announces that the process does not die"
    world.step(pass_s=10.0)
    assert world.loop.ending is not None
    assert (world.loop.ending.unfinished, world.loop.ending.unconfirmed) == (finished, 1)


@pytest.mark.parametrize("lost", [False, True])
def test_a_lease_that_went_with_a_lost_partition_is_unconfirmed_at_the_end(lost: bool) -> None:
    """Its next owner finds the lease, and what says that this process ended on purpose must still be there."""
    world = World(lambda _: None, batch=None, partitions=1, order="key", max_deliveries=3)
    world.feed("ab")
    world.play(steps=10)
    assert world.committed() == 2
    world.loop.on_lost(world.places) if lost else world.revoke(0)
    world.stop(after_s=10.0)
    world.play(steps=5)
    assert world.loop.ending is not None
    assert (world.loop.ending.unfinished, world.loop.ending.unconfirmed) == (0, int(lost))


@pytest.mark.parametrize("leave", [False, True])
def test_a_static_member_leaves_only_if_it_does_not_come_back(leave: bool) -> None:
    world = world_of()
    world.work()
    world.stop(leave=leave)
    world.step()
    world.step()
    assert world.loop.ending is not None
    assert world.source.left is leave


def test_and_not_when_the_loop_itself_has_failed() -> None:
    world = world_of()
    world.loop.abandon(RuntimeError("it broke"))
    assert world.source.left is False


@pytest.mark.parametrize(
    ("blocked", "named", "counted"),
    [(True, True, ((0, 1),)), (True, False, ((0, 2),)), (False, False, ())],
    ids=["its record is known", "its record is not known", "it is only slow"],
)
def test_a_deadline_that_passes_counts_as_a_death_only_if_the_process_was_not_live(
    blocked: bool, named: bool, counted: Spans
) -> None:
    policy = TimeoutPolicy(stuck_after_s=2.0)
    world = World(lambda _: None, batch=None, partitions=1, order="key", max_deliveries=3, timeout=policy)
    world.feed("ab")
    for _ in range(3):
        world.step()
    assert sorted(world.out) == [["0:0"], ["0:1"]]
    culprit = next(run for run in world.workers.out if run.messages[0].offset() == 0)
    world.workers.blocked_by = ([culprit] if named else []) if blocked else None
    for run in world.workers.out:
        run.current = 0
    for _ in range(5):
        world.step(pass_s=1.0)
    world.stop(after_s=3.0)
    for _ in range(5):
        world.step(pass_s=1.0)
    assert world.loop.ending is not None
    assert (world.loop.ending.unfinished, world.committed()) == (2, 0)
    world.source.answer()  # the last commit was sent
    assert guard_of(world).in_hand == counted


def test_a_commit_says_at_once_that_the_process_ends_while_a_record_is_in_flight() -> None:
    world = World(lambda _: None, batch=None, partitions=1, order="key", max_deliveries=3)
    world.feed("a")
    for _ in range(3):
        world.step()
    assert (world.out, guard_of(world).draining) == ([["0:0"]], False)
    world.stop()
    for _ in range(3):
        world.step()
    assert (world.out, guard_of(world).draining) == ([["0:0"]], True)


def guard_of(world: World) -> Guard:
    """What the last commit of the first partition says about crashes."""
    position = world.source.committed_at[world.places[0]]
    return crash_guard.read(commit_metadata.read(position.metadata, offset=position.offset)[1], position.offset)
