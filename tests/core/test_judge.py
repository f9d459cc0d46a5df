"""The judge: every kind of failure, and where retries end."""

from __future__ import annotations

import asyncio
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.classify.classification import classify
from keepfast.core import errors, verdicts
from keepfast.core.judge import judge
from keepfast.core.policies import RetryPolicy
from keepfast.core.verdicts import Verdict

EVER = RetryPolicy(max_retries=None)
NEVER = RetryPolicy(max_retries=0)
jitters = st.floats(0, 1, exclude_max=True)


class Code(StrEnum):
    NO_ACCOUNT = "NO_ACCOUNT"


class OurReject(errors.Reject):
    """A user's own."""


def verdict_on(
    error: BaseException,
    *,
    attempt: int = 1,
    elapsed_s: float = 0.0,
    policy: RetryPolicy | None = None,
    jitter: float = 0.0,
) -> Verdict:
    return judge(
        error, classify(error), attempt=attempt, elapsed_s=elapsed_s, policy=policy or RetryPolicy(), jitter=jitter
    )


@pytest.mark.parametrize("policy", [EVER, NEVER, RetryPolicy()], ids=["forever", "never", "default"])
@pytest.mark.parametrize("attempt", [1, 2, 100])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.Reject("no account", code="NO_ACCOUNT"), verdicts.DeadLetter("no account", "NO_ACCOUNT")),
        (errors.Reject("no account"), verdicts.DeadLetter("no account", "REJECTED")),
        (OurReject("no account", code=Code.NO_ACCOUNT), verdicts.DeadLetter("no account", "NO_ACCOUNT")),
        (errors.DecodeError("byte 7"), verdicts.DeadLetter("the record cannot be decoded", "DECODE_FAILED")),
        (errors.DecodeError("", code="TOMBSTONE"), verdicts.DeadLetter("the record cannot be decoded", "TOMBSTONE")),
        (errors.HandlerTimeout(2.5), verdicts.DeadLetter("the handler did not end within 2.5 s", "TIMEOUT")),
        (errors.Discard("a test record"), verdicts.DiscardRecord("a test record")),
        (errors.Halt("the disk is full"), verdicts.HaltConsumer("the disk is full")),
        (SystemExit(0), verdicts.HaltConsumer("the handler raised SystemExit")),
        (KeyboardInterrupt(), verdicts.HaltConsumer("the handler raised KeyboardInterrupt")),
    ],
)
def test_some_words_are_final_whatever_the_policy_says(
    error: BaseException, expected: Verdict, attempt: int, policy: RetryPolicy
) -> None:
    assert verdict_on(error, attempt=attempt, elapsed_s=1e6, policy=policy, jitter=0.5) == expected


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("x"),
        TimeoutError(),
        MemoryError(),
        asyncio.CancelledError(),
        GeneratorExit(),
        ExceptionGroup("two", [RuntimeError()]),
        errors.SinkError("x", fault=errors.Fault.RETRY),
    ],
    ids=lambda error: type(error).__name__,
)
def test_anything_else_is_tried_again(error: BaseException) -> None:
    assert verdict_on(error) == verdicts.RetryAfter(1.0)


@given(max_retries=st.integers(0, 20), attempt=st.integers(1, 30), jitter=jitters, later=st.booleans())
def test_a_record_is_dead_lettered_when_its_retries_are_used_up_and_not_before(
    max_retries: int, attempt: int, jitter: float, later: bool
) -> None:
    error = errors.RetryLater(after_s=1) if later else RuntimeError()
    verdict = verdict_on(error, attempt=attempt, policy=RetryPolicy(max_retries=max_retries), jitter=jitter)
    if attempt <= max_retries:
        assert isinstance(verdict, verdicts.RetryAfter)
    else:
        code = "RETRY_LATER" if later else "UNHANDLED_EXCEPTION"
        assert verdict == verdicts.DeadLetter(f"failed {attempt} times", code)


def test_without_retries_the_first_failure_is_the_last() -> None:
    assert verdict_on(RuntimeError(), policy=NEVER) == verdicts.DeadLetter("failed 1 times", "UNHANDLED_EXCEPTION")


