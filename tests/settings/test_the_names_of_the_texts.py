"""The variables that the consumer standard and pattern name work as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from keepfast.settings import Settings
from tests.settings.loader import Loader

TEXTS: dict[str, tuple[str, Callable[[Settings], object], object]] = {
    "KAFKA_BROKERS": ("kafka:9092,b:9093", lambda s: s.kafka.brokers, ("kafka:9092", "b:9093")),
    "KAFKA_INPUT_TOPIC": ("x.y.v1", lambda s: s.consumers["charge"].topics, ("x.y.v1",)),
    "KAFKA_CONSUMER_GROUP": ("x-y-group", lambda s: s.consumers["charge"].group, "x-y-group"),
    "RETRY_MAX_RETRIES": ("7", lambda s: s.consumers["charge"].retry.max_retries, 7),
    "MAX_RETRIES": ("8", lambda s: s.consumers["charge"].retry.max_retries, 8),
    "RETRY_INITIAL_DELAY_MS": ("50", lambda s: s.consumers["charge"].retry.initial_delay_ms, 50),
    "INITIAL_RETRY_DELAY_MS": ("60", lambda s: s.consumers["charge"].retry.initial_delay_ms, 60),
    "RETRY_MAX_DELAY_MS": ("5000", lambda s: s.consumers["charge"].retry.max_delay_ms, 5000),
    "MAX_RETRY_DELAY_MS": ("6000", lambda s: s.consumers["charge"].retry.max_delay_ms, 6000),
    "RETRY_BACKOFF_MULTIPLIER": ("1.5", lambda s: s.consumers["charge"].retry.multiplier, 1.5),
    "RETRY_JITTER": ("False", lambda s: s.consumers["charge"].retry.jitter, False),
    "HEALTH_CHECK_PORT": ("9999", lambda s: s.health.port, 9999),
    "HEALTH_CHECK_ENABLED": ("false", lambda s: s.health.enabled, False),
    "APP_ENV": ("prod", lambda s: s.app.env, "prod"),
    "KEEPFAST_ENV": ("dev", lambda s: s.app.env, "dev"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_name_of_the_texts_sets_its_setting(loader: Loader, name: str) -> None:
    text, read, value = TEXTS[name]
    assert read(loader.load({name: text})) == value


@pytest.mark.parametrize("name", TEXTS)
def test_it_works_in_dotenv_too(loader: Loader, name: str) -> None:
    text, read, value = TEXTS[name]
    assert read(loader.load(dotenv=f"export {name}='{text}'\n")) == value


def test_our_own_name_wins_over_theirs_with_a_warning_if_they_differ(loader: Loader) -> None:
    environ = {"KEEPFAST_RETRY_MAX_RETRIES": "1", "RETRY_MAX_RETRIES": "2", "MAX_RETRIES": "1"}
    settings = loader.load(environ)
    assert settings.consumers["charge"].retry.max_retries == 1
    (warning,) = settings.warnings
    assert "KEEPFAST_RETRY_MAX_RETRIES wins over RETRY_MAX_RETRIES," in warning


def test_other_peoples_variables_are_none_of_our_business(loader: Loader) -> None:
    loader.load({"POSTGRES_HOST": "db", "KAFKA_HEAP_OPTS": "-Xmx1g", "PATH": "/bin", "KEEPFAST_CACHE_DIR": "/c"})


def test_a_name_of_theirs_with_a_slip_of_the_pen_is_pointed_out(loader: Loader) -> None:
    settings = loader.load({"RETRY_MAX_RETRYS": "7", "KAFKA_HOME": "opt"})
    (warning,) = settings.warnings
    assert "RETRY_MAX_RETRYS is no setting of keepfast. Did you mean RETRY_MAX_RETRIES?" in warning


@pytest.mark.parametrize("name", ["KAFKA_INPUT_TOPIC", "KAFKA_CONSUMER_GROUP", "KEEPFAST_CONSUMER_GROUP"])
def test_one_topic_or_group_for_several_consumers_is_an_error(loader: Loader, name: str) -> None:
    consumers = {"charge": {"topics": "a.b"}, "refund": {"topics": "a.b"}}
    problem = loader.problem({name: "x"}, consumers=consumers)
    assert problem.startswith(f"environment variable {name}: sets ")
    assert "charge, refund" in problem
    assert "KEEPFAST_CONSUMERS_CHARGE_CONSUMER_" in problem
