from __future__ import annotations

from tests.settings.loader import Loader


def test_many_records_share_a_transaction_unless_it_is_chosen_otherwise(loader: Loader) -> None:
    assert not loader.charge().exactly_once
    once = loader.charge(exactly_once=True)
    assert (once.exactly_once, once.commit.mode, once.commit.every_s) == (True, "interval", 0.1)
    assert loader.charge(exactly_once=True, commit="each").commit.mode == "each"
    other = loader.charge({"KEEPFAST_COMMIT_EVERY_S": "2"}, exactly_once=True).commit
    assert (other.mode, other.every_s) == ("interval", 2.0)


def test_offsets_of_open_transactions_must_be_seen(loader: Loader) -> None:
    [problem] = loader.problems({"KEEPFAST_CONSUMER_ISOLATION_LEVEL": "read_uncommitted"}, exactly_once=True)
    assert "KEEPFAST_CONSUMER_ISOLATION_LEVEL" in problem
    assert "leave it at read_committed" in problem


def test_it_belongs_to_the_code(loader: Loader) -> None:
    assert any("exactly_once" in problem for problem in loader.problems({"KEEPFAST_CONSUMER_EXACTLY_ONCE": "true"}))