@given(attempt=st.integers(1, 10**9), elapsed_s=st.floats(0, 1e12), jitter=jitters)
def test_for_ever_means_for_ever_every_three_seconds(attempt: int, elapsed_s: float, jitter: float) -> None:
    verdict = verdict_on(RuntimeError(), attempt=attempt, elapsed_s=elapsed_s, policy=EVER, jitter=jitter)
    assert verdict == verdicts.RetryAfter(3.0)


@given(
    attempt=st.integers(1, 60),
    jitter=jitters,
    initial_ms=st.integers(0, 5_000),
    max_ms=st.integers(5_000, 100_000),
    multiplier=st.sampled_from([1.0, 1.5, 2.0, 10.0]),
    jittered=st.booleans(),
)
def test_the_delay_grows_to_its_cap_and_jitter_comes_on_top(
    *, attempt: int, jitter: float, initial_ms: int, max_ms: int, multiplier: float, jittered: bool
) -> None:
    policy = RetryPolicy(
        max_retries=None, initial_delay_ms=initial_ms, max_delay_ms=max_ms, multiplier=multiplier, jitter=jittered
    )
    expected_ms = min(initial_ms * multiplier ** (attempt - 1), max_ms)
    if jittered:
        expected_ms += 0.1 * jitter * expected_ms
    verdict = verdict_on(RuntimeError(), attempt=attempt, policy=policy, jitter=jitter)
    assert isinstance(verdict, verdicts.RetryAfter)
    assert verdict.delay_s == pytest.approx(expected_ms / 1000)


@pytest.mark.parametrize(("attempt", "delay_s"), [(1, 1.0), (2, 2.0), (3, 4.0)])
def test_the_default_waits_one_two_and_four_seconds(attempt: int, delay_s: float) -> None:
    assert verdict_on(RuntimeError(), attempt=attempt) == verdicts.RetryAfter(delay_s)


@pytest.mark.parametrize("after_s", [0, 0.25, 86_400])
def test_a_handler_may_name_its_own_delay(after_s: float) -> None:
    assert verdict_on(errors.RetryLater(after_s=after_s), jitter=0.9) == verdicts.RetryAfter(after_s)


@pytest.mark.parametrize("after_s", [-1, float("nan"), float("inf")])
def test_a_delay_that_is_no_length_of_time_is_refused_where_it_is_named(after_s: float) -> None:
    with pytest.raises(ValueError, match="after_s"):
        errors.RetryLater(after_s=after_s)


@pytest.mark.parametrize(
    ("error", "elapsed_s", "again"),
    [
        (RuntimeError(), 0.0, True),
        (RuntimeError(), 9.0, True),
        (RuntimeError(), 9.001, False),
        (RuntimeError(), 100.0, False),
        (errors.RetryLater(after_s=4), 6.0, True),
        (errors.RetryLater(after_s=4), 6.001, False),
    ],
)
def test_no_retry_begins_after_the_time_a_record_may_take(error: Exception, elapsed_s: float, again: bool) -> None:
    policy = RetryPolicy(max_retries=None, max_elapsed_s=10, initial_delay_ms=1000, jitter=False)
    verdict = verdict_on(error, elapsed_s=elapsed_s, policy=policy)
    if again:
        assert isinstance(verdict, verdicts.RetryAfter)
    else:
        code = "RETRY_LATER" if isinstance(error, errors.RetryLater) else "UNHANDLED_EXCEPTION"
        assert verdict == verdicts.DeadLetter("not done within 10 s", code)


def test_whichever_limit_comes_first_ends_the_retries() -> None:
    policy = RetryPolicy(max_retries=1, max_elapsed_s=10)
    assert isinstance(verdict_on(RuntimeError(), attempt=1, policy=policy), verdicts.RetryAfter)
    assert isinstance(verdict_on(RuntimeError(), attempt=1, elapsed_s=10, policy=policy), verdicts.DeadLetter)
    assert isinstance(verdict_on(RuntimeError(), attempt=2, policy=policy), verdicts.DeadLetter)


def test_a_reason_that_is_no_text_becomes_one() -> None:
    reason: object = RuntimeError("no account")
    assert verdict_on(errors.Reject(reason, code=404)) == verdicts.DeadLetter("no account", "404")  # type: ignore[arg-type]
    assert verdict_on(errors.Discard(reason)) == verdicts.DiscardRecord("no account")  # type: ignore[arg-type]
    assert verdict_on(errors.Halt(reason)) == verdicts.HaltConsumer("no account")  # type: ignore[arg-type]
