"""The ledger against a model of plain sets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from keepfast.core import ledger as module
from keepfast.core.commit_metadata import WINDOW, CompletionMap
from keepfast.core.ledger import LeaderEpochs, Ledger
from keepfast.core.records import TopicPartition
from keepfast.testing.fakes.log import FakeMessage

PLACE = TopicPartition("t", 0)
HUGE = 10**12
steps = st.one_of(st.integers(1, 3), st.sampled_from([1, WINDOW - 1, WINDOW, HUGE]))


def map_of(base: int, offsets: set[int]) -> CompletionMap:
    return CompletionMap.from_int(base, sum(1 << (offset - base) for offset in offsets))


def offsets_in(finished: CompletionMap) -> set[int]:
    return {offset for offset in range(finished.base, finished.end) if offset in finished}


def finished_records(ledger: Ledger, count: int, start: int = 0) -> None:
    """Receive and finish `count` consecutive offsets."""
    first = ledger.receive(range(start, start + count))
    ledger.finish(range(first, first + count))


class LedgerAgainstSets(RuleBasedStateMachine):
    """Two ledgers get the same, one of them is trimmed all the time: nobody can tell them apart, nor from the model.

    As the lanes do, it finishes only records within the window.
    """

    @initialize(start=st.sampled_from([-2, 0, 7, HUGE]), resumed=st.sets(st.integers(0, 40), max_size=12))
    def begin(self, start: int, resumed: set[int]) -> None:
        self.start = start
        self.resumed = {start + index for index in resumed if start >= 0}
        self.ledgers = [Ledger(start, map_of(start, self.resumed)) for _ in range(2)]
        self.received: list[int] = []  # the index is the sequence number
        self.finished: set[int] = set()
        self.committed = self.end = start

    @property
    def last(self) -> int:
        return self.received[-1] if self.received else self.start - 1

    @property
    def next(self) -> int:
        return max(self.last + 1, self.end)

    @property
    def lowest_unfinished(self) -> int:
        return min((offset for offset in self.received if offset not in self.finished), default=self.next)

    @rule(gaps=st.lists(steps, max_size=8))
    def receive(self, gaps: list[int]) -> None:
        offsets, last = [], max(self.next - 1, -1)
        for gap in gaps:
            last += gap
            offsets.append(last)
        first = [ledger.receive(offsets) for ledger in self.ledgers]
        assert first == [len(self.received)] * 2
        self.received += offsets
        self.finished |= self.resumed & set(offsets)

    @rule(behind=st.sampled_from([-3, 0, 1, 5, WINDOW]))
    def reach(self, behind: int) -> None:
        end = self.next + behind
        moves = behind > 0 and end >= 0
        assert [ledger.reach(end) for ledger in self.ledgers] == [moves] * 2
        self.end = end if moves else self.end

    @precondition(lambda self: self.received)
    @rule(back=st.sampled_from([0, 1, 50]))
    def an_old_offset_is_refused(self, back: int) -> None:
        for ledger in self.ledgers:
            with pytest.raises(ValueError, match="was received after"):
                ledger.receive([self.last - back, self.last + 1])

    @precondition(lambda self: self.received)
    @rule(data=st.data())
    def finish_some(self, data: st.DataObject) -> None:
        """Also what is finished already, and long forgotten."""
        seqs = data.draw(st.sets(st.integers(0, len(self.received) - 1), min_size=1, max_size=6))
        self.finish(sorted(seqs))

    @precondition(lambda self: self.received)
    @rule(data=st.data())
    def finish_a_stretch(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(self.received)))
        self.finish(range(start, data.draw(st.integers(start, len(self.received)))))

    @precondition(lambda self: self.received)
    @rule(count=st.integers(1, 10))
    def finish_the_lowest(self, count: int) -> None:
        unfinished = [seq for seq, offset in enumerate(self.received) if offset not in self.finished]
        self.finish(unfinished[:count])

    def finish(self, seqs: list[int] | range) -> None:
        end = self.lowest_unfinished + WINDOW
        allowed = [seq for seq in seqs if self.received[seq] < end]
        for ledger in self.ledgers:
            ledger.finish(seqs[: len(allowed)] if isinstance(seqs, range) else allowed)
        self.finished |= {self.received[seq] for seq in allowed}

    @rule()
    def trim_one_of_them(self) -> None:
        self.ledgers[1].watermark()
        self.ledgers[1].trim()

    @invariant()
    def the_watermark_is_the_lowest_unfinished_offset_and_never_goes_back(self) -> None:
        for ledger in self.ledgers:
            assert ledger.watermark() == self.lowest_unfinished
        assert self.lowest_unfinished >= self.committed
        self.committed = self.lowest_unfinished

    @invariant()
    def the_map_names_exactly_what_is_finished_above_the_watermark(self) -> None:
        known = self.finished | {offset for offset in self.resumed if offset >= self.next}
        for ledger in self.ledgers:
            finished = ledger.completion()
            assert finished.base == self.lowest_unfinished
            assert offsets_in(finished) == {offset for offset in known if offset >= finished.base}
            assert len(finished.bits) * 8 <= WINDOW

    @invariant()
    def the_rest_agrees_with_the_model(self) -> None:
        for ledger in self.ledgers:
            assert ledger.last == self.last
            assert ledger.unfinished() == len(set(self.received) - self.finished)
            named = len([offset for offset in self.resumed if offset >= self.next])
            for end in (max(self.next, 0), max(self.next, 0) + 60):
                left = end - max(self.next, 0) - (named if end > self.next else 0)
                assert ledger.unfinished_below(end) == ledger.unfinished() + left
            assert [ledger.is_finished(seq) for seq in range(len(self.received))] == [
                offset in self.finished for offset in self.received
            ]
            assert ledger.resuming or all(offset < self.next for offset in self.resumed)

    @invariant()
    def a_restart_from_the_map_repeats_nothing_that_is_finished(self) -> None:
        finished = self.ledgers[0].completion()
        again = Ledger(finished.base, finished)
        rest = [offset for offset in self.received if offset >= finished.base]
        first = again.receive(rest)
        assert {offset for seq, offset in enumerate(rest, first) if again.is_finished(seq)} == self.finished & set(rest)
        assert again.watermark() == self.lowest_unfinished or rest, "what was reached is not told by the map"
        again.reach(self.next)
        assert again.watermark() == self.lowest_unfinished


def test_the_ledger_agrees_with_a_model_and_trimming_shows_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TRIM", 1)
    run_state_machine_as_test(LedgerAgainstSets, settings=settings(max_examples=100, stateful_step_count=25))


def test_a_new_ledger_may_commit_its_start_and_nothing_else() -> None:
    ledger = Ledger(42)
    assert (ledger.watermark(), ledger.last, ledger.unfinished(), ledger.resuming) == (42, 41, 0, False)
    assert ledger.completion() == CompletionMap(42)


@pytest.mark.parametrize("old", [[9], [41], [9, 43], [41, 43]])
def test_what_was_received_or_lies_before_the_start_is_refused(old: list[int]) -> None:
    ledger = Ledger(10)
    ledger.receive([40, 41])
    with pytest.raises(ValueError, match="was received after 41"):
        ledger.receive(old)
    with pytest.raises(ValueError, match="was received after 9"):
        Ledger(10).receive([9])
    assert (ledger.last, ledger.unfinished()) == (41, 2)


def test_an_unfinished_record_holds_the_watermark_while_later_ones_finish() -> None:
    ledger = Ledger(10)
    ledger.receive([10, 11, 12, 13])
    ledger.finish([1, 3])
    assert ledger.watermark() == 10
    assert offsets_in(ledger.completion()) == {11, 13}
    ledger.finish([0])
    assert ledger.watermark() == 12
    assert offsets_in(ledger.completion()) == {13}


def test_offsets_that_never_arrive_hold_nothing_up() -> None:
    ledger = Ledger(0)
    ledger.receive([3, 7, HUGE, 2 * HUGE])
    assert ledger.watermark() == 3
    ledger.finish([0])
    assert ledger.watermark() == 7
    ledger.finish([1, 2])
    assert ledger.watermark() == 2 * HUGE
    assert ledger.completion() == CompletionMap(2 * HUGE)
    ledger.finish([3])
    assert ledger.watermark() == 2 * HUGE + 1


def test_what_lies_behind_the_last_record_counts_as_finished_once_it_is_known_and_the_records_are() -> None:
    ledger = Ledger(10)
    first = ledger.receive([10, 11])
    assert ledger.reach(14), "three offsets behind the last record are markers, or aborted"
    assert ledger.watermark() == 10
    assert not ledger.are_finished(10, 14)
    ledger.finish([first, first + 1])
    assert ledger.watermark() == ledger.next_offset == 14
    assert ledger.are_finished(10, 14)
    assert not ledger.are_finished(10, 15), "what comes next is not known"
    ledger.receive([15])
    assert ledger.watermark() == 15, "14 was a gap"


def test_the_end_of_an_empty_log_is_a_position_to_commit() -> None:
    ledger = Ledger(-2)
    assert ledger.watermark() == -2
    assert ledger.reach(0)
    assert ledger.watermark() == 0
    assert not ledger.reach(0)
    assert ledger.reach(3), "three records of an aborted transaction, say"
    assert ledger.watermark() == 3


def records(*found: tuple[int, int | None]) -> list[FakeMessage]:
    return [FakeMessage(PLACE, offset, key=None, value=b"", leader_epoch=epoch) for offset, epoch in found]


def test_a_commit_has_the_epoch_of_the_record_at_its_offset_or_of_the_last_one_before_it() -> None:
    epochs = LeaderEpochs(10, 3)
    assert epochs.at(10) == 3, "of the commit that was found"
    epochs.note(records((10, 4), (11, 4), (12, 6), (13, 6)))
    epochs.note(records((14, 6)))
    assert [epochs.at(offset) for offset in (10, 11, 12, 14, 15)] == [4, 4, 6, 6, 6]


def test_a_commit_behind_a_gap_does_not_have_the_epoch_of_the_record_before_it() -> None:
    """Offsets of a later epoch may lie in the gap: the broker would take the commit for one of another log."""
    epochs = LeaderEpochs(0, None)
    epochs.note(records((0, 1), (1, 1)))
    epochs.note(records((7, 2)))
    assert epochs.at(7) == 2, "records from 2 to 6 were compacted away, some of epoch 2"
    epochs.step(9, 5)
    assert epochs.at(9) == 5, "the marker at 8 may be of epoch 5"
    epochs.note(records((9, 5)))
    epochs.step(12, None)
    assert epochs.at(12) is None


def test_the_epochs_of_a_sweep_are_read_twice_unless_they_differ() -> None:
    reads = 0

    class Counted(FakeMessage):
        def leader_epoch(self) -> int | None:
            nonlocal reads
            reads += 1
            return super().leader_epoch()

    epochs = LeaderEpochs(0, None)
    for first in range(0, 5_000, 500):
        epochs.note([Counted(PLACE, first + at, key=None, value=b"", leader_epoch=1) for at in range(500)])
    assert reads <= 2 * 10 + 1
    assert len(epochs._steps) <= 2


def test_a_record_below_the_end_that_came_nevertheless_is_not_passed() -> None:
    ledger = Ledger(0)
    assert ledger.reach(5)
    ledger.receive([3])
    assert ledger.watermark() == 3


def test_a_resumed_map_counts_although_its_records_have_not_arrived() -> None:
    ledger = Ledger(10, map_of(10, {11, 12, 30}))
    assert offsets_in(ledger.completion()) == {11, 12, 30}
    ledger.receive([10])
    ledger.finish([0])
    assert ledger.watermark() == 11
    assert offsets_in(ledger.completion()) == {11, 12, 30}
    ledger.receive([11, 12, 13])
    assert ledger.watermark() == 13
    assert offsets_in(ledger.completion()) == {30}
    assert ledger.resuming


def test_a_resumed_map_is_forgotten_when_its_records_are_past() -> None:
    ledger = Ledger(10, map_of(10, {12}))
    ledger.receive([10, 20])
    assert not ledger.resuming
    assert offsets_in(ledger.completion()) == set()


def test_a_resumed_record_that_was_compacted_away_is_not_claimed_for_ever() -> None:
    ledger = Ledger(10, map_of(10, {12, 40}))
    ledger.receive([10, 15])
    assert offsets_in(ledger.completion()) == {40}


def test_trimming_keeps_memory_flat() -> None:
    ledger = Ledger(0)
    for start in range(0, 200_000, 1_000):
        finished_records(ledger, 1_000, start)
        ledger.watermark()
        ledger.trim()
        assert len(ledger._offsets) == len(ledger._state) <= module._TRIM + 1_000
    assert ledger.watermark() == 200_000


@given(again=st.one_of(st.just(range(100)), st.lists(st.integers(0, 20_000), min_size=1)))
@settings(max_examples=20)
def test_finishing_what_was_trimmed_touches_no_other_record(again: list[int] | range) -> None:
    ledger = Ledger(0)
    finished_records(ledger, 20_001)
    ledger.receive(range(30_000, 30_500))
    ledger.watermark()
    ledger.trim()
    assert ledger._base > 0
    ledger.finish(again)
    assert ledger.unfinished() == 500
    assert ledger.watermark() == 30_000
    assert len(ledger._offsets) == len(ledger._state)
