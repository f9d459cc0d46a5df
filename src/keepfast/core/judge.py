"""The one place that decides what becomes of a record whose attempt failed."""

from __future__ import annotations

from typing import assert_never

from keepfast.core import verdicts
from keepfast.core.errors import DecodeError, HandlerTimeout, Signal
from keepfast.core.policies import RetryPolicy
from keepfast.core.retry_topics import next_step
from keepfast.core.verdicts import Classification, Verdict

RETRY_LATER = "retry-later"
"""The rule by which a handler says itself when to come back."""


def judge(
    error: BaseException,
    found: Classification,
    *,
    attempt: int,
    elapsed_s: float,
    policy: RetryPolicy,
    jitter: float,
    tiers_s: tuple[int, ...] = (),
    moved: int | None = None,
    floor_s: float = 0.0,
) -> Verdict:
    """Decide after attempt number `attempt` (1 is the first), `elapsed_s` after the first one began.

    `found` is what the rules say of the error; `jitter` is a random number in [0, 1). A delay that the downstream asked
    for, and `floor_s` (a rate limit's), are floors under the policy's; the handler's own is taken as it is.

    `tiers_s` are the delays of the consumer's retry topics, `moved` how many of them the record has behind it; None: it
    is still where it came from. There it is tried again in place first, unless a longer delay was asked for than
    any lane should wait; in a retry topic there is one attempt each.
    """
    match found.kind:
        case "halt":
            return verdicts.HaltConsumer(_reason(error) or f"the handler raised {type(error).__name__}")
        case "discard":
            return verdicts.DiscardRecord(
                _reason(error) or f"{type(error).__name__} is discarded by the rule {found.rule}"
            )
        case "non-retryable":
            return verdicts.DeadLetter(_reason(error) or f"{type(error).__name__} is final ({found.rule})", found.code)
        case "retryable":
            delay_s = policy.delay_ms(attempt - 1, jitter) / 1000
            asked_s = found.retry_after_s or 0.0
            delay_s = asked_s if found.rule == RETRY_LATER else max(delay_s, asked_s, floor_s)
            used_up = _used_up(attempt, elapsed_s, delay_s, policy) if moved is None else f"failed {attempt} times"
            too_long = bool(tiers_s) and asked_s > policy.max_delay_ms / 1000
            if not used_up and not too_long:
                return verdicts.RetryAfter(delay_s)
            step = next_step(tiers_s, moved or 0, asked_s)
            if step is None:
                return verdicts.DeadLetter(used_up, found.code)
            return verdicts.Move(step, tiers_s[step - 1], used_up or f"asked to wait for {asked_s:g} s", too_long)
        case other:
            assert_never(other)


def _reason(error: BaseException) -> str:
    """The reason that the handler gave, or ours."""
    if isinstance(error, DecodeError):
        return "the record cannot be decoded"
    if isinstance(error, HandlerTimeout):
        return str(error)
    try:
        return str(getattr(error, "reason", "")) if isinstance(error, Signal) else ""
    except BaseException:  # noqa: BLE001 - whatever a foreign property or __str__ raises
        return ""


def _used_up(attempt: int, elapsed_s: float, delay_s: float, policy: RetryPolicy) -> str:
    """Why there is no other retry in place; empty if there is."""
    if policy.max_retries is not None and attempt > policy.max_retries:
        return f"failed {attempt} times"
    if policy.max_elapsed_s is not None and elapsed_s + delay_s > policy.max_elapsed_s:
        return f"not done within {policy.max_elapsed_s:g} s"
    return ""
