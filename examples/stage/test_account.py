"""An account that could not say `lost 1` would be worth nothing."""

from __future__ import annotations

from examples.stage.account import Account


def account() -> Account:
    made = Account("shop")
    made.expect("a", "stored")
    made.expect("b", "dead-lettered")
    made.note("stored", ["a"])
    made.note("dead-lettered", ["b"])
    return made


def test_everything_where_it_belongs_is_right() -> None:
    assert account().is_right


def test_what_came_to_no_end_is_lost() -> None:
    made = account()
    made.expect("c", "stored")
    assert (made.lost, made.is_right) == (["c"], False)
    assert "  lost       1  (c)" in list(made.lines())


def test_what_ended_elsewhere_or_twice_is_wrong() -> None:
    made = account()
    made.note("dead-lettered", ["a"])
    assert made.wrong == {"a": "dead-lettered + stored instead of stored"}
    assert not made.is_right


def test_what_was_not_sent_is_unexpected_and_a_problem_is_reported() -> None:
    made = account()
    made.note("stored", ["z"])
    made.check("a row was changed", right=False)
    assert (made.unexpected, made.problems, made.is_right) == (["z"], ["a row was changed"], False)
