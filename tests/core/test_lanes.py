"""Lanes: what may start, and what has to wait."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from keepfast.core.commit_metadata import WINDOW, CompletionMap
from keepfast.core.lanes import KeyLanes, Lanes, lanes_for
from keepfast.core.policies import ORDERS, Order
from keepfast.core.records import TopicPartition
from keepfast.core.runs import FailedRecord, Partition, Run
from tests.core.lanes_stories import STORIES, walk
from tests.support.messages import PLACE, message

ORDERS_0, ORDERS_1, REFUNDS_0 = PLACE, TopicPartition("orders", 1), TopicPartition("refunds", 0)


@pytest.mark.parametrize("order", ORDERS)
def test_whatever_happens_order_is_kept_and_nothing_is_lost_or_left_over(order: Order) -> None:
    run_state_machine_as_test(STORIES[order], settings=settings(max_examples=50, stateful_step_count=40))


@pytest.mark.parametrize("order", ORDERS)
def test_long_stories_keep_order_and_lose_nothing_too(order: Order) -> None:
    for seed in range(150):
        try:
            walk(order, Random(seed), steps=200)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def fed(lanes: Lanes, keys: str, *, place: TopicPartition = PLACE, resumed: CompletionMap | None = None) -> Partition:
    """A partition with one record a letter, the letter its key; a dot is a null key."""
    partition = Partition(place, epoch=1, start=0, resumed=resumed)
    feed(lanes, partition, keys)
    return partition


def feed(lanes: Lanes, partition: Partition, keys: str, *, offset: int | None = None) -> None:
    first = partition.ledger.last + 1 if offset is None else offset
    named = enumerate(keys, first)
    partition.feed([message(at, None if key == "." else key.encode(), place=partition.place) for at, key in named])
    lanes.ready(partition)


def carries(runs: list[Run]) -> list[list[int]]:
    return [[record.offset() for record in run.messages] for run in runs]


def come_back(lanes: Lanes, run: Run, *, done: int | None = None) -> None:
    """The run did this many of its records, or all, and lets go or gives back the rest."""
    run.done = len(run.messages) if done is None else done
    run.partition.finish(run)
    if run.done == len(run.messages):
        lanes.release(run)
    else:
        lanes.give_back(run)


def fail(lanes: Lanes, run: Run, *, at: int) -> FailedRecord:
    run.done = at
    run.failure = ValueError()
    run.partition.finish(run)
    return lanes.split(run, 0.0)


def finish_failed(lanes: Lanes, failed_record: FailedRecord) -> None:
    failed_record.partition.finish_failed(failed_record)
    lanes.release(failed_record)


def lose(lanes: Lanes, partition: Partition) -> None:
    partition.closing = True
    lanes.drop(partition)
    partition.close()


def is_bare(lanes: Lanes) -> bool:
    """Whether nothing is kept of lanes that nobody needs."""
    assert isinstance(lanes, KeyLanes)
    return not any(lanes._busy.values()) and not lanes._waiting and not lanes._resumed


# -- order="partition"


def test_a_partition_has_one_run_out_at_a_time_in_offset_order() -> None:
    lanes = lanes_for("partition")
    partition = fed(lanes, "abcde")
    first = lanes.take(10, 2)
    assert carries(first) == [[0, 1]]
    assert lanes.take(10, 2) == []
    lanes.ready(partition)  # as when more of it has come
    assert lanes.take(10, 2) == []
    come_back(lanes, first[0])
    assert carries(lanes.take(10, 2)) == [[2, 3]]


def test_partitions_run_beside_each_other() -> None:
    lanes = lanes_for("partition")
    fed(lanes, "ab")
    fed(lanes, "ab", place=ORDERS_1)
    fed(lanes, "ab", place=REFUNDS_0)
    assert carries(lanes.take(2, 1)) == [[0], [0]]
    assert carries(lanes.take(2, 1)) == [[0]]


def test_a_failed_record_holds_its_partition_and_the_rest_follows_it() -> None:
    lanes = lanes_for("partition")
    partition = fed(lanes, "abcd")
    (run,) = lanes.take(1, 3)
    failed_record = fail(lanes, run, at=1)
    assert failed_record.message.offset() == 1
    feed(lanes, partition, "e")
    assert lanes.take(10, 10) == []
    finish_failed(lanes, failed_record)
    assert carries(lanes.take(10, 10)) == [[2, 3, 4]]
    assert partition.ledger.watermark() == 2


def test_a_new_epoch_waits_for_the_run_of_the_old_one() -> None:
    lanes = lanes_for("partition")
    old = fed(lanes, "ab")
    (stale,) = lanes.take(1, 1)
    lose(lanes, old)
    fed(lanes, "ab")
    assert lanes.take(10, 10) == []
    lanes.release(stale)
    assert carries(lanes.take(10, 10)) == [[0, 1]]


def test_a_run_steps_over_what_the_map_says_is_finished() -> None:
    lanes = lanes_for("partition")
    partition = fed(lanes, "abcdef", resumed=CompletionMap(0, b"\x09"))  # 0 and 3
    (run,) = lanes.take(1, 10)
    assert carries([run]) == [[1, 2]]
    come_back(lanes, run)
    assert partition.ledger.watermark() == 4
    assert carries(lanes.take(1, 10)) == [[4, 5]]


# -- order="key"


def test_a_run_carries_many_lanes_and_all_records_of_each() -> None:
    lanes = lanes_for("key")
    fed(lanes, "abacb.")
    assert carries(lanes.take(10, 10)) == [[0, 1, 2, 3, 4, 5]]


def test_a_key_that_is_out_waits_and_the_others_go_on() -> None:
    lanes = lanes_for("key")
    partition = fed(lanes, "ab")
    first, second = lanes.take(10, 1)
    feed(lanes, partition, "abc.")
    assert carries(lanes.take(10, 10)) == [[4, 5]]
    come_back(lanes, second)
    assert carries(lanes.take(10, 10)) == [[3]]
    come_back(lanes, first)
    assert carries(lanes.take(10, 10)) == [[2]]


def test_a_failed_record_holds_its_key_alone() -> None:
    lanes = lanes_for("key")
    fed(lanes, "abab.")
    (run,) = lanes.take(1, 10)
    failed_record = fail(lanes, run, at=0)
    again = lanes.take(10, 10)
    assert carries(again) == [[1, 3, 4]]
    come_back(lanes, again[0])
    finish_failed(lanes, failed_record)
    assert carries(lanes.take(10, 10)) == [[2]]


def test_a_second_bundle_of_a_partition_waits_for_the_first() -> None:
    lanes = lanes_for("key")
    partition = fed(lanes, "ab")
    (run,) = lanes.take(10, 2)
    partition.running.add(run)
    feed(lanes, partition, "cd")
    assert lanes.take(10, 2) == []
    partition.running.discard(run)
    come_back(lanes, run)
    assert carries(lanes.take(10, 2)) == [[2, 3]]


def test_other_keys_go_on_while_a_record_is_tried_again_and_again() -> None:
    lanes = lanes_for("key")
    partition = fed(lanes, "a")
    (run,) = lanes.take(10, 10)
    failed_record = fail(lanes, run, at=0)
    retry = Run(partition, [failed_record.message], (failed_record.seq,), {}, failed_record)
    partition.running.add(retry)
    feed(lanes, partition, "b")
    assert carries(lanes.take(10, 10)) == [[1]]


def test_lanes_that_waited_travel_together() -> None:
    lanes = lanes_for("key")
    partition = fed(lanes, "abc")
    (run,) = lanes.take(10, 10)
    feed(lanes, partition, "abcabc")
    assert lanes.take(10, 10) == []
    come_back(lanes, run)
    runs = lanes.take(10, 4)
    assert carries(runs) == [[3, 6, 4, 7], [5, 8]]
    for run in runs:
        come_back(lanes, run)
    assert is_bare(lanes)


def test_a_key_is_one_lane_across_the_partitions_of_a_topic_but_not_across_topics() -> None:
    lanes = lanes_for("key")
    fed(lanes, "a")
    fed(lanes, "a", place=ORDERS_1)
    fed(lanes, "a", place=REFUNDS_0)
    runs = lanes.take(10, 10)
    assert [run.partition.place for run in runs] == [ORDERS_0, REFUNDS_0]
    come_back(lanes, runs[0])
    assert [run.partition.place for run in lanes.take(10, 10)] == [ORDERS_1]


def test_null_keys_wait_for_no_record_and_an_empty_key_is_a_key() -> None:
    lanes = lanes_for("key")
    partition = fed(lanes, "...")
    partition.feed([message(3, b""), message(4, b"")])
    assert carries(lanes.take(10, 1)) == [[0], [1], [2], [3]]


def test_what_a_stopped_run_left_goes_first() -> None:
    lanes = lanes_for("key")
    partition = fed(lanes, "abc")
    (run,) = lanes.take(10, 10)
    feed(lanes, partition, "c.")
    come_back(lanes, run, done=1)
    again = lanes.take(1, 10)
    assert again == [run]
    assert carries(again) == [[1, 2]]
    assert (run.done, run.stop) == (0, False)
    assert carries(lanes.take(10, 10)) == [[4]]


def test_what_the_map_says_is_finished_is_stepped_over() -> None:
    lanes = lanes_for("key")
    partition = fed(lanes, "abcab", resumed=CompletionMap(0, b"\x0a"))  # 1 and 3
    (run,) = lanes.take(10, 10)
    assert carries([run]) == [[0, 2, 4]]
    assert partition.held_bytes == 6, "values and keys"
    come_back(lanes, run)
    assert (partition.ledger.watermark(), partition.held_bytes) == (5, 0)


def test_a_stopped_run_keeps_the_lanes_of_what_it_left_and_no_others() -> None:
    lanes = lanes_for("key")
    partition = fed(lanes, "ab")
    (run,) = lanes.take(10, 10)
    come_back(lanes, run, done=1)
    partition.holds.add("operator")
    fed(lanes, "ab", place=ORDERS_1)
    assert carries(lanes.take(10, 10)) == [[0]]


def test_a_record_outside_the_window_waits_for_the_lowest_unfinished_one() -> None:
    lanes = lanes_for("key")
    partition = fed(lanes, "a")
    feed(lanes, partition, "b", offset=WINDOW - 1)
    feed(lanes, partition, "c", offset=WINDOW)
    feed(lanes, partition, "d", offset=10**12)
    lowest, last = lanes.take(10, 1)
    assert carries([lowest, last]) == [[0], [WINDOW - 1]]
    come_back(lanes, last)
    assert lanes.take(10, 10) == []
    come_back(lanes, lowest)
    (beyond,) = lanes.take(10, 10)
    assert carries([beyond]) == [[WINDOW]]
    come_back(lanes, beyond)
    assert carries(lanes.take(10, 10)) == [[10**12]]


def test_a_key_of_a_new_epoch_waits_for_the_stale_run_that_holds_it() -> None:
    lanes = lanes_for("key")
    old = fed(lanes, "ab")
    (stale,) = lanes.take(1, 1)
    lose(lanes, old)
    fed(lanes, "ab")
    assert carries(lanes.take(10, 10)) == [[1]]
    lanes.release(stale)
    assert carries(lanes.take(10, 10)) == [[0]]


def test_an_unused_lane_costs_nothing() -> None:
    lanes = lanes_for("key")
    partition = fed(lanes, "abcabc")
    runs = lanes.take(10, 2)
    for run in runs:
        come_back(lanes, run)
    runs = lanes.take(10, 10)
    failed_record = fail(lanes, runs[0], at=0)
    finish_failed(lanes, failed_record)
    for run in [*runs[1:], *lanes.take(10, 10)]:
        come_back(lanes, run)
    assert partition.ledger.unfinished() == 0
    assert is_bare(lanes)


def test_a_partition_that_goes_takes_its_waiting_records_along_and_leaves_those_of_others() -> None:
    lanes = lanes_for("key")
    fed(lanes, "a")
    leaving = fed(lanes, "aa", place=ORDERS_1)
    (run,) = lanes.take(10, 10)
    feed(lanes, run.partition, "a")
    assert lanes.take(10, 10) == []
    lose(lanes, leaving)
    come_back(lanes, run)
    (last,) = lanes.take(10, 10)
    assert (last.partition.place, carries([last])) == (ORDERS_0, [[1]])
    come_back(lanes, last)
    assert is_bare(lanes)


# -- order="none", and all


def test_without_order_no_record_waits_for_another() -> None:
    lanes = lanes_for("none")
    fed(lanes, "aaa")
    runs = lanes.take(10, 1)
    assert carries(runs) == [[0], [1], [2]]
    failed_record = fail(lanes, runs[0], at=0)
    assert failed_record.keys == ()


@pytest.mark.parametrize("order", ORDERS)
def test_a_held_partition_starts_nothing_until_it_is_let_go(order: Order) -> None:
    lanes = lanes_for(order)
    partition = fed(lanes, "ab")
    partition.holds.add("operator")
    assert lanes.take(10, 10) == []
    partition.holds.clear()
    lanes.ready(partition)
    assert carries(lanes.take(10, 10)) == [[0, 1]]


@pytest.mark.parametrize("order", ORDERS)
def test_releasing_twice_frees_no_other_lane(order: Order) -> None:
    lanes = lanes_for(order)
    partition = fed(lanes, "a")
    (first,) = lanes.take(1, 1)
    come_back(lanes, first)
    feed(lanes, partition, "aa")
    (second,) = lanes.take(1, 1)
    lanes.release(first)
    waiting = carries(lanes.take(10, 10))
    assert waiting == ([[2]] if order == "none" else [])
    come_back(lanes, second)
    assert carries(lanes.take(10, 10)) == ([] if order == "none" else [[2]])


@pytest.mark.parametrize("order", ORDERS)
def test_a_partition_that_is_leaving_takes_nothing_back(order: Order) -> None:
    lanes = lanes_for(order)
    partition = fed(lanes, "abcd")
    (run,) = lanes.take(1, 3)
    partition.closing = True
    lanes.drop(partition)
    come_back(lanes, run, done=1)
    assert (lanes.take(10, 10), len(partition.buffer)) == ([], 0)
    assert partition.ledger.watermark() == 1
