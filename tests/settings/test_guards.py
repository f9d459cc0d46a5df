"""Breaker, storm guard and rate limits: the storm guard is on, the others are off unless configured."""

from __future__ import annotations

import pytest

from keepfast.core.guards import BreakerPolicy, RatePolicy, StormPolicy
from tests.settings.loader import Loader


def test_only_the_storm_guard_is_on_by_default(loader: Loader) -> None:
    charge = loader.charge()
    assert (charge.breaker, charge.storm_guard, charge.rate) == (None, StormPolicy(), None)
    assert loader.charge(breaker=False, storm_guard=True, rate=RatePolicy()) == charge
    assert loader.charge(storm_guard=False).storm_guard is None
    assert loader.charge({"KEEPFAST_STORM_GUARD_ENABLED": "false"}).storm_guard is None


def test_true_takes_the_defaults(loader: Loader) -> None:
    charge = loader.charge(breaker=True, storm_guard=True)
    assert charge.breaker == BreakerPolicy(failures=5, share=0.5, window_s=10, open_s=10, max_open_s=60)
    assert charge.storm_guard == StormPolicy(last=250, dead_lettered=200, share=0.8)


def test_a_policy_in_code_switches_its_guard_on(loader: Loader) -> None:
    breaker, storm, rate = (
        BreakerPolicy(failures=2),
        StormPolicy(dead_lettered=9),
        RatePolicy(per_s=5, min_delay_ms=100),
    )
    charge = loader.charge(breaker=breaker, storm_guard=storm, rate=rate)
    assert (charge.breaker, charge.storm_guard, charge.rate) == (breaker, storm, rate)


def test_settings_switch_guards_on_and_say_single_numbers(loader: Loader) -> None:
    environ = {
        "KEEPFAST_BREAKER_ENABLED": "true",
        "KEEPFAST_CONSUMERS_CHARGE_BREAKER_OPEN_S": "3",
        "KEEPFAST_RATE_PER_S": "2.5",
    }
    charge = loader.charge(environ, toml="[consumers.charge]\nstorm_guard = true")
    assert charge.breaker == BreakerPolicy(open_s=3)
    assert charge.storm_guard == StormPolicy()
    assert charge.rate == RatePolicy(per_s=2.5)
    off = {"KEEPFAST_CONSUMERS_CHARGE_BREAKER_ENABLED": "no", "KEEPFAST_CONSUMERS_CHARGE_RATE_PER_S": "none"}
    charge = loader.charge(off, breaker=BreakerPolicy(failures=2), rate=RatePolicy(per_s=2))
    assert (charge.breaker, charge.rate) == (None, None)


def test_numbers_of_a_guard_that_is_off_are_a_warning(loader: Loader) -> None:
    (warning,) = loader.load({"KEEPFAST_BREAKER_FAILURES": "3"}).warnings
    assert "breaker is not switched on, so failures (environment variable KEEPFAST_BREAKER_FAILURES)" in warning
    assert "set breaker.enabled" in warning
    off = {"KEEPFAST_BREAKER_FAILURES": "3", "KEEPFAST_BREAKER_ENABLED": "false"}
    assert loader.load(off).warnings == ()


def test_all_problems_are_reported_at_once(loader: Loader) -> None:
    environ = {"KEEPFAST_BREAKER_OPEN_S": "90", "KEEPFAST_STORM_GUARD_DEAD_LETTERED": "500", "KEEPFAST_RATE_PER_S": "0"}
    problems = " ".join(loader.problems(environ, breaker=True, storm_guard=True))
    for printed in ("breaker: max_open_s", "storm_guard: dead_lettered", "KEEPFAST_RATE_PER_S"):
        assert printed in problems


@pytest.mark.parametrize("wrong", [3, "yes", RatePolicy()])
def test_a_breaker_is_no_number_and_no_text(loader: Loader, wrong: object) -> None:
    assert "breaker: must be a BreakerPolicy" in loader.problem(breaker=wrong)


def test_with_a_breaker_a_record_that_timed_out_is_retried(loader: Loader) -> None:
    assert loader.charge(timeout_s=5).timeout.on_timeout == "dead-letter"
    assert loader.charge(timeout_s=5, breaker=True).timeout.on_timeout == "retry"
    assert loader.charge(timeout_s=5, breaker=True, on_timeout="dead-letter").timeout.on_timeout == "dead-letter"
    assert loader.charge(timeout_s=5, on_timeout="retry").timeout.on_timeout == "retry"
