"""The scenarios trust `reconcile`: here it is told one story of each kind of wrong, and a good one. No broker."""

from __future__ import annotations

from keepfast.core.commit_metadata import CompletionMap, encode
from tests.scenarios.history import Commit, History
from tests.scenarios.journal import Entry, Id, Span, spans_of
from tests.scenarios.reconcile import Findings, find

A, B, C = (Id("t", 0, offset) for offset in range(3))
KEYS = {A: b"a", B: b"b", C: b"a"}


def reported(*story: str) -> list[Span]:
    """`"1 start A"`: process 1 starts record A; each word takes 10 ms, the first one at 10 ms."""
    entries = []
    for number, line in enumerate(story, 1):
        pid, what, name = line.split()
        record = {"A": A, "B": B, "C": C}[name]
        entries.append(
            Entry(
                pid=int(pid),
                what=what,
                consumer="handle",
                id=record,
                key=KEYS[record],
                attempt=1,
                at=number / 100,
                wall_ms=number * 10,
            )
        )
    return spans_of(entries)


def commits(*pairs: tuple[float, int], finished: tuple[int, ...] = ()) -> History:
    """(milliseconds, offset); `finished` are offsets in the map of the last one."""
    made = [Commit("t", 0, offset, "", int(at_ms)) for at_ms, offset in pairs]
    if finished:
        last = made.pop()
        metadata = encode(CompletionMap.from_int(last.offset, sum(1 << (one - last.offset) for one in finished)))
        made.append(Commit("t", 0, last.offset, metadata, last.at_ms))
    return History(tuple(made), ())


GOOD = ("1 start A", "1 end A", "1 start B", "1 end B", "1 start C", "1 end C")


def look(*story: str, history: History, order: str = "partition") -> Findings:
    return find([A, B, C], reported(*story), history, order=order)


def test_a_good_story_has_nothing_wrong() -> None:
    look(*GOOD, history=commits((25, 1), (45, 2), (65, 3))).assert_exactly_once()


def test_a_record_without_an_outcome_is_lost() -> None:
    assert look(*GOOD[:5], history=commits()).lost == [C]


def test_a_commit_before_the_end_runs_ahead() -> None:
    assert len(look(*GOOD, history=commits((39, 2))).ahead) == 1


def test_a_map_before_the_end_runs_ahead() -> None:
    assert len(look(*GOOD, history=commits((45, 1), finished=(1, 2))).ahead) == 1


def test_a_commit_below_an_earlier_one_goes_backwards() -> None:
    assert len(look(*GOOD, history=commits((65, 3), (70, 2))).backwards) == 1


def test_a_later_record_that_starts_first_breaks_the_order() -> None:
    story = ("1 start B", "1 end B", "1 start A", "1 end A", "1 start C", "1 end C")
    assert len(look(*story, history=commits()).order) == 1
    assert look(*story, history=commits(), order="key").order == []


def test_two_records_of_a_lane_side_by_side_break_the_order() -> None:
    story = ("1 start A", "1 start C", "1 end A", "1 end C", "2 start B", "2 end B")
    assert look(*story, history=commits(), order="key").order != []


def test_the_next_record_in_another_process_must_wait_too() -> None:
    story = ("1 start A", "2 start B", "2 end B", "1 end A", "2 start C", "2 end C")
    assert len(look(*story, history=commits()).order) == 1


def test_a_lane_that_goes_on_before_its_commit_is_unconfirmed() -> None:
    look(*GOOD, history=commits((25, 1), (45, 2), (65, 3))).assert_committed_each()
    assert len(look(*GOOD, history=commits((31, 1), (45, 2), (65, 3))).unconfirmed) == 1
    assert look(*GOOD, history=commits((31, 1), (45, 2), (65, 3)), order="key").unconfirmed == []
    assert len(look(*GOOD, history=commits((51, 2)), order="key").unconfirmed) == 1
    assert look(*GOOD, history=commits((51, 1), finished=(2,)), order="key").unconfirmed != []


def test_a_committed_record_that_starts_again_is_needless() -> None:
    story = (*GOOD, "2 start C", "2 end C")
    again = look(*story, history=commits((65, 3)))
    assert len(again.needless) == 1
    assert again.repeated == {C: 2}
    assert look(*story, history=commits((75, 3))).needless == []
    assert len(look(*story, history=commits((65, 1), finished=(2,))).needless) == 1
