"""Nothing starts beyond a partition's lease, whatever its order; and whoever runs out of it asks for more."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from keepfast.core.commit_metadata import WINDOW, CompletionMap
from keepfast.core.crash_guard import CrashWatch, Guard
from keepfast.core.lanes import Lanes, lanes_for
from keepfast.core.policies import ORDERS, Order
from keepfast.core.runs import Partition, Run
from tests.support.messages import PLACE, message


class Leased:
    """A partition with so many records, and how often it asked for a lease."""

    def __init__(
        self, order: Order, offsets: Sequence[int], *, lease: int, resumed: CompletionMap | None = None
    ) -> None:
        self.asked = 0
        self.lanes: Lanes = lanes_for(order)
        self.partition = Partition(PLACE, epoch=1, start=0, resumed=resumed)
        self.partition.watch = CrashWatch(Guard(), self._ask)
        self.partition.lease_until(lease, lease)
        self.partition.feed([message(offset, b"k%d" % offset) for offset in offsets])
        self.lanes.ready(self.partition)

    def _ask(self) -> None:
        self.asked += 1

    def take(self, limit: int = 100, size: int = 1) -> list[int]:
        return [record.offset() for run in self.lanes.take(limit, size) for record in run.messages]

    def move(self, lease: int) -> None:
        self.partition.lease_until(lease, lease)
        self.lanes.ready(self.partition)

    def finish(self, run: Run) -> None:
        run.done = len(run.messages)
        self.partition.finish(run)
        self.lanes.release(run)


@pytest.mark.parametrize("order", ORDERS)
def test_nothing_starts_before_there_is_a_lease(order: Order) -> None:
    one = Leased(order, range(10), lease=0)
    assert one.take() == []
    assert one.asked == 1
    one.move(3)
    assert one.take(1, size=10) == [0, 1, 2]


@pytest.mark.parametrize("order", ORDERS)
def test_a_run_ends_where_the_lease_ends_and_more_is_asked_for(order: Order) -> None:
    one = Leased(order, range(100), lease=40)
    assert one.take(1, size=100) == list(range(40))
    assert one.asked == 1


@pytest.mark.parametrize("order", ORDERS)
def test_within_the_lease_no_commit_is_needed(order: Order) -> None:
    one = Leased(order, range(100), lease=40)
    assert one.take(1, size=39) == list(range(39))
    assert one.asked == 0


@pytest.mark.parametrize("order", ORDERS)
def test_when_the_lease_gets_short_more_is_asked_for_and_nothing_waits(order: Order) -> None:
    one = Leased(order, range(100), lease=90)
    one.partition.lease_until(90, 30)
    [run] = one.lanes.take(1, 30)
    assert one.asked == 0
    one.finish(run)
    assert one.take(1, size=30) == list(range(30, 60))
    assert one.asked == 1


@pytest.mark.parametrize("order", ORDERS)
def test_a_run_that_is_out_grows_up_to_the_lease(order: Order) -> None:
    one = Leased(order, range(5), lease=8)
    [run] = one.lanes.take(1, 100)
    one.partition.running.add(run)
    one.partition.feed([message(offset, b"k%d" % offset) for offset in range(5, 20)])
    one.lanes.ready(one.partition)
    one.lanes.grow(100)
    assert [record.offset() for record in run.messages] == list(range(8))
    assert one.asked == 1


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_finished_already_needs_no_lease(order: Order) -> None:
    one = Leased(order, range(20), lease=10, resumed=CompletionMap.from_int(0, 0b11_1111_1110))
    assert one.take(1, size=1) == [0]


@pytest.mark.parametrize("order", ["key", "none"])
def test_who_is_held_up_by_the_window_does_not_ask_for_a_lease(order: Order) -> None:
    one = Leased(order, [0, WINDOW], lease=WINDOW * 9)
    assert one.take() == [0]
    assert one.take() == []
    assert one.asked == 0


def test_the_handed_out_end_where_the_buffer_begins() -> None:
    one = Leased("partition", range(3, 9), lease=100)
    assert one.partition.handed == 3
    one.take(1, size=2)
    assert one.partition.handed == 5
    one.lanes.drop(one.partition)
    assert one.partition.handed == 9


@pytest.mark.parametrize("order", ORDERS)
def test_whatever_the_lease_does_nothing_starts_beyond_it_and_everything_is_done_in_the_end(order: Order) -> None:
    for seed in range(60):
        rng = Random(seed)
        one = Leased(order, range(rng.randint(1, 300)), lease=0)
        total, started, out = len(one.partition.buffer), list[int](), list[Run]()
        for _ in range(5_000):
            if len(started) == total and not out:
                break
            asked = one.asked
            if rng.random() < 0.5:
                one.lanes.grow(rng.choice((1, 10, 100)))
            for run in one.lanes.take(rng.randint(1, 4), rng.choice((1, 5, 100))):
                one.partition.running.add(run)
                out.append(run)
            for run in [run for run in out if rng.random() < 0.5]:
                assert all(record.offset() < one.partition.lease for record in run.messages)
                started += [record.offset() for record in run.messages]
                out.remove(run)
                one.partition.running.discard(run)
                one.finish(run)
            if one.asked > asked:  # a commit moves it, now and then only just far enough
                one.move(max(one.partition.lease, one.partition.handed + rng.choice((1, 7, 60))))
        assert sorted(started) == list(range(total)), f"seed {seed}"
