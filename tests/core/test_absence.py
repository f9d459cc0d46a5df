"""How long something was seen not to be there."""

from __future__ import annotations

from keepfast.core.absence import MAX_GAP_S, Absence


def test_only_the_time_between_looks_counts() -> None:
    absence = Absence()
    absence.seen(100.0)
    assert absence.seconds == 0.0
    absence.seen(100.125)
    absence.seen(100.25)
    assert absence.seconds == 0.25


def test_of_a_long_time_without_an_answer_little_counts() -> None:
    absence = Absence()
    absence.seen(0.0)
    absence.seen(60.0)
    assert absence.seconds == MAX_GAP_S
