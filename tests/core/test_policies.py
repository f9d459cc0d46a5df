from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.errors import ConfigError
from keepfast.core.policies import BufferPolicy, CommitPolicy, DeadLetterPolicy, RetryPolicy, TimingPolicy

delays = st.floats(min_value=0, max_value=60_000, allow_nan=False)
jitters = st.floats(min_value=0, max_value=1, exclude_max=True, allow_nan=False)


def problems_of(make: Any, **options: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        make(**options)
    return caught.value.problems


@given(
    initial=delays,
    extra=delays,
    multiplier=st.floats(min_value=1, max_value=10),
    count=st.integers(min_value=0, max_value=200),
    jitter=jitters,
)
def test_the_delay_is_the_formula_of_the_standard_with_jitter_after_the_cap(
    initial: float, extra: float, multiplier: float, count: int, jitter: float
) -> None:
    policy = RetryPolicy(initial_delay_ms=initial, max_delay_ms=initial + extra, multiplier=multiplier)
    base = min(initial * multiplier**count, initial + extra)
    assert policy.delay_ms(count, jitter) == base + jitter * 0.1 * base


@given(count=st.integers(min_value=0), jitter=jitters, multiplier=st.sampled_from([1, 1.0, 1.0001, 2, 2.0, 1000]))
def test_no_retry_count_however_large_leaves_the_bounds(count: int, jitter: float, multiplier: float) -> None:
    policy = RetryPolicy(max_retries=None, initial_delay_ms=1000, max_delay_ms=30_000, multiplier=multiplier)
    assert 1000 <= policy.delay_ms(count, jitter) <= 33_000  # rounding may reach the end of the jitter


@pytest.mark.parametrize("count", [10**6, 10**18, pytest.param(10**400, id="a googol to the fourth")])
def test_a_count_beyond_every_float_gives_the_longest_delay(count: int) -> None:
    assert RetryPolicy(jitter=False).delay_ms(count, 0.5) == 30_000
    assert RetryPolicy(multiplier=1, jitter=False).delay_ms(count, 0.5) == 1000
    assert RetryPolicy(initial_delay_ms=0).delay_ms(count, 0.5) == 0


def test_the_default_delays_are_those_of_the_standards_example() -> None:
    assert [RetryPolicy().delay_ms(count, 0.0) for count in range(6)] == [1000, 2000, 4000, 8000, 16_000, 30_000]


def test_a_longest_delay_below_the_usual_first_one_caps_it_and_one_that_was_chosen_is_a_problem() -> None:
    assert RetryPolicy(max_delay_ms=500) == RetryPolicy(initial_delay_ms=500, max_delay_ms=500)
    assert "max_delay_ms (500)" in problems_of(RetryPolicy, initial_delay_ms=1000, max_delay_ms=500)[0]


def test_retrying_for_ever_waits_exactly_3_seconds_by_default() -> None:
    for_ever = RetryPolicy(max_retries=None)
    assert {for_ever.delay_ms(count, 0.9) for count in (0, 1, 10, 10**9)} == {3000}
    reported = RetryPolicy(max_retries=None, initial_delay_ms=500)
    assert [reported.delay_ms(count, 0.0) for count in (0, 1, 10)] == [500, 1000, 30_000]
    assert RetryPolicy(max_retries=None, jitter=True).delay_ms(0, 0.5) == 3150


@pytest.mark.parametrize(("count", "jitter"), [(-1, 0.0), (0, 1.0), (0, -0.1), (0, float("nan"))])
def test_a_delay_is_not_computed_from_nonsense(count: int, jitter: float) -> None:
    with pytest.raises(ValueError, match="retry_count must be 0 or more"):
        RetryPolicy().delay_ms(count, jitter)


def test_a_retry_policy_says_everything_that_is_wrong_with_it_at_once() -> None:
    found = problems_of(
        RetryPolicy,
        max_retries=-1,
        initial_delay_ms="1000",
        max_delay_ms=float("inf"),
        multiplier=0.5,
        jitter=1,
        max_elapsed_s=-3,
    )
    assert len(found) == 6
    expected = 'a whole number from 0 to 1,000,000, or "forever" (None in code)'
    assert found[0] == f"retry: max_retries must be {expected}; got -1."
    assert "initial_delay_ms must be a number from 0 to" in found[1]
    assert found[4] == "retry: jitter must be true or false; got 1."


@pytest.mark.parametrize("wrong", [True, 3.0, "3", pytest.param(-(10**5000), id="a very long one")])
def test_max_retries_must_be_a_whole_number(wrong: object) -> None:
    (problem,) = problems_of(RetryPolicy, max_retries=wrong)
    assert "max_retries must be a whole number" in problem


def test_a_first_delay_above_the_cap_is_refused() -> None:
    (problem,) = problems_of(RetryPolicy, initial_delay_ms=60_000)
    assert "raise max_delay_ms" in problem


def test_the_longest_wait_is_the_nearer_of_both_limits() -> None:
    assert RetryPolicy().longest_wait_ms == 90_000
    assert RetryPolicy(max_elapsed_s=10).longest_wait_ms == 10_000
    assert RetryPolicy(max_retries=1, max_elapsed_s=100).longest_wait_ms == 30_000
    assert RetryPolicy(max_retries=None).longest_wait_ms is None


def test_policies_are_frozen() -> None:
    for policy in (RetryPolicy(), CommitPolicy(), BufferPolicy(), DeadLetterPolicy(), TimingPolicy()):
        name = fields(policy)[0].name
        with pytest.raises(FrozenInstanceError):
            setattr(policy, name, 1)


def test_commit_buffer_and_dead_letter_policies_check_themselves() -> None:
    assert len(problems_of(CommitPolicy, mode="often", every_s=0, every_records=0)) == 3
    assert len(problems_of(BufferPolicy, records=0, bytes="16 MB", client_queue_bytes=1)) == 3
    assert len(problems_of(DeadLetterPolicy, topic=" ", create_topic="yes", format="xml")) == 3


def test_a_buffer_goes_on_at_half() -> None:
    policy = BufferPolicy(records=1, bytes=10)
    assert (policy.low_records, policy.low_bytes) == (0, 5)


def test_timings_below_the_floors_of_the_standard_are_left_to_the_settings() -> None:
    short = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 2000, "max_poll_interval_ms": 10_000}
    assert TimingPolicy(**short, revoke_timeout_s=2).session_timeout_ms == 6000


def test_timings_must_fit_together_even_in_tests() -> None:
    found = problems_of(
        TimingPolicy,
        session_timeout_ms=6000,
        heartbeat_interval_ms=2001,
        max_poll_interval_ms=5000,
        revoke_timeout_s=2.5,
    )
    assert [problem.split()[1] for problem in found] == [
        "heartbeat_interval_ms",
        "max_poll_interval_ms",
        "revoke_timeout_s",
    ]


def test_a_heartbeat_of_a_third_of_the_session_is_fine() -> None:
    assert TimingPolicy(session_timeout_ms=30_000, heartbeat_interval_ms=10_000).heartbeat_interval_ms == 10_000


def test_under_the_new_group_protocol_only_polling_is_timed() -> None:
    assert TimingPolicy(session_timeout_ms=None, heartbeat_interval_ms=None).max_poll_interval_ms == 600_000
