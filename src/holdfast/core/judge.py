"""The one place that decides what becomes of a record after an attempt."""

from __future__ import annotations

from holdfast.core import verdicts
from holdfast.core.errors import DecodeError, Discard, Halt, Reject, RetryLater
from holdfast.core.policies import RetryPolicy
from holdfast.core.verdicts import Verdict


def judge(
    error: BaseException | None, *, attempt: int, elapsed_s: float, policy: RetryPolicy, jitter: float
) -> Verdict:
    """Decide after attempt number `attempt` (1 is the first), `elapsed_s` after the first one began.

    `jitter` is a random number in [0, 1). A handler's own word (RetryLater, Reject, Discard, Halt) goes before the
    policy; SystemExit and KeyboardInterrupt out of a handler mean Halt: a worker must not die silently.
    """
    match error:
        case None:
            return verdicts.Done()
        case Reject(reason=reason, code=code):
            return verdicts.Bury(str(reason), str(code))  # people put errors and enums there
        case DecodeError(code=code):
            return verdicts.Bury("the record cannot be decoded", str(code))
        case Discard(reason=reason):
            return verdicts.Discard(str(reason))
        case Halt(reason=reason):
            return verdicts.Halt(str(reason))
        case SystemExit() | KeyboardInterrupt():
            return verdicts.Halt(f"the handler raised {type(error).__name__}")
        case RetryLater(after_s=after_s):
            return _retry_or_bury(attempt, elapsed_s, after_s, policy)
        case _:
            delay_s = policy.delay_ms(attempt - 1, jitter) / 1000
            return _retry_or_bury(attempt, elapsed_s, delay_s, policy)


def _retry_or_bury(attempt: int, elapsed_s: float, delay_s: float, policy: RetryPolicy) -> Verdict:
    if policy.max_retries is not None and attempt > policy.max_retries:
        return verdicts.Bury(f"failed {attempt} times", "RETRIES_EXHAUSTED")
    if policy.max_elapsed_s is not None and elapsed_s + delay_s > policy.max_elapsed_s:
        return verdicts.Bury(f"not done within {policy.max_elapsed_s:g} s", "RETRIES_EXHAUSTED")
    return verdicts.RetryAfter(delay_s)
