"""`RetryConfig`, `calculate_backoff` and `is_retryable_error`: names and behaviour of the consumer pattern."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import psycopg2
import pytest
import requests

from keepfast.core.errors import ConfigError
from keepfast.core.policies import RetryPolicy
from keepfast.runner import RetryConfig, calculate_backoff, is_retryable_error
from keepfast.runner.retry import policy_of


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_RETRIES", "INITIAL_DELAY_MS", "MAX_DELAY_MS", "BACKOFF_MULTIPLIER", "JITTER"):
        monkeypatch.delenv(f"RETRY_{name}", raising=False)
    for name in ("MAX_RETRIES", "INITIAL_RETRY_DELAY_MS", "MAX_RETRY_DELAY_MS"):
        monkeypatch.delenv(name, raising=False)


def test_the_defaults_are_those_of_the_standard() -> None:
    config = RetryConfig()
    assert (config.max_retries, config.initial_retry_delay_ms, config.max_retry_delay_ms) == (3, 1000, 30_000)
    assert (config.retry_backoff_multiplier, config.retry_jitter) == (2.0, True)
    assert policy_of(config) == RetryPolicy()


def test_the_environment_is_read_when_it_is_made_under_both_kinds_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_RETRIES", "5")
    monkeypatch.setenv("INITIAL_RETRY_DELAY_MS", "10")
    monkeypatch.setenv("RETRY_MAX_DELAY_MS", "20")
    monkeypatch.setenv("RETRY_BACKOFF_MULTIPLIER", "1.5")
    monkeypatch.setenv("RETRY_JITTER", "false")
    assert RetryConfig() == RetryConfig(5, 10, 20, 1.5, False)
    monkeypatch.setenv("RETRY_MAX_RETRIES", "6")
    assert RetryConfig().max_retries == 6
    assert RetryConfig(max_retries=1).max_retries == 1
    monkeypatch.setenv("RETRY_MAX_RETRIES", "many")
    with pytest.raises(ConfigError, match="environment variable RETRY_MAX_RETRIES"):
        RetryConfig()


@dataclass
class Theirs:
    """A user's own class with the names of the pattern."""

    max_retries: int = 2
    initial_retry_delay_ms: int = 100
    max_retry_delay_ms: int = 150
    retry_backoff_multiplier: float = 2.0
    retry_jitter: bool = False


def test_any_object_with_these_attributes_will_do() -> None:
    assert policy_of(Theirs()) == RetryPolicy(
        max_retries=2, initial_delay_ms=100, max_delay_ms=150, multiplier=2.0, jitter=False
    )
    assert policy_of(SimpleNamespace(max_retries=7)) == RetryPolicy(max_retries=7)
    assert policy_of(RetryPolicy(max_retries=1)) == RetryPolicy(max_retries=1)
    with pytest.raises(ConfigError, match="dict has none of these attributes: max_retries"):
        policy_of({"max_retries": 7})
    with pytest.raises(ConfigError, match="retry_config: initial_retry_delay_ms must be"):
        policy_of(SimpleNamespace(initial_retry_delay_ms=-1))


def test_the_back_off_grows_from_the_initial_delay_to_the_cap() -> None:
    config = RetryConfig(retry_jitter=False)
    assert [calculate_backoff(count, config) for count in range(7)] == [1000, 2000, 4000, 8000, 16000, 30000, 30000]
    assert calculate_backoff(1, Theirs()) == 150


def test_jitter_adds_up_to_a_tenth_and_never_takes_away() -> None:
    delays = [calculate_backoff(2, RetryConfig()) for _ in range(300)]
    assert all(4000 <= delay <= 4400 for delay in delays)
    assert len(set(delays)) > 50


def http_error(status: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(f"HTTP {status}", response=response)


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (ConnectionError(), True),
        (TimeoutError(), True),
        (requests.Timeout(), True),
        *((http_error(status), True) for status in (429, 502, 503, 504)),
        *((http_error(status), False) for status in (400, 401, 403, 404)),
        (psycopg2.OperationalError(), True),
        (psycopg2.IntegrityError(), False),
        (ValueError(), False),
        (Exception("unknown"), True),
        ("told in words", True),
        (None, True),
    ],
)
def test_errors_are_classified_as_the_pattern_does(error: object, retryable: bool) -> None:
    assert is_retryable_error(error) is retryable
