"""How long a handler may take: the policy, and the watch that is kept on a record."""

from __future__ import annotations

from typing import Any

import pytest

from keepfast.classify.classification import Rule, RuleBook, classify
from keepfast.core.errors import ConfigError, HandlerTimeout
from keepfast.core.timeouts import CHECK_INTERVAL_S, STUCK_CHECK_S, OverdueWatch, TimeoutPolicy


def test_without_a_time_limit_no_duration_is_reported() -> None:
    assert TimeoutPolicy().timeout_s is None


@pytest.mark.parametrize(
    ("reported", "printed"),
    [
        ({"timeout_s": 0}, "timeout: timeout_s must be a number above 0"),
        ({"timeout_s": float("nan")}, "timeout: timeout_s must be"),
        ({"on_timeout": "wait"}, "timeout: on_timeout must be one of dead-letter, retry, hold; got 'wait'"),
        ({"stuck_after_s": 0}, "timeout: stuck_after_s must be a number above 0"),
        ({"max_abandoned": 0}, "timeout: max_abandoned must be a whole number from 1"),
    ],
)
def test_a_policy_says_what_is_wrong_with_it(reported: dict[str, Any], printed: str) -> None:
    with pytest.raises(ConfigError, match=printed):
        TimeoutPolicy(**reported)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        TimeoutPolicy(timeout_s=-1, max_abandoned=0)
    assert len(caught.value.problems) == 2


def test_a_short_time_limit_is_looked_at_more_often() -> None:
    assert TimeoutPolicy(timeout_s=0.1).check_interval_s == pytest.approx(0.01)
    assert TimeoutPolicy(timeout_s=60).check_interval_s == CHECK_INTERVAL_S


def test_where_nothing_times_out_it_is_looked_at_once_a_second() -> None:
    assert TimeoutPolicy().check_interval_s == STUCK_CHECK_S
    assert TimeoutPolicy(stuck_after_s=2).check_interval_s == pytest.approx(0.2)
    assert TimeoutPolicy(stuck_after_s=None).check_interval_s == STUCK_CHECK_S


def test_a_new_epoch_waits_for_a_run_of_before_until_it_counts_as_stuck_unless_the_lane_is_to_be_held() -> None:
    assert TimeoutPolicy().stale_s == 30.0
    assert TimeoutPolicy(timeout_s=60).stale_s == 60.0
    assert TimeoutPolicy(timeout_s=60, on_timeout="hold").stale_s is None
    assert TimeoutPolicy(stuck_after_s=None).stale_s is None


@pytest.mark.parametrize(
    ("timeout_s", "stuck_after_s", "stuck_s", "blocked_s"),
    [(None, 30.0, 30.0, 30.0), (10.0, 30.0, 30.0, 10.0), (60.0, 30.0, 60.0, 60.0), (10.0, None, None, 10.0)],
)
def test_a_handler_is_stuck_after_the_larger_of_both_and_an_event_loop_is_blocked_after_the_time_limit(
    timeout_s: float | None, stuck_after_s: float | None, stuck_s: float | None, blocked_s: float
) -> None:
    policy = TimeoutPolicy(timeout_s=timeout_s, stuck_after_s=stuck_after_s)
    assert (policy.stuck_s, policy.blocked_s) == (stuck_s, blocked_s)


def test_a_watch_starts_again_with_every_record_and_with_every_run() -> None:
    watch = OverdueWatch()
    assert watch.look(1.0, 0, 0.05) == 0.0  # when it began is not known, so what has passed does not count
    assert watch.look(1.0, 0, 0.05) == pytest.approx(0.05)
    assert watch.look(1.0, 0, 0.05) == pytest.approx(0.1)
    assert watch.look(1.0, 1, 0.05) == 0.0
    assert watch.look(1.0, 1, 0.05) == pytest.approx(0.05)
    assert watch.look(2.0, 1, 0.05) == 0.0, "the same place in another run"


def test_a_timeout_of_ours_is_final_whatever_a_rule_says_about_its_bases() -> None:
    everything = RuleBook([Rule("builtins.Exception", "retryable", name="everything")])
    assert classify(OSError(), everything).rule == "everything"
    found = classify(HandlerTimeout(1.0), everything)
    assert (found.kind, found.code, found.rule) == ("non-retryable", "TIMEOUT", "handler-timeout")


def test_a_timeout_of_ours_is_an_outage_and_retried_only_where_that_is_configured() -> None:
    assert [
        (one.kind, one.outage) for one in (classify(HandlerTimeout(1.0, retry=retry)) for retry in (False, True))
    ] == [
        ("non-retryable", True),
        ("retryable", True),
    ]


def test_a_timeout_of_the_handler_is_not_ours() -> None:
    found = classify(TimeoutError("a socket"))
    assert (found.kind, found.rule) == ("retryable", "timeout")
