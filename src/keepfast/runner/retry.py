"""Retries as the consumer pattern names them: `RetryConfig`, `calculate_backoff`, `is_retryable_error`."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from keepfast.classify.classification import is_retryable_error
from keepfast.core.errors import ConfigError
from keepfast.core.policies import RetryPolicy
from keepfast.settings.sources import from_environment

__all__ = ["RetryConfig", "calculate_backoff", "is_retryable_error", "policy_of"]

_NAMES = {
    # how the pattern calls it: how the policy calls it
    "max_retries": "max_retries",
    "initial_retry_delay_ms": "initial_delay_ms",
    "max_retry_delay_ms": "max_delay_ms",
    "retry_backoff_multiplier": "multiplier",
    "retry_jitter": "jitter",
}


def _from_environment(name: str, kind: Callable[[Any], Any]) -> Any:
    def read() -> Any:
        value = from_environment("retry", name, os.environ)
        return None if value is None else kind(value)

    return field(default_factory=read)


@dataclass
class RetryConfig:
    """How often and after which delays a record is tried again. What is not given comes from the environment
    (RETRY_MAX_RETRIES or MAX_RETRIES, RETRY_INITIAL_DELAY_MS or INITIAL_RETRY_DELAY_MS, …), when it is made.

    `max_retries` counts the retries after the first attempt; None retries forever.
    """

    max_retries: int | None = _from_environment("max_retries", int)
    initial_retry_delay_ms: int = _from_environment("initial_delay_ms", int)
    max_retry_delay_ms: int = _from_environment("max_delay_ms", int)
    retry_backoff_multiplier: float = _from_environment("multiplier", float)
    retry_jitter: bool = _from_environment("jitter", bool)


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
    try:
        return RetryPolicy(**given)
    except ConfigError as error:
        raise ConfigError(*(_in_their_words(problem) for problem in error.problems)) from None


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
