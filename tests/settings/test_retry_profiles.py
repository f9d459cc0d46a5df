from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from keepfast.core.errors import ConfigError
from keepfast.core.policies import RetryPolicy
from tests.settings.loader import Loader


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("default", RetryPolicy()),
        ("financial", RetryPolicy(max_retries=5, initial_delay_ms=5000, max_delay_ms=60_000)),
        ("notification", RetryPolicy(max_retries=3, initial_delay_ms=1000, max_delay_ms=10_000)),
        ("none", RetryPolicy(max_retries=0)),
    ],
)
def test_the_profiles_that_are_built_in(loader: Loader, name: str, policy: RetryPolicy) -> None:
    assert loader.charge(retry=name).retry == policy
    assert loader.charge({"KEEPFAST_CONSUMERS_CHARGE_RETRY_PROFILE": name.upper()}).retry == policy
    assert loader.charge(toml=f"[retry]\nprofile = '{name}'").retry == policy


def test_a_profile_can_be_changed_and_a_new_one_made(loader: Loader) -> None:
    toml = """
    [retry.profiles.financial]
    max_retries = 9
    [retry.profiles.patient]
    max_retries = "forever"
    """
    financial = loader.charge(toml=toml, retry="financial").retry
    assert (financial.max_retries, financial.initial_delay_ms) == (9, 5000)
    assert loader.charge(retry="patient").retry == RetryPolicy(max_retries=None)
    environ = {"KEEPFAST_RETRY_PROFILES_FINANCIAL_MAX_RETRIES": "4"}
    assert loader.charge(environ, retry="financial").retry.max_retries == 4
    code = {"retry": {"profiles": {"quick": RetryPolicy(initial_delay_ms=1)}}}
    assert loader.charge(settings=code, retry="quick").retry.initial_delay_ms == 1


def test_what_is_set_beside_the_name_of_a_profile_changes_it(loader: Loader) -> None:
    beside = {"profile": "financial", "max_retries": 1}
    changed = RetryPolicy(max_retries=1, initial_delay_ms=5000, max_delay_ms=60_000)
    assert loader.charge(retry=beside).retry == changed
    assert loader.charge(settings={"retry": beside}).retry == changed
    assert loader.charge({"KEEPFAST_RETRY_PROFILE": "financial", "MAX_RETRIES": "1"}).retry == changed


def test_a_profile_wins_over_what_is_set_for_all_but_not_over_what_is_set_for_its_consumer(loader: Loader) -> None:
    financial = RetryPolicy(max_retries=5, initial_delay_ms=5000, max_delay_ms=60_000)
    for_all = {"RETRY_MAX_RETRIES": "2", "RETRY_JITTER": "false"}
    assert loader.charge(for_all, retry="financial").retry == replace(financial, jitter=False)
    assert loader.charge(for_all, settings={"retry": "financial"}).retry == replace(financial, jitter=False)
    for_one = {"KEEPFAST_CONSUMERS_CHARGE_RETRY_MAX_RETRIES": "7"}
    assert loader.charge(for_one, retry="financial").retry == replace(financial, max_retries=7)
    assert loader.charge(for_all).retry == RetryPolicy(max_retries=2, jitter=False)


def test_a_profile_of_the_users_own_wins_by_source_and_over_what_is_set_for_all(loader: Loader) -> None:
    environ = {"RETRY_MAX_RETRIES": "2", "KEEPFAST_RETRY_PROFILES_SLOW_MAX_DELAY_MS": "9000"}
    toml = "[retry.profiles.slow]\nmax_retries = 8\nmax_delay_ms = 8000"
    slow = loader.charge(environ, toml=toml, retry="slow").retry
    assert (slow.max_retries, slow.max_delay_ms) == (8, 9000)


def test_the_profile_default_fills_in_what_nothing_sets_unless_it_is_named(loader: Loader) -> None:
    toml = "[retry.profiles.default]\nmax_retries = 8\nmultiplier = 3"
    both = loader.charge({"RETRY_MAX_RETRIES": "2"}, toml=toml).retry
    assert (both.max_retries, both.multiplier) == (2, 3)
    assert loader.charge({"RETRY_MAX_RETRIES": "2"}, toml=toml, retry="default").retry.max_retries == 8


def test_a_profile_named_for_a_consumer_in_a_nearer_source_replaces_the_policy_of_the_code(loader: Loader) -> None:
    policy = RetryPolicy(max_retries=1, multiplier=3)
    charge = loader.charge({"KEEPFAST_CONSUMERS_CHARGE_RETRY_PROFILE": "financial"}, retry=policy)
    assert (charge.retry.max_retries, charge.retry.multiplier) == (5, 3)
    assert loader.charge({"KEEPFAST_RETRY_PROFILE": "financial"}, retry=policy).retry == policy


def test_for_ever_is_every_3_seconds_unless_delays_are_set(loader: Loader) -> None:
    assert loader.charge({"RETRY_MAX_RETRIES": "forever"}).retry == RetryPolicy(max_retries=None)
    reported = loader.charge({"RETRY_MAX_RETRIES": "forever", "RETRY_MAX_DELAY_MS": "9000"}).retry
    assert (reported.initial_delay_ms, reported.max_delay_ms, reported.multiplier) == (1000, 9000, 2.0)


def test_an_unknown_profile_is_reported_once_with_the_nearest_name(loader: Loader) -> None:
    consumers = {"charge": {"topics": "a.b"}, "refund": {"topics": "a.b"}}
    problem = loader.problem({"KEEPFAST_RETRY_PROFILE": "finacial"}, consumers=consumers)
    assert problem == (
        "environment variable KEEPFAST_RETRY_PROFILE: there is no retry profile 'finacial'. Did you mean financial?"
    )


@pytest.mark.parametrize("inner", ['"financial"', '{profile = "financial"}', "3"])
def test_a_profile_must_be_a_table_of_retry_settings(loader: Loader, inner: str) -> None:
    assert "keepfast.toml [retry.profiles] x" in loader.problem(toml=f"[retry.profiles]\nx = {inner}")


def test_an_unknown_setting_of_a_profile_is_a_problem(loader: Loader) -> None:
    problem = loader.problem({"KEEPFAST_RETRY_PROFILES_FINANCIAL_MAX_RETRYS": "1"})
    assert "Did you mean KEEPFAST_RETRY_PROFILES_FINANCIAL_MAX_RETRIES?" in problem


@pytest.mark.parametrize("given", [{}, {"retry": "financial"}], ids=["default", "financial"])
def test_a_longest_delay_alone_lowers_the_first_one_with_a_warning(loader: Loader, given: dict[str, Any]) -> None:
    settings = loader.load({"KEEPFAST_CONSUMERS_CHARGE_RETRY_MAX_DELAY_MS": "500"}, **given)
    (warning,) = settings.warnings
    assert "is lowered to it" in warning
    retry = settings.consumers["charge"].retry
    assert (retry.initial_delay_ms, retry.max_delay_ms) == (500, 500)
    assert loader.load({"RETRY_MAX_DELAY_MS": "500"}).consumers["charge"].retry.initial_delay_ms == 500


def test_a_first_delay_that_was_chosen_above_the_longest_one_is_a_problem(loader: Loader) -> None:
    with pytest.raises(ConfigError, match="RETRY_INITIAL_DELAY_MS"):
        loader.load({"RETRY_MAX_DELAY_MS": "500", "RETRY_INITIAL_DELAY_MS": "900"})
