"""How a group gets on with a partition, by looks at it."""

from __future__ import annotations

import pytest

from keepfast.groups.lag import WINDOW_S, LagSample, state_of, within

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
    ],
)
def test_what_the_looks_say(rows: list[Row], owned: bool | None, state: str) -> None:
    assert state_of(samples(*rows, owned=owned)) == state


def test_lag_counts_from_what_is_still_there() -> None:
    [deleted, never, truncated] = samples((0, 3, 20), (0, None, 20), (0, 25, 20), low=12)
    assert (deleted.lag, never.lag, truncated.lag) == (8, 8, 0)


def test_old_looks_are_forgotten_but_never_the_last() -> None:
    old, new = samples((0, 1, 9), (10, 1, 9))
    assert within([old, new], WINDOW_S + 5) == [new]
    assert within([old], 10 * WINDOW_S) == [old]
