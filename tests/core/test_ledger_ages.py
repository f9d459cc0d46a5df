"""How old what was received is, without looking at every record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.ledger import GRAIN_MS, MANY, Ages
from keepfast.core.records import Message
from keepfast.core.runs import Partition, Run
from keepfast.testing.fakes.log import FakeMessage
from tests.support.messages import PLACE, message

DAY_MS = 86_400_000


def written(*steps_ms: int, first: int = 0) -> list[Message]:
    """Records, each so much later than the one before."""
    at_ms, messages = 1_000_000, []
    for offset, step_ms in enumerate(steps_ms, first):
        at_ms += step_ms
        messages.append(message(offset, timestamp_ms=at_ms))
    return messages


@given(st.lists(st.lists(st.sampled_from([0, 1, 400, 600, 5_000, DAY_MS]), min_size=1, max_size=40), max_size=8))
def test_every_age_is_true_to_within_two_grains(sweeps: list[list[int]]) -> None:
    messages = written(*(step for sweep in sweeps for step in sweep))
    ages, start = Ages(), 0
    for sweep in sweeps:
        ages.note(start, messages[start : start + len(sweep)])
        start += len(sweep)
    for one in messages:
        found = ages.written_ms(one.offset())
        assert found is not None
        assert 0 <= one.timestamp()[1] - found <= 2 * GRAIN_MS


def test_a_busy_partition_is_looked_at_twice_a_sweep() -> None:
    looks = 0

    class Counted(FakeMessage):
        def timestamp(self) -> tuple[int, int]:
            nonlocal looks
            looks += 1
            return super().timestamp()

    ages = Ages()
    for first in range(0, 50_000, 500):
        sweep = [Counted(PLACE, first + at, key=None, value=b"", timestamp_ms=10**6 + first) for at in range(500)]
        ages.note(first, sweep)  # type: ignore[arg-type]
    assert looks == 2 * 100
    assert ages.written_ms(49_999) in (10**6 + 49_000, 10**6 + 49_500)


def test_records_that_were_written_apart_are_looked_at_once_each() -> None:
    """A backlog of a topic that gets a record now and then: what its age costs must not depend on how far apart."""
    looks = 0

    class Counted(FakeMessage):
        def timestamp(self) -> tuple[int, int]:
            nonlocal looks
            looks += 1
            return super().timestamp()

    ages = Ages()
    sweep = [Counted(PLACE, at, key=None, value=b"", timestamp_ms=10**6 + at * DAY_MS) for at in range(500)]
    ages.note(0, sweep)  # type: ignore[arg-type]
    assert looks == 500 + 2
    assert len(ages._marks) == 1
    assert [ages.written_ms(at) for at in (0, 250, 499)] == [10**6 + at * DAY_MS for at in (0, 250, 499)]


def test_the_age_of_a_record_behind_offsets_that_never_came_is_its_own() -> None:
    partition = Partition(PLACE, epoch=1, start=0)
    partition.feed([message(offset, timestamp_ms=1000 * offset) for offset in (10, 20, 5_000)])
    [*taken, _] = partition.buffer
    run = Run(partition, taken, range(2), {})
    run.done = 2
    partition.finish(run)
    assert partition.behind_s(5_060.0, 5_001, fetched=True) == 60.0


def test_before_the_first_and_without_timestamps_nothing_is_known() -> None:
    ages = Ages()
    assert ages.written_ms(7) is None
    ages.note(5, [message(5), message(6)])
    assert ages.written_ms(6) is None
    ages.note(7, written(0, first=7))
    assert (ages.written_ms(6), ages.written_ms(7)) == (None, 1_000_000)


def test_what_is_finished_does_not_pile_up_and_the_clock_of_others_makes_nothing_negative() -> None:
    partition = Partition(PLACE, epoch=1, start=0)
    assert partition.behind_s(0.0, 0, fetched=True) == 0.0
    for one in written(*[DAY_MS] * 3 * MANY):
        partition.feed([one])
        if one.offset() < 3 * MANY - 1:
            [taken], partition.buffer = partition.buffer, []
            run = Run(partition, [taken], (one.offset(),), {})
            run.done = 1
            partition.finish(run)
    assert len(partition.ages._marks) <= MANY + 1
    assert partition.behind_s(0.0, 0, fetched=True) == 0.0, "written in the future"
    assert partition.behind_s(1_000 + 3 * MANY * DAY_MS / 1000 + 60, 0, fetched=True) == 60.0


def test_what_the_brokers_have_and_is_not_fetched_is_as_old_as_it_has_been_missed() -> None:
    partition = Partition(PLACE, epoch=1, start=5)
    paused = [partition.behind_s(wall_s, end, fetched=False) for wall_s, end in [(100.0, 5), (101.0, 7), (131.0, 9)]]
    assert paused == [0.0, 0.0, 30.0]
    assert partition.behind_s(132.0, 9, fetched=True) == 0.0, (
        "a record would be here: it is the marker of a transaction"
    )
    assert partition.behind_s(133.0, 9, fetched=False) == 0.0
