"""Breaks of settings: their names, defaults and bounds, and where they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as copy
from types import SimpleNamespace
from typing import Any

from profile_tests.breaking import add, breaks, change, replace

from keepfast.core import fields
from keepfast.core.errors import ConfigError
from keepfast.core.fields import DERIVED
from keepfast.core.policies import RetryPolicy, TimingPolicy
from keepfast.settings import catalogue, consumers, loading
from keepfast.settings.model import ConsumerSettings, HealthSettings, KafkaSettings, ShutdownSettings
from keepfast.settings.sources import SettingSource


def redeclare(policy: type, name: str, **changes: Any) -> None:
    """Something else is declared about a field."""
    known = fields.fields_of(policy)
    assert name in [one.name for one in known]
    fields._RESOLVED[policy] = tuple(copy(one, **changes) if one.name == name else one for one in known)


def default(policy: Any, name: str, value: object) -> None:
    """A field has another default."""
    assert policy.__init__.__kwdefaults__[name] != value
    policy.__init__.__kwdefaults__[name] = value
    redeclare(policy, name, default=value)


def _named(evidence: str, name: str, make: Callable[[], object]) -> None:
    add(evidence, name.lower(), make)


# -- variables


def _misspelled(policy: type, field: str, variable: str) -> Callable[[], None]:
    def make() -> None:
        [known] = [one for one in fields.fields_of(policy) if one.name == field]
        assert variable in known.aliases
        redeclare(policy, field, aliases=tuple(f"{one}X" if one == variable else one for one in known.aliases))

    return make


_RETRY = {
    "RETRY_MAX_RETRIES": "max_retries",
    "MAX_RETRIES": "max_retries",
    "RETRY_INITIAL_DELAY_MS": "initial_delay_ms",
    "INITIAL_RETRY_DELAY_MS": "initial_delay_ms",
    "RETRY_MAX_DELAY_MS": "max_delay_ms",
    "MAX_RETRY_DELAY_MS": "max_delay_ms",
    "RETRY_BACKOFF_MULTIPLIER": "multiplier",
    "RETRY_JITTER": "jitter",
}
_OTHERS = {"KAFKA_INPUT_TOPIC": "topics", "KAFKA_CONSUMER_GROUP": "group"}
for _variable, _field in _RETRY.items():
    _named("VARIABLES", f"{_variable}_is_misspelled", _misspelled(RetryPolicy, _field, _variable))
for _variable, _field in _OTHERS.items():
    _named("VARIABLES", f"{_variable}_is_misspelled", _misspelled(ConsumerSettings, _field, _variable))
_named("RETRY_SETTINGS", "RETRY_JITTER_is_not_read", _misspelled(RetryPolicy, "jitter", "RETRY_JITTER"))
_named("HEALTH_PORT", "HEALTH_CHECK_PORT_is_misspelled", _misspelled(HealthSettings, "port", "HEALTH_CHECK_PORT"))

# -- defaults


def _default(policy: type, field: str, value: object) -> Callable[[], None]:
    return lambda: default(policy, field, value)


for _evidence, _policy, _field, _value in [
    ("RETRY_SETTINGS", RetryPolicy, "max_retries", 4),
    ("SETTING", TimingPolicy, "session_timeout_ms", 61_000),
    ("SETTING", TimingPolicy, "heartbeat_interval_ms", 11_000),
    ("SETTING", TimingPolicy, "max_poll_interval_ms", 601_000),
    ("SETTING", ConsumerSettings, "auto_offset_reset", "error"),
    ("SETTING", ConsumerSettings, "fetch_min_bytes", 2),
    ("SETTING", ConsumerSettings, "fetch_max_wait_ms", 501),
    ("DEFAULTS", KafkaSettings, "brokers", ("kafka:9092",)),
    ("DRAIN_DEFAULT", ShutdownSettings, "timeout_s", 31.0),
    ("HEALTH_PORT", HealthSettings, "port", 8081),
]:
    _named(_evidence, f"{_field}_has_another_default", _default(_policy, _field, _value))


def _derived(field: str, usual: object, value: object) -> Callable[[], None]:
    def make() -> None:
        def derive(self: RetryPolicy) -> None:
            open_ = getattr(self, field) is DERIVED
            before(self)
            if open_ and getattr(self, field) == usual:
                change(self, **{field: value})

        before = replace(RetryPolicy, "_derive", derive)

    return make


for _field, _usual, _value in [
    ("initial_delay_ms", 1000, 1001),
    ("max_delay_ms", 30_000, 30_001),
    ("multiplier", 2.0, 2.1),
    ("jitter", True, False),
]:
    _named("RETRY_SETTINGS", f"{_field}_has_another_default", _derived(_field, _usual, _value))


def _profile(name: str, **values: int) -> Callable[[], None]:
    return lambda: replace(catalogue, "PROFILES", {**catalogue.PROFILES, name: values})


_named("PROFILES", "the_default_profile_retries_more", _profile("default", max_retries=4))
_named(
    "PROFILES",
    "financial_topics_retry_more",
    _profile("financial", max_retries=6, initial_delay_ms=5000, max_delay_ms=60_000),
)
_named("PROFILES", "notifications_wait_longer", _profile("notification", max_retries=3, initial_delay_ms=1000))
_named("PROFILES", "no_retries_are_one", _profile("none", max_retries=1))

# -- bounds


def _floor(field: str, low: int) -> Callable[[], None]:
    return lambda: redeclare(TimingPolicy, field, floor=copy(fields.floor_of(TimingPolicy, field), low=low))


_named("FLOORS", "sessions_may_be_shorter", _floor("session_timeout_ms", 29_000))
_named("FLOORS", "heartbeats_may_be_more_frequent", _floor("heartbeat_interval_ms", 9_000))
_named("FLOORS", "polls_may_be_more_frequent", _floor("max_poll_interval_ms", 9_000))


def _heartbeat(factor: float) -> None:
    def check(self: TimingPolicy, findings: Any) -> None:
        known: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields.fields_of(TimingPolicy)}
        heartbeat = known["heartbeat_interval_ms"]
        before(
            SimpleNamespace(**known | {"heartbeat_interval_ms": heartbeat and heartbeat * factor}),
            findings,
        )

    before = replace(TimingPolicy, "_check_together", check)


@breaks("THIRD")
def a_heartbeat_may_be_as_long_as_a_session() -> None:
    _heartbeat(1 / 3)


@breaks("THIRD")
def a_heartbeat_must_be_a_quarter_of_a_session() -> None:
    _heartbeat(4 / 3)


@breaks("RETRY_SUM")
def nothing_is_added_to_the_retry_sum() -> None:
    replace(consumers, "POLL_MARGIN_MS", 0)


# -- sources


@breaks("ONE_PLACE")
def the_environment_counts_as_code() -> None:
    def read_variables(raw: Any, source: SettingSource, *facts: Any, **more: Any) -> None:
        weaker = SettingSource.CODE if source is SettingSource.ENVIRONMENT else source
        before(raw, weaker, *facts, **more)

    before = replace(loading, "read_variables", read_variables)


@breaks("TYPED")
def sections_keep_their_defaults() -> None:
    def values(section: Any) -> Any:
        return before(section) if {"brokers", "env"} & set(section) else {}

    before = replace(loading, "_values", values)


@breaks("DOTENV")
def dotenv_is_not_read() -> None:
    replace(loading, "_read_dotenv", lambda raw, path, consumers: None)


@breaks("CHECKED_WHOLE")
def only_the_first_problem_is_reported() -> None:
    vars(loading)["ConfigError"] = lambda *problems: ConfigError(problems[0])


@breaks("CHECKED_WHOLE")
def problems_are_forgotten() -> None:
    def build(spec: Any, app: Any, resolver: Any, raw: Any) -> Any:
        built = before(spec, app, resolver, raw)
        raw.problems.clear()
        return built

    before = replace(loading, "_build_consumers", build)
