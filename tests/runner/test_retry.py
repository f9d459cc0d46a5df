"""`RetryConfig`, `calculate_backoff` and `is_retryable_error`: names and behaviour of the consumer pattern."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import psycopg2
import pytest
import requests
from psycopg2._psycopg import sqlstate_errors

from keepfast.core.errors import ConfigError
from keepfast.core.policies import RetryPolicy
from keepfast.runner import RetryConfig, calculate_backoff, is_retryable_error
from keepfast.runner.retry import policy_of
from tests.support.log_capture import LogCapture


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
    config = RetryConfig()
    delays = [calculate_backoff(2, config) for _ in range(300)]
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


def test_every_operational_error_and_every_integrity_error_but_two_that_the_standard_calls_final() -> None:
    found = {}
    for state, kind in sqlstate_errors.items():
        error = type(kind.__name__, (kind,), {"pgcode": state, "__module__": kind.__module__})()
        if isinstance(error, psycopg2.OperationalError | psycopg2.IntegrityError):
            found[state] = is_retryable_error(error) is isinstance(error, psycopg2.OperationalError)
    assert len(found) > 60
    assert {state for state, same in found.items() if not same} == {"28000", "40002"}, "docs/runner.md names them"


@pytest.mark.parametrize("error", [KeyError("x"), TypeError(), ZeroDivisionError(), http_error(409), http_error(422)])
def test_what_the_standard_calls_permanent_is_not_retried_where_the_pattern_knows_nothing_of_it(error: object) -> None:
    assert not is_retryable_error(error), "docs/runner.md says so"


def test_what_is_not_given_is_read_as_the_settings_of_an_app_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("MAX_RETRIES=7\nKEEPFAST_CONSUMERS_OTHER_RETRY_MAX_RETRIES=9\n")
    (tmp_path / "keepfast.toml").write_text("[retry]\nmax_retries = 8\njitter = false\n")
    assert RetryConfig() == RetryConfig(7, 1000, 30_000, 2.0, False)
    (tmp_path / "keepfast.toml").write_text("[retry]\nprofile = 'financial'\n")
    assert RetryConfig() == RetryConfig(5, 5000, 60_000, 2.0, True)
    (tmp_path / "keepfast.toml").write_text("[retry]\nmax_delay_ms = 500\n")
    assert RetryConfig().initial_retry_delay_ms == 500
    (tmp_path / "keepfast.toml").write_text("[retry]\nmax_retries = 'many'\n")
    with pytest.raises(ConfigError, match=r"keepfast.toml.*max_retries"):
        RetryConfig()


def test_an_initial_delay_above_the_longest_is_capped_by_the_formula() -> None:
    theirs = Theirs(initial_retry_delay_ms=1000, max_retry_delay_ms=500)
    log = LogCapture()
    log.attach()
    assert policy_of(theirs).delay_ms(0, 0.0) == 500
    log.detach()
    assert [entry.level for entry in log.of("retry_delay_capped")] == ["warning"]
