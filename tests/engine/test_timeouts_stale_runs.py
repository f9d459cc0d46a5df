"""A handler hangs, its partition is taken away and assigned to the same process again: the records of its lane wait for
`stuck_after_s`, not longer, and nothing else waits.
"""

from __future__ import annotations

from typing import Any

import pytest

from keepfast.core.policies import BatchPolicy, CommitPolicy, Order
from keepfast.core.runs import Run
from keepfast.core.timeouts import TimeoutPolicy
from tests.engine.world import World
from tests.support.log_capture import LogCapture

STUCK_S = 5.0


class Stale(World):
    """One record at a time, unless `batch` is told."""

    def __init__(self, order: Order = "partition", *, capacity: int = 4, **more: Any) -> None:
        timeout = more.pop("timeout", TimeoutPolicy(stuck_after_s=STUCK_S))
        super().__init__(lambda _: None, order=order, capacity=capacity, **{"batch": None, "timeout": timeout, **more})

    def begin(self) -> Run:
        """The next run is handed to a worker."""
        for _ in range(100):
            if self.workers.out:
                break
            self.step(pass_s=0.05)
        run = self.workers.out.pop(0)
        run.current = 0
        return run

    def hang(self) -> Run:
        """And does not end."""
        return self.begin()

    def bounce(self, partition: int = 0) -> None:
        """It is lost and comes back; what is in it is read again."""
        place = self.places[partition]
        self.loop.on_lost([place])
        self.loop.on_assigned([place])
        self._ends[place] = 0

    def play_for(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.25)):
            self.step(pass_s=0.25)
            while self.workers.out:
                self.work()
                self.step()

    def comes_back(self, run: Run) -> None:
        """The handler ends after all."""
        run.done = len(run.messages)
        self.mailbox.post(run)
        self.step()

    @property
    def waits(self) -> list[str]:
        """Partitions that are shown with the hold."""
        state = self.loop.status.look(self.clock.now)
        return [f"{one.topic}[{one.partition}]" for one in state.partitions if "stale_run" in one.holds]

    @property
    def abandoned(self) -> int:
        return self.loop.overdue.abandoned(self.clock.now)


def test_the_partition_goes_on_after_stuck_after_s_and_what_the_handler_says_then_is_dropped(log: LogCapture) -> None:
    world = Stale()
    world.feed("ab")
    run = world.hang()
    world.bounce()
    world.feed("ab")
    world.play_for(STUCK_S - 1)
    assert world.done == [], "it waits: two handlers of one lane must not run at once"
    assert world.waits == ["orders[0]"]
    assert max(one.stale_run_s for one in world.loop.status.state.partitions) > 1
    [held] = log.fields("partition_held")
    assert (held["hold"], held["topic"], held["partition"]) == ("stale_run", "orders", 0)
    world.play_for(4)
    assert world.done == ["0:0", "0:1"]
    assert (world.waits, world.abandoned) == ([], 1)
    assert world.workers.given_up == [run]
    [report] = log.fields("stale_handler_abandoned")
    assert (report["partition"], report["offset"]) == (0, 0)
    assert report["waited_s"] >= STUCK_S
    assert log.fields("partition_released")[0]["hold"] == "stale_run"
    assert world.committed() == 2
    world.comes_back(run)
    assert (world.abandoned, world.committed(), world.workers.given_up) == (0, 2, [])


def test_a_handler_that_ends_in_time_is_not_given_up() -> None:
    world = Stale()
    world.feed("a")
    run = world.hang()
    world.bounce()
    world.feed("a")
    world.play_for(STUCK_S - 1)
    world.comes_back(run)
    world.play_for(1)
    assert (world.done, world.abandoned, world.workers.given_up) == (["0:0"], 0, [])


def test_a_run_without_waiting_records_is_not_abandoned() -> None:
    world = Stale()
    world.feed("a")
    world.hang()
    world.loop.on_lost([world.places[0]])
    world.feed("a", partition=1)
    world.play_for(10 * STUCK_S)
    assert (world.done, world.waits, world.workers.given_up) == (["1:0"], [], [])
    world.loop.on_assigned([world.places[0]])
    world.play_for(10 * STUCK_S)
    assert world.workers.given_up == [], "nor while there is nothing to do"


def test_one_that_has_the_turn_of_others_is_waited_for_as_long() -> None:
    """As with an inbox in SQLite: their workers have them, and wait for its transaction to end."""
    world = Stale()
    world.feed("a")
    run = world.hang()
    world.loop.on_lost([world.places[0]])
    world.feed("b", partition=1)
    next_one = world.begin()
    next_one.waits = True
    world.play_for(STUCK_S - 1)
    assert (world.waits, world.workers.given_up) == (["orders[1]"], [])
    world.play_for(4)
    assert (world.workers.given_up, run.abandoned, next_one.abandoned) == ([run], True, False)
    next_one.waits = False
    world.play_for(1)
    assert world.waits == []


