"""Where a reset of offsets leads."""

from __future__ import annotations

import pytest

from keepfast.core.records import TopicPartition
from keepfast.groups.offsets import ShiftBy, Target, ToEdge, ToOffset, ToTime, plan_reset, totals

PLACE = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("target", "committed", "offset", "again", "skipped"),
    [
        (ToEdge(), 50, 10, 40, 0),
        (ToEdge(latest=True), 50, 100, 0, 50),
        (ToOffset(60), 50, 60, 0, 10),
        (ToOffset(5), 50, 10, 40, 0),
        (ToOffset(500), 50, 100, 0, 50),
        (ShiftBy(-20), 50, 30, 20, 0),
        (ShiftBy(5), None, 15, 0, 5),
        (ShiftBy(5), 3, 10, 0, 0),
        (ToTime(7), 50, 42, 8, 0),
    ],
)
def test_offsets_stay_within_the_partition(
    target: Target, committed: int | None, offset: int, again: int, skipped: int
) -> None:
    plan = plan_reset(target, {PLACE: (10, 100)}, {PLACE: committed}, {PLACE: 42})
    assert [(one.offset, one.again, one.skipped) for one in plan] == [(offset, again, skipped)]
    assert totals(plan) == (again, skipped)


def test_a_partition_without_a_record_since_that_time_goes_to_its_end() -> None:
    [one] = plan_reset(ToTime(7), {PLACE: (10, 100)}, {PLACE: 50}, {})
    assert (one.offset, one.skipped) == (100, 50)


def test_a_partition_that_stands_there_already_is_not_changed() -> None:
    [one] = plan_reset(ToEdge(), {PLACE: (10, 100)}, {PLACE: 10}, {})
    assert not one.changed
    [fresh] = plan_reset(ToEdge(), {PLACE: (10, 100)}, {PLACE: None}, {})
    assert fresh.changed, "without a commit, auto_offset_reset would decide"
