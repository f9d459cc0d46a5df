"""Breaks of retries, rates and the breaker."""

from __future__ import annotations

from dataclasses import replace as copy
from typing import Any

from profile_tests.breaking import breaks, change, replace

from keepfast.classify.classification import classify
from keepfast.core import guards, verdicts
from keepfast.core import judge as judging
from keepfast.core.guards import Breaker, BreakerState, Pace
from keepfast.core.policies import RetryPolicy
from keepfast.engine.failures import Failures
from keepfast.engine.forwarding import ForwardedRecord, Forwarder
from keepfast.engine.timeouts import Overdue


@breaks("CLASSIFIED_FIRST")
def every_error_counts_as_unknown() -> None:
    replace(Failures, "_classify", lambda self, error: classify(RuntimeError()))


@breaks("FORMULA")
def delays_grow_by_addition() -> None:
    def base_ms(self: RetryPolicy, retry_count: int) -> float:
        return float(min(self.initial_delay_ms * self.multiplier * retry_count, self.max_delay_ms))

    replace(RetryPolicy, "_base_ms", base_ms)


@breaks("FORMULA")
def jitter_adds_twice_as_much() -> None:
    def delay_ms(self: RetryPolicy, retry_count: int, jitter: float) -> float:
        base = self._base_ms(retry_count)
        return base + jitter * 0.2 * base if self.jitter else base

    replace(RetryPolicy, "delay_ms", delay_ms)


@breaks("FORMULA")
def no_delay_is_too_long() -> None:
    replace(RetryPolicy, "_base_ms", lambda self, count: self.initial_delay_ms * float(self.multiplier) ** count)


@breaks("FOR_EVER")
def for_ever_is_every_second() -> None:
    def derive(self: RetryPolicy) -> None:
        before(self)
        if self.max_retries is None and self.initial_delay_ms == self.max_delay_ms == 3000:
            change(self, initial_delay_ms=1000, max_delay_ms=1000)

    before = replace(RetryPolicy, "_derive", derive)


@breaks("FOR_EVER")
def for_ever_is_three_times() -> None:
    def used_up(attempt: int, elapsed_s: float, delay_s: float, policy: RetryPolicy) -> Any:
        bounded = copy(policy, max_retries=3) if policy.max_retries is None else policy
        return before(attempt, elapsed_s, delay_s, bounded)

    before = replace(judging, "_used_up", used_up)


def _miscount(by: int) -> None:
    def used_up(attempt: int, *rest: Any) -> Any:
        return before(attempt + by, *rest)

    before = replace(judging, "_used_up", used_up)


@breaks("RETRIED", "ROUTED")
def there_is_a_retry_less() -> None:
    _miscount(1)


@breaks("RETRIED")
def there_is_a_retry_more() -> None:
    _miscount(-1)


@breaks("ELAPSED")
def the_next_delay_does_not_count_as_time() -> None:
    def used_up(attempt: int, elapsed_s: float, delay_s: float, policy: RetryPolicy) -> Any:
        return before(attempt, elapsed_s, 0.0, policy)

    before = replace(judging, "_used_up", used_up)


@breaks("ROUTED")
def final_errors_are_retried() -> None:
    def judge(error: BaseException, found: Any, **facts: Any) -> Any:
        return verdicts.RetryAfter(0.01) if found.kind == "non-retryable" else before(error, found, **facts)

    before = replace(judging, "judge", judge)


@breaks("RATE")
def a_retry_may_come_sooner_than_the_rate_allows() -> None:
    def judge(error: BaseException, found: Any, **facts: Any) -> Any:
        return before(error, found, **{**facts, "floor_s": 0.0})

    before = replace(judging, "judge", judge)


@breaks("RATE")
def a_minimum_delay_does_not_hold_for_starts() -> None:
    def init(self: Pace, policy: guards.RatePolicy) -> None:
        before(self, copy(policy, min_delay_ms=0))

    before = replace(Pace, "__init__", init)


@breaks("RATES")
def a_consumer_starts_twice_as_many() -> None:
    def init(self: Pace, policy: guards.RatePolicy) -> None:
        before(self, policy)
        if policy.per_s:
            self._all[0]._gap_s /= 2

    before = replace(Pace, "__init__", init)


@breaks("RATES")
def a_partition_starts_twice_as_many() -> None:
    def started(self: Pace, place: Any, now: float) -> None:
        known = place in self._partitions
        before(self, place, now)
        if not known and place in self._partitions:
            self._partitions[place]._gap_s /= 2

    before = replace(Pace, "started", started)


@breaks("MOVED")
def a_copy_counts_before_it_is_acknowledged() -> None:
    def publish(self: Forwarder, record: ForwardedRecord) -> None:
        if record.kind == "move":
            self._done(record, "topic")
        else:
            before(self, record)

    before = replace(Forwarder, "_publish", publish)


@breaks("TIMED_OUT")
def no_handler_takes_too_long() -> None:
    replace(Overdue, "_overdue", lambda self, run, at, now: None)


@breaks("BREAKER")
def one_more_outage_is_needed() -> None:
    def init(self: Breaker, policy: guards.BreakerPolicy) -> None:
        before(self, copy(policy, failures=policy.failures + 1))

    before = replace(Breaker, "__init__", init)


@breaks("BREAKER")
def a_probe_that_goes_through_opens_it_again() -> None:
    def succeeded(self: Breaker, now: float, count: int = 1) -> None:
        if self.state is BreakerState.HALF_OPEN:
            self._open(now)
        else:
            before(self, now, count)

    before = replace(Breaker, "succeeded", succeeded)
