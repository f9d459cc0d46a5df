from __future__ import annotations

from tests.settings.loader import Loader


def test_there_is_no_time_limit_by_default(loader: Loader) -> None:
    timeout = loader.charge().timeout
    assert (timeout.timeout_s, timeout.on_timeout, timeout.max_abandoned) == (None, "dead-letter", 10)


def test_it_is_set_in_code_and_in_the_environment(loader: Loader) -> None:
    assert loader.charge(timeout_s=2.5, on_timeout="hold").timeout.timeout_s == 2.5
    both = loader.charge({"KEEPFAST_CONSUMERS_CHARGE_TIMEOUT_S": "1", "KEEPFAST_CONSUMER_TIMEOUT_S": "7"}, timeout_s=2)
    assert both.timeout.timeout_s == 1
    assert loader.charge({"KEEPFAST_CONSUMERS_CHARGE_TIMEOUT_S": "none"}, timeout_s=2).timeout.timeout_s is None
    assert loader.charge(timeout_s=None).timeout.timeout_s is None


def test_every_problem_is_reported_with_its_source(loader: Loader) -> None:
    found = loader.problems({"KEEPFAST_CONSUMER_TIMEOUT_S": "0"}, on_timeout="wait", max_abandoned=0)
    assert len(found) == 3
    assert any("KEEPFAST_CONSUMER_TIMEOUT_S" in problem for problem in found)


def test_what_has_no_effect_is_a_warning(loader: Loader) -> None:
    (warning,) = loader.load(on_timeout="hold").warnings
    assert "has no effect without a timeout_s" in warning
    assert loader.load(on_timeout="hold", timeout_s=1).warnings == ()
    assert loader.load(max_abandoned=2).warnings == (), "a new epoch abandons handlers of before, too"
    (warning,) = loader.load(max_abandoned=2, stuck_after_s=None).warnings
    assert "has no effect without a timeout_s or stuck_after_s" in warning


def test_a_handler_is_stuck_after_30_s_by_default(loader: Loader) -> None:
    assert loader.charge().timeout.stuck_after_s == 30.0
    assert loader.charge({"KEEPFAST_CONSUMER_STUCK_AFTER_S": "none"}).timeout.stuck_after_s is None
    assert loader.charge({"KEEPFAST_CONSUMERS_CHARGE_STUCK_AFTER_S": "5"}, stuck_after_s=7).timeout.stuck_after_s == 5
    [problem] = loader.problems({"KEEPFAST_CONSUMER_STUCK_AFTER_S": "0"})
    assert "KEEPFAST_CONSUMER_STUCK_AFTER_S" in problem
