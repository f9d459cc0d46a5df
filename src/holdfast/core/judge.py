"""The one place that decides what becomes of a record after an attempt."""

from __future__ import annotations

from typing import assert_never

from holdfast.core import verdicts
from holdfast.core.classification import Classification, classify
from holdfast.core.errors import DecodeError, Signal
from holdfast.core.policies import RetryPolicy
from holdfast.core.verdicts import Verdict

RETRY_LATER = "retry-later"
"""The rule by which a handler says itself when to come back."""


def judge(
    error: BaseException | None,
    *,
    attempt: int,
    elapsed_s: float,
    policy: RetryPolicy,
    jitter: float,
    found: Classification | None = None,
) -> Verdict:
    """Decide after attempt number `attempt` (1 is the first), `elapsed_s` after the first one began.

    `found` is what the rules say of the error (the built-in ones, if nothing is given); `jitter` is a random number in
    [0, 1). A delay that the downstream asked for is a floor under the policy's; the handler's own is taken as it is.
    """
    if error is None:
        return verdicts.Done()
    found = found or classify(error)
    match found.kind:
        case "halt":
            return verdicts.Halt(_reason(error) or f"the handler raised {type(error).__name__}")
        case "discard":
            return verdicts.Discard(_reason(error) or f"{type(error).__name__} is discarded by the rule {found.rule}")
        case "non-retryable":
            return verdicts.Bury(_reason(error) or f"{type(error).__name__} is final ({found.rule})", found.code)
        case "retryable":
            delay_s = policy.delay_ms(attempt - 1, jitter) / 1000
            asked_s = found.retry_after_s or 0.0
            delay_s = asked_s if found.rule == RETRY_LATER else max(delay_s, asked_s)
            return _retry_or_bury(attempt, elapsed_s, delay_s, policy, found.code)
        case other:
            assert_never(other)


def _reason(error: BaseException) -> str:
    """What the handler said itself."""
    if isinstance(error, DecodeError):
        return "the record cannot be decoded"
    return str(getattr(error, "reason", "")) if isinstance(error, Signal) else ""


def _retry_or_bury(attempt: int, elapsed_s: float, delay_s: float, policy: RetryPolicy, code: str) -> Verdict:
    if policy.max_retries is not None and attempt > policy.max_retries:
        return verdicts.Bury(f"failed {attempt} times", code)
    if policy.max_elapsed_s is not None and elapsed_s + delay_s > policy.max_elapsed_s:
        return verdicts.Bury(f"not done within {policy.max_elapsed_s:g} s", code)
    return verdicts.RetryAfter(delay_s)
