"""Batches: the search for the bad record, what a failure names, and what the parts know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.batches import Batch, Search, as_batch, lane_of
from keepfast.core.errors import BatchError, ConfigError, Discard, Reject, RetryLater, named_in
from keepfast.core.policies import BatchPolicy
from keepfast.core.records import Message, TopicPartition
from keepfast.core.runs import FailedRecord, Partition, Run
from tests.support.messages import message


def search(count: int, bad: set[int], *, atomic: bool) -> tuple[list[int], int | None, int]:
    """Search as the engine does: what was finished, in order, the record that was found, and how many calls it took."""
    left = list(range(count))
    finished: list[int] = []
    calls = 1
    if not bad & set(left):
        return left, None, calls
    state = Search(count, count, atomic).failed(count) if count > 1 else None
    if state is None:
        return [], left[0], calls
    while True:
        tried = left[: state.size]
        calls += 1
        if bad & set(tried):
            narrowed = state.failed(len(tried))
            if narrowed is None:
                return finished, tried[0], calls
            state = narrowed
        else:
            finished += tried
            left = left[len(tried) :]
            following = state.succeeded(len(tried))
            if following is None:
                return finished, None, calls
            state = following


@given(st.integers(1, 600), st.data(), st.booleans())
def test_the_first_bad_record_is_found_and_everything_before_it_is_finished_once(
    count: int, data: st.DataObject, atomic: bool
) -> None:
    bad = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=5))
    finished, found, calls = search(count, bad, atomic=atomic)
    assert found == min(bad)
    assert finished == list(range(min(bad)))
    assert calls <= (2 + count.bit_length() if atomic else 1 + count)


def test_halves_are_tried_left_first() -> None:
    first = Search(8, 8, atomic=True).failed(8)
    assert first == Search(8, 4, atomic=True)
    assert first.failed(4) == Search(4, 2, atomic=True)
    assert first.succeeded(4) == Search(4, 2, atomic=True)


def test_without_atomic_each_is_tried_alone() -> None:
    assert Search(8, 8, atomic=False).failed(8) == Search(8, 1, atomic=False)


def test_records_that_failed_only_together_end_the_search_without_a_culprit() -> None:
    alone = Search.among(2, atomic=True).succeeded(1)
    assert alone is not None
    assert alone.succeeded(1) is None


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (Reject("no", index=1), [1]),
        (Reject("no", index=[2, 0, 2]), [0, 2]),
        (Discard("no", index=range(2)), [0, 1]),
        (RetryLater(after_s=1, index=2), [2]),
        (Reject("no"), []),
        (ValueError("no"), []),
        (Reject("no", index=3), []),
        (Reject("no", index=[0, 3]), []),
    ],
)
def test_a_failure_is_about_the_records_it_names_or_about_all(error: BaseException, named: list[int]) -> None:
    assert named_in(error, 3) == dict.fromkeys(named, error)


def test_a_batch_error_brings_an_error_for_each_record() -> None:
    late, wrong = OSError("late"), ValueError("wrong")
    assert named_in(BatchError({2: late, 0: wrong}), 3) == {0: wrong, 2: late}


def test_a_batch_error_says_how_many_and_which_errors_and_no_more() -> None:
    assert (
        str(BatchError({2: OSError("secret"), 0: ValueError("secret")})) == "2 of the batch failed: OSError, ValueError"
    )


@pytest.mark.parametrize("index", [-1, [0, -1], [True], ["0"]])
def test_what_is_no_position_cannot_be_named(index: object) -> None:
    with pytest.raises(ValueError, match="counted from 0"):
        Reject("no", index=index)  # type: ignore[arg-type]


def test_a_batch_error_must_name_a_record() -> None:
    with pytest.raises(ValueError, match="names no record"):
        BatchError({})


def test_the_policy_says_all_its_faults_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        BatchPolicy(size=0, wait_s=-1)
    assert [problem.split(" ")[1] for problem in caught.value.problems] == ["size", "wait_s"]


def test_members_of_one_lane_are_determined_by_the_order() -> None:
    one, other, free = message(0, b"a"), message(1, b"a", place=TopicPartition("orders", 1)), message(2, None)
    assert lane_of("key")(one) == lane_of("key")(other)
    assert lane_of("key")(free) is None
    assert lane_of("partition")(one) != lane_of("partition")(other)
    assert lane_of("none")(one) is None


def parts_of(*counts: int) -> list[Run]:
    parts = []
    for number, count in enumerate(counts):
        partition = Partition(TopicPartition("orders", number), epoch=1, start=0)
        messages = [message(offset, place=partition.place) for offset in range(count)]
        partition.feed(messages)
        parts.append(Run(partition, list(messages), range(count), {}))
    return parts


def test_a_batch_goes_out_whole_or_as_far_as_the_search_says() -> None:
    batch = Batch(parts_of(2, 3))
    batch.muster(0.0)
    assert (len(batch.messages), batch.left, batch.attempt) == (5, 5, 1)
    batch.search = Search(4, 3, atomic=True)
    batch.muster(0.0)
    assert [(part.partition.place.partition, seq) for part, seq in batch.members()] == [(0, 0), (0, 1), (1, 0)]


def test_the_parts_know_what_the_worker_has_done() -> None:
    batch = Batch(parts_of(2, 3))
    batch.muster(0.0)
    batch.given = [0, 1, 2, 4]  # the fourth cannot be handed over
    batch.succeeded()
    assert batch.done == 4
    assert [part.done for part in batch.parts] == [2, 1]
    assert [batch.finished_of(batch.parts[0], 0), batch.finished_of(batch.parts[1], 2)] == [[0, 1], [0, 2]]


def test_what_was_named_is_left_out_wherever_it_stands_now() -> None:
    batch = Batch(parts_of(2, 3))
    batch.muster(0.0)
    batch.named = {list(batch.members())[3]: ValueError("the second of the second partition")}
    del batch.parts[0]
    batch.muster(0.0)
    assert list(batch.bad) == [1]


def test_a_batch_is_stopped_as_soon_as_one_of_its_partitions_goes() -> None:
    batch = Batch(parts_of(1, 1))
    batch.enter()
    assert not batch.stopped
    for run in batch.parts[1].partition.running:
        run.stop = True
    assert batch.stopped
    batch.leave()
    assert not any(len(part.partition.running) for part in batch.parts)


# -- what a run and a batch have in common


def runs(*, live: bool = True) -> tuple[Run, Batch]:
    """A record that is retried alone, and a batch of two partitions, of which the first may be lost."""
    parts = []
    for number, offsets in enumerate([(5, 7), (9,)]):
        partition = Partition(TopicPartition("t", number), epoch=1, start=0)
        messages: list[Message] = [message(offset, place=partition.place) for offset in offsets]
        partition.feed(messages)
        partition.live = live or number > 0
        parts.append(Run(partition, messages, range(len(messages)), {}))
    batch = Batch(parts)
    batch.muster(0.0)
    first = parts[0]
    return Run.again(FailedRecord(first.partition, 0, first.messages[0], (), 0.0)), batch


def test_a_run_is_one_part_and_a_batch_several() -> None:
    run, batch = runs()
    assert (list(run.parts), as_batch(run), run.call_size) == ([run], None, 1)
    assert (len(batch.parts), as_batch(batch), batch.call_size) == (2, batch, 3)


def test_in_hand_is_the_record_that_a_worker_is_at_or_all_of_a_batch() -> None:
    run, batch = runs()
    assert ([*run.in_hand()], [*batch.in_hand()]) == ([], []), "they have not begun"
    for one in (run, batch):
        one.select(lambda _: None, lane_of("none"))
    assert [(partition.place.partition, offset) for partition, offset in run.in_hand()] == [(0, 5)]
    assert [(partition.place.partition, offset) for partition, offset in batch.in_hand()] == [(0, 5), (0, 7), (1, 9)]


def test_only_what_is_of_a_lost_partition_is_stale() -> None:
    run, batch = runs()
    assert ([*run.stale_holders()], [*batch.stale_holders()]) == ([], [])
    run, batch = runs(live=False)
    assert [*run.stale_holders()] == [run.failed_record]
    assert [*batch.stale_holders()] == batch.parts[:1]


def test_a_record_that_cannot_be_decoded_fails_its_run_and_is_left_out_of_a_batch() -> None:
    def decode(one: Message) -> int:
        if one.offset() == 5:
            raise ValueError
        return one.offset()

    run, batch = runs()
    with pytest.raises(ValueError):  # noqa: PT011 - as it is
        run.select(decode, lane_of("none"))
    selection = batch.select(decode, lane_of("none"))
    assert selection is not None
    assert (selection.value(), [one.offset() for one in selection.messages]) == ([7, 9], [7, 9])
    assert (list(batch.bad), batch.given) == ([0], [1, 2])


def test_nothing_is_selected_of_a_run_that_is_to_stop() -> None:
    for one in runs():
        one.stop = True
        assert one.select(lambda _: None, lane_of("none")) is None


def test_an_error_about_the_only_record_of_a_call_is_its_own() -> None:
    run, batch = runs()
    own = ValueError()
    error = BatchError({0: own})
    assert run.judged_by(error) is own
    assert batch.judged_by(error) is error
