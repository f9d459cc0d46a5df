"""Retries as the consumer pattern names them: `RetryConfig`, `calculate_backoff`, `is_retryable_error`."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keepfast.classify.classification import is_retryable_error
from keepfast.core.errors import ConfigError
from keepfast.core.policies import RetryPolicy
from keepfast.settings import retries_of_app
from keepfast.telemetry.logs import get_logger

__all__ = ["RetryConfig", "calculate_backoff", "is_retryable_error", "policy_of"]

log = get_logger("keepfast.runner")

_NAMES = {
    # how the pattern calls it: how the policy calls it
    "max_retries": "max_retries",
    "initial_retry_delay_ms": "initial_delay_ms",
    "max_retry_delay_ms": "max_delay_ms",
    "retry_backoff_multiplier": "multiplier",
    "retry_jitter": "jitter",
}


def _from_settings(name: str) -> Any:
    return field(default_factory=lambda: getattr(retries_of_app(environ=os.environ, cwd=Path.cwd()), name))


@dataclass
class RetryConfig:
    """How often and after which delays a record is tried again. What is not given is read when it is made, as the
    settings of an app are: from the environment (RETRY_MAX_RETRIES or MAX_RETRIES, RETRY_INITIAL_DELAY_MS or
    INITIAL_RETRY_DELAY_MS, …), `.env` and keepfast.toml.

    `max_retries` counts the retries after the first attempt; None retries forever.
    """

    max_retries: int | None = _from_settings("max_retries")
    initial_retry_delay_ms: float = _from_settings("initial_delay_ms")
    max_retry_delay_ms: float = _from_settings("max_delay_ms")
    retry_backoff_multiplier: float = _from_settings("multiplier")
    retry_jitter: bool = _from_settings("jitter")


def policy_of(config: object) -> RetryPolicy:
    """The policy that such an object describes; any object with these attributes will do, and what it lacks is as the
    standard has it. Raises ConfigError.
    """
    if isinstance(config, RetryPolicy):
        return config
    given = {ours: getattr(config, theirs) for theirs, ours in _NAMES.items() if hasattr(config, theirs)}
    if not given:
        names = ", ".join(_NAMES)
        raise ConfigError(f"retry_config: {type(config).__name__} has none of these attributes: {names}.")
    _cap(given)
    try:
        return RetryPolicy(**given)
    except ConfigError as error:
        raise ConfigError(*(_in_their_words(problem) for problem in error.problems)) from None


def _cap(given: dict[str, Any]) -> None:
    """By the formula no delay is above the longest one: nor is the first one, whichever of them was configured."""
    first, longest = given.get("initial_delay_ms"), given.get("max_delay_ms")
    if isinstance(first, int | float) and isinstance(longest, int | float) and first > longest >= 0:
        log.warning("retry_delay_capped", initial_retry_delay_ms=first, max_retry_delay_ms=longest)
        given["initial_delay_ms"] = longest


def calculate_backoff(retry_count: int, config: object) -> int:
    """Milliseconds to wait before the retry that follows `retry_count` earlier ones: the initial delay times the
    multiplier to that power, capped, and up to 10 % more by chance if there is jitter.
    """
    return int(policy_of(config).delay_ms(retry_count, random.random()))


def _in_their_words(problem: str) -> str:
    for theirs, ours in _NAMES.items():
        if ours != theirs:
            problem = problem.replace(ours, theirs)
    return f"retry_config: {problem.removeprefix('retry: ')}"
