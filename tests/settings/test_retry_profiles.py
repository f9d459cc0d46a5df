from __future__ import annotations

import pytest

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


def test_what_stands_beside_a_profile_or_nearer_wins_over_it(loader: Loader) -> None:
    beside = {"profile": "financial", "max_retries": 1}
    assert loader.charge(retry=beside).retry == RetryPolicy(max_retries=1, initial_delay_ms=5000, max_delay_ms=60_000)
    assert loader.charge({"MAX_RETRIES": "2"}, retry="financial").retry.max_retries == 2


def test_a_profile_named_nearer_wins_over_single_values_farther_away(loader: Loader) -> None:
    charge = loader.charge({"KEEPFAST_RETRY_PROFILE": "financial"}, retry=RetryPolicy(max_retries=1, multiplier=3))
    assert (charge.retry.max_retries, charge.retry.multiplier) == (5, 3)


def test_for_ever_is_every_3_seconds_unless_delays_are_told(loader: Loader) -> None:
    assert loader.charge({"RETRY_MAX_RETRIES": "forever"}).retry == RetryPolicy(max_retries=None)
    told = loader.charge({"RETRY_MAX_RETRIES": "forever", "RETRY_MAX_DELAY_MS": "9000"}).retry
    assert (told.initial_delay_ms, told.max_delay_ms, told.multiplier) == (1000, 9000, 2.0)


def test_a_profile_that_nobody_made_is_said_once_with_what_was_meant(loader: Loader) -> None:
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