def test_one_that_waits_for_its_own_turn_is_not_in_the_way() -> None:
    world = Stale()
    world.feed("a")
    run = world.hang()
    run.waits = True
    world.loop.on_lost([world.places[0]])
    world.feed("b", partition=1)
    world.begin().waits = True
    world.play_for(2 * STUCK_S)
    assert (world.waits, world.workers.given_up) == ([], [])


def test_with_order_by_key_only_the_key_waits() -> None:
    world = Stale("key", commit=CommitPolicy(mode="each"))
    world.feed("a")
    world.hang()
    world.bounce()
    world.feed("abc")
    world.play_for(STUCK_S - 1)
    assert world.done == ["0:1", "0:2"]
    assert world.waits == ["orders[0]"]
    world.play_for(4)
    assert world.done == ["0:1", "0:2", "0:0"]
    assert (world.committed(), world.abandoned) == (3, 1)


@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_without_a_free_worker_stale_runs_are_not_waited_for_longer(order: Order) -> None:
    world = Stale(order, capacity=1)
    world.feed("a")
    world.hang()
    world.bounce()
    world.feed("b", partition=1)
    world.play_for(STUCK_S - 1)
    assert (world.done, world.waits) == ([], ["orders[1]"])
    world.play_for(4)
    assert (world.done, world.abandoned) == (["1:0"], 1)


@pytest.mark.parametrize(
    "timeout",
    [TimeoutPolicy(stuck_after_s=None), TimeoutPolicy(timeout_s=1.0, on_timeout="hold", stuck_after_s=STUCK_S)],
)
def test_it_waits_for_good_where_nothing_is_to_be_abandoned_and_says_so(timeout: TimeoutPolicy) -> None:
    world = Stale(timeout=timeout)
    world.feed("a")
    run = world.hang()
    world.bounce()
    world.feed("a")
    world.play_for(10 * STUCK_S)
    assert (world.done, world.waits, world.workers.given_up) == ([], ["orders[0]"], [])
    world.comes_back(run)
    world.play_for(1)
    assert (world.done, world.waits) == (["0:0"], [])


def test_no_more_are_abandoned_than_may_be_and_only_the_lane_waits_then() -> None:
    world = Stale(timeout=TimeoutPolicy(stuck_after_s=STUCK_S, max_abandoned=1), partitions=3)
    world.feed("a")
    world.feed("a", partition=1)
    first, second = world.hang(), world.hang()
    for partition in (0, 1):
        world.bounce(partition)
        world.feed("a", partition=partition)
    world.play_for(4 * STUCK_S)
    assert (world.done, world.waits, world.abandoned) == (["0:0"], ["orders[1]"], 1)
    world.feed("a", partition=2)
    world.play_for(1)
    assert world.done == ["0:0", "2:0"], "nothing else is held"
    assert not world.loop.overdue.not_live
    world.comes_back(first)
    world.play_for(4)
    assert world.done == ["0:0", "2:0", "1:0"]
    assert world.workers.given_up == [second]


def test_a_retry_that_hangs_is_given_up_with_the_case_that_holds_its_lane() -> None:
    world = Stale()
    world.feed("ab")
    run = world.begin()
    run.failure = OSError("not now")
    world.mailbox.post(run)
    assert world.hang().failed_record is not None
    world.bounce()
    world.feed("ab")
    world.play_for(STUCK_S + 4)
    assert (world.done, world.abandoned) == (["0:0", "0:1"], 1)


def test_a_batch_that_hangs_is_given_up_whole_or_for_the_partition_that_went() -> None:
    for both in (True, False):
        world = Stale(batch=BatchPolicy(size=4, wait_s=0.1))
        world.feed("ab")
        world.feed("ab", partition=1)
        run = world.hang()
        assert len(run.messages) == 4
        for partition in (0, 1) if both else (0,):
            world.bounce(partition)
            world.feed("ab", partition=partition)
        world.play_for(STUCK_S + 4)
        wanted = ["0:0", "0:1", "1:0", "1:1"] if both else ["0:0", "0:1"]
        assert (sorted(world.done), world.abandoned) == (wanted, 1 if both else 0)
        run.done = len(run.messages)
        world.comes_back(run)
        world.play_for(1)
        assert [world.committed(partition) for partition in (0, 1)] == [2, 2]
        assert sorted(world.done) == wanted
