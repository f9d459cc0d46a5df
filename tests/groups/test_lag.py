"""How a group gets on with a partition, by looks at it."""

from __future__ import annotations

import pytest

from keepfast.core.commit_metadata import CompletionMap, encode
from keepfast.core.ports import CommittedOffset
from keepfast.core.records import Record, TopicPartition
from keepfast.core.retry_topics import due_ms
from keepfast.groups.lag import WINDOW_S, LagSample, LagState, finished_above, state_of, state_with, within

Row = tuple[float, int | None, int]


def samples(*rows: Row, owned: bool | None = True, low: int = 0) -> list[LagSample]:
    return [LagSample(at=at, committed=committed, end=end, low=low, owned=owned) for at, committed, end in rows]


@pytest.mark.parametrize(
    ("rows", "owned", "state"),
    [
        ([(0, 5, 5)], True, "ok"),
        ([(0, 5, 5)], False, "ok"),
        ([(0, 1, 9)], True, "unknown"),
        ([(0, 1, 9), (1, 1, 9)], True, "unknown"),
        ([(0, 1, 9), (5, 1, 9)], True, "stalled"),
        ([(0, 1, 9), (5, 1, 9)], None, "stalled"),
        ([(0, 1, 9), (5, 2, 900)], True, "ok"),
        ([(0, 9, 9), (5, 9, 20)], True, "ok"),
        ([(0, 1, 9)], False, "stopped"),
        ([(0, 1, 9), (5, 4, 9)], False, "ok"),
        ([(0, 7, 9), (5, 3, 9)], True, "rewinding"),
        ([(0, 9, 9), (5, 3, 9)], True, "rewinding"),
        ([(0, None, 9), (5, None, 9)], True, "stalled"),
        ([(0, None, 9), (5, 0, 9)], True, "stalled"),
        ([(0, None, 0)], False, "ok"),
        ([(0, 28_978, 978)], True, "beyond_end"),
        ([(0, 28_978, 0), (5, 28_978, 978)], False, "beyond_end"),
        ([(0, 28_978, 978), (5, 978, 978)], True, "rewinding"),
    ],
)
def test_what_the_looks_say(rows: list[Row], owned: bool | None, state: str) -> None:
    assert state_of(samples(*rows, owned=owned)) == state


def test_a_partition_without_owner_is_unassigned_while_members_have_others_and_stopped_otherwise() -> None:
    def state(*, others: bool) -> str:
        return state_of([LagSample(at=0, committed=None, end=9, low=0, owned=False, others=others)])

    assert (state(others=True), state(others=False)) == ("unassigned", "stopped")


def test_lag_counts_from_what_is_still_there() -> None:
    [deleted, never, truncated] = samples((0, 3, 20), (0, None, 20), (0, 25, 20), low=12)
    assert (deleted.lag, never.lag, truncated.lag) == (8, 8, 0)


def test_what_the_completion_map_names_is_finished_and_the_rest_of_the_lag_is_behind() -> None:
    named = CompletionMap.from_int(3, 0b1011_0110)  # 4, 5, 7, 8 and 10
    commit = CommittedOffset(TopicPartition("orders", 0), 3, encode(named))
    assert [finished_above(commit, end) for end in (100, 9, 4, 2)] == [5, 4, 0, 0]
    assert finished_above(CommittedOffset(TopicPartition("orders", 0), 3, "of another client"), 100) == 0
    assert finished_above(CommittedOffset(TopicPartition("orders", 0), None), 100) == 0
    sample = LagSample(at=0, low=0, end=13, committed=3, finished_above=5)
    assert (sample.lag, sample.behind) == (10, 5)


def test_old_looks_are_forgotten_but_never_the_last() -> None:
    old, new = samples((0, 1, 9), (10, 1, 9))
    assert within([old, new], WINDOW_S + 5) == [new]
    assert within([old], 10 * WINDOW_S) == [old]


WALL_S = 1_800_000_000.0


def moved(topic: str, *, ago_s: float, delay_s: float = 60, header: bool = True) -> Record:
    """A record that was moved to a retry topic some time ago."""
    block = (("keepfast-retry-due-ms", b"%d" % due_ms(WALL_S - ago_s, delay_s)), ("keepfast-retry-headers", b"0"))
    at_ms = int((WALL_S - ago_s) * 1000)
    return Record(topic, 0, 7, None, b"{}", block if header else (), at_ms)


@pytest.mark.parametrize("header", [True, False], ids=["by its header", "by its timestamp"])
@pytest.mark.parametrize(
    ("topic", "ago_s", "seen", "state"),
    [
        ("orders.shop.retry.1m", 20, "stalled", "waiting"),
        ("orders.shop.retry.1m", 20, "unknown", "waiting"),
        ("orders.shop.retry.1m", 20, "stopped", "stopped"),
        ("orders.shop.retry.1m", 20, "rewinding", "rewinding"),
        ("orders.shop.retry.1m", 20, "ok", "ok"),
        ("orders.shop.retry.1m", 62, "stalled", "unknown"),
        ("orders.shop.retry.1m", 70, "stalled", "stalled"),
        ("orders.shop.retry.5s", 20, "stalled", "stalled"),
        ("orders.other.retry.1m", 20, "stalled", "stalled"),
        ("orders", 20, "stalled", "stalled"),
    ],
)
def test_a_record_that_is_not_due_yet_waits(
    topic: str, ago_s: float, seen: LagState, state: LagState, *, header: bool
) -> None:
    assert state_with(moved(topic, ago_s=ago_s, header=header), seen, "shop", WALL_S) == state
