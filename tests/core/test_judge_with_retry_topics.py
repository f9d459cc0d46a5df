"""The judge where there are retry topics: in place first, then one attempt after each delay, then the letter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.classify.classification import Classification, classify
from keepfast.core import errors, verdicts
from keepfast.core.judge import judge
from keepfast.core.policies import RetryPolicy
from keepfast.core.verdicts import Verdict

TIERS = (5, 60, 600)


def verdict_on(
    error: BaseException,
    *,
    attempt: int = 1,
    moved: int | None = None,
    policy: RetryPolicy | None = None,
    elapsed_s: float = 0.0,
    tiers_s: tuple[int, ...] = TIERS,
    found: Classification | None = None,
) -> Verdict:
    policy = policy or RetryPolicy(jitter=False)
    return judge(
        error,
        found or classify(error),
        attempt=attempt,
        elapsed_s=elapsed_s,
        policy=policy,
        jitter=0.0,
        tiers_s=tiers_s,
        moved=moved,
    )


def asking(after_s: float) -> Classification:
    return Classification(kind="retryable", code="HTTP_429", rule="http:429", retry_after_s=after_s)


@given(max_retries=st.integers(0, 5), tiers=st.lists(st.integers(1, 1000), max_size=5).map(tuple))
def test_the_whole_way_of_a_record_that_never_succeeds(max_retries: int, tiers: tuple[int, ...]) -> None:
    policy = RetryPolicy(max_retries=max_retries)
    printed: list[str] = []
    attempt, moved = 0, None
    while not printed or printed[-1] != "DeadLetter":
        attempt += 1
        verdict = verdict_on(RuntimeError(), attempt=attempt, moved=moved, policy=policy, tiers_s=tiers)
        printed.append(type(verdict).__name__)
        if isinstance(verdict, verdicts.Move):
            moved = verdict.step
            assert verdict.delay_s == tiers[verdict.step - 1]
    assert printed == ["RetryAfter"] * max_retries + ["Move"] * len(tiers) + ["DeadLetter"]


def test_the_verdict_says_why() -> None:
    assert verdict_on(RuntimeError(), attempt=4) == verdicts.Move(1, 5, "failed 4 times")
    code = "UNHANDLED_EXCEPTION"
    assert verdict_on(RuntimeError(), attempt=7, moved=3) == verdicts.DeadLetter("failed 7 times", code)


def test_time_that_is_up_in_place_goes_on_in_the_retry_topics() -> None:
    policy = RetryPolicy(max_retries=None, max_elapsed_s=10)
    assert isinstance(verdict_on(RuntimeError(), policy=policy), verdicts.RetryAfter)
    late = verdict_on(RuntimeError(), policy=policy, elapsed_s=10.0)
    assert late == verdicts.Move(1, 5, "not done within 10 s")


@pytest.mark.parametrize(
    "error", [errors.Reject("no"), errors.DecodeError("no"), errors.Discard("no"), errors.Halt("no"), SystemExit(1)]
)
@pytest.mark.parametrize("moved", [None, 1, 3])
def test_what_is_final_is_not_moved(error: BaseException, moved: int | None) -> None:
    verdict = verdict_on(error, attempt=9, moved=moved)
    assert verdict == verdict_on(error, attempt=9, tiers_s=())
    assert not isinstance(verdict, verdicts.Move)


def test_a_delay_that_no_lane_should_wait_for_moves_the_record_at_once() -> None:
    assert verdict_on(errors.RetryLater(after_s=300)) == verdicts.Move(3, 600, "asked to wait for 300 s", asked=True)
    assert verdict_on(errors.RetryLater(after_s=300), tiers_s=()) == verdicts.RetryAfter(300)
    assert verdict_on(errors.RetryLater(after_s=30)) == verdicts.RetryAfter(30)
    assert verdict_on(RuntimeError(), found=asking(45.0)) == verdicts.Move(2, 60, "asked to wait for 45 s", asked=True)


def test_a_delay_that_was_asked_for_passes_over_topics_that_would_come_too_soon() -> None:
    assert verdict_on(RuntimeError(), attempt=4, found=asking(20.0)) == verdicts.Move(2, 60, "failed 4 times")
    last = verdict_on(RuntimeError(), attempt=5, moved=1, found=asking(9e9))
    assert last == verdicts.Move(3, 600, "failed 5 times", asked=True)
    assert isinstance(verdict_on(RuntimeError(), attempt=6, moved=3, found=asking(9e9)), verdicts.DeadLetter)


def test_a_record_out_of_a_topic_that_is_left_over_has_one_attempt() -> None:
    assert isinstance(verdict_on(RuntimeError(), attempt=2, moved=0, tiers_s=()), verdicts.DeadLetter)
