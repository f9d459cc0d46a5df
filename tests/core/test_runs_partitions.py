"""A partition's buffer and books."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.commit_metadata import WINDOW, CompletionMap
from keepfast.core.records import Message, Outgoing
from keepfast.core.runs import FailedRecord, Partition, Run
from tests.support.messages import PLACE, message


def partition(start: int = 0, resumed: CompletionMap | None = None) -> Partition:
    return Partition(PLACE, epoch=1, start=start, resumed=resumed)


def records(*offsets: int, size: int = 10) -> list[Message]:
    return [message(offset, value=b"v" * size) for offset in offsets]


def offsets(messages: list[Message]) -> list[int]:
    return [record.offset() for record in messages]


def test_a_new_partition_is_empty_and_may_start() -> None:
    fresh = partition(5)
    assert fresh.startable
    assert not fresh.skips
    assert fresh.committed == (5, "")
    assert fresh.window_end() == 5 + WINDOW


def test_records_are_buffered_in_order_and_their_bytes_counted() -> None:
    one = partition()
    one.feed(records(0, 1))
    one.feed(records(5))
    assert offsets(list(one.buffer)) == [0, 1, 5]
    assert (one.buffered_seq, one.held_bytes, one.ledger.unfinished()) == (0, 30, 3)


def test_null_values_weigh_nothing() -> None:
    one = partition()
    one.feed([message(0, value=None)])
    assert (one.held_bytes, one.ledger.unfinished()) == (0, 1)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=12))
def test_what_comes_again_is_entered_once(fetches: list[tuple[int, int]]) -> None:
    one = partition()
    entered: list[int] = []
    for start, count in fetches:
        fetched = list(range(start, start + count))
        one.feed(records(*fetched))
        entered += [offset for offset in fetched if not entered or offset > entered[-1]]
    assert offsets(list(one.buffer)) == entered
    assert one.held_bytes == 10 * len(entered)
    assert [one.ledger.offset_of(one.buffered_seq + index) for index in range(len(entered))] == entered


def test_records_below_the_start_are_left_out() -> None:
    one = partition(start=10)
    one.feed(records(8, 9))
    assert not one.buffer
    one.feed(records(9, 10, 11))
    assert offsets(list(one.buffer)) == [10, 11]


def test_the_buffer_knows_its_first_number_after_it_ran_empty() -> None:
    one = partition()
    one.feed(records(0, 1))
    one.buffer.clear()
    one.feed(records(7))
    assert one.ledger.offset_of(one.buffered_seq) == 7


def test_a_run_finishes_as_far_as_it_came() -> None:
    one = partition()
    one.feed(records(0, 1, 2))
    for seqs in (range(3), [0, 1, 2]):
        run = Run(one, list(one.buffer), seqs, {})
        run.done = 2
        one.finish(run)
        assert one.ledger.watermark() == 2
    assert one.held_bytes == 30 - 2 * 20


def test_a_case_is_finished_by_itself() -> None:
    one = partition()
    one.feed(records(0, 1, 2))
    failed_record = FailedRecord(one, 1, one.buffer[1], (), 0.0)
    one.failed_records.add(failed_record)
    one.finish_failed(failed_record)
    assert not one.failed_records
    assert one.held_bytes == 20
    assert 1 in one.ledger.completion()
    assert one.ledger.watermark() == 0


def test_a_partition_starts_nothing_while_anybody_holds_it() -> None:
    one = partition()
    one.holds |= {"breaker", "operator"}
    one.holds.discard("breaker")
    assert not one.startable
    one.holds.discard("operator")
    assert one.startable


def test_a_partition_that_is_leaving_starts_nothing() -> None:
    one = partition()
    one.closing = True
    assert not one.startable


def test_a_closed_partition_keeps_nothing() -> None:
    one = partition()
    one.feed(records(0, 1))
    one.awaiting.append(Run(one, [], [], {}))
    one.close()
    assert (one.live, one.startable, len(one.buffer), one.awaiting) == (False, False, 0, [])


def test_a_resumed_partition_skips_what_its_map_names() -> None:
    one = partition(start=10, resumed=CompletionMap(10, b"\x02"))
    assert one.skips
    one.feed(records(10, 11, 12))
    assert [one.ledger.is_finished(seq) for seq in range(3)] == [False, True, False]


def test_the_window_moves_with_the_lowest_unfinished_record() -> None:
    one = partition()
    one.feed(records(3, 4))
    assert one.window_end() == 3 + WINDOW
    one.ledger.finish([0])
    assert one.window_end() == 4 + WINDOW


class Replayed:
    """Holds these offsets back until they are reported."""

    def __init__(self, *offsets: int) -> None:
        self._offsets = offsets

    def hold_back(
        self, seqs: Sequence[int], messages: list[Message], filtered: Collection[int]
    ) -> tuple[Sequence[int], list[Message]]:
        pairs = [(seq, one) for seq, one in zip(seqs, messages, strict=True) if one.offset() not in self._offsets]
        return [seq for seq, _ in pairs], [one for _, one in pairs]

    def holds_back(self, failed_record: FailedRecord) -> bool:
        return failed_record.message.offset() in self._offsets


def outputs(one: Partition) -> list[str]:
    return [output.outgoing.topic for output in one.outputs]


def test_what_a_replayed_record_gave_is_committed_when_it_is_reported_and_not_before() -> None:
    one = partition()
    one.feed(records(0, 1))
    one.replays = Replayed(1)
    run = Run(one, list(one.buffer), (0, 1), {})
    for number, record in enumerate(run.messages):
        run.give(record, [Outgoing(f"out-{number}", b"v")])
    run.done = 2
    one.finish(run)
    assert (outputs(one), one.ledger.watermark()) == (["out-0"], 1)
    one.finish_reported(1, run.messages[1])
    assert (outputs(one), one.ledger.watermark()) == (["out-0", "out-1"], 2)
    one.outputs_done(one.outputs)
    assert one.output_bytes == 0


def test_what_a_replayed_record_gave_after_it_had_failed_waits_for_its_report_too() -> None:
    one = partition()
    one.feed(records(0))
    one.replays = Replayed(0)
    [record] = one.buffer
    failed_record = FailedRecord(one, 0, record, (), 0.0)
    run = Run.again(failed_record)
    run.give(record, [Outgoing("out", b"v")])
    one.finish_failed(failed_record)
    one.take_outputs(run, run.messages)
    assert (outputs(one), one.ledger.watermark()) == ([], 0)
    one.finish_reported(0, record)
    assert (outputs(one), one.ledger.watermark()) == (["out"], 1)
