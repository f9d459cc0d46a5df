"""Every setting there is, by section: derived from the annotations of the policies and of the models.

The loader, the checks, the options of consumers and the reference are made from this list; a setting that is not here
does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from keepfast.core.alerts import AlertPolicy
from keepfast.core.fields import DERIVED, Flag, Policy, PolicyField, Text, fields_of
from keepfast.core.guards import BreakerPolicy, RatePolicy, StormPolicy
from keepfast.core.policies import BatchPolicy, BufferPolicy, CommitPolicy, DeadLetterPolicy, RetryPolicy, TimingPolicy
from keepfast.core.retry_topics import RetryTopics
from keepfast.core.timeouts import TimeoutPolicy
from keepfast.settings.model import (
    AppSettings,
    ConsumerSettings,
    ControlSettings,
    DeskSettings,
    HealthSettings,
    KafkaSettings,
    LogSettings,
    MaskingSettings,
    MetricsSettings,
    PostgresSettings,
    RegistrySettings,
    ShutdownSettings,
    SpoolSettings,
    StateSettings,
    TracingSettings,
)

PREFIX: Final = "KEEPFAST_"


@dataclass(frozen=True, kw_only=True)
class Section:
    """A table in keepfast.toml, with the settings that these classes declare. `per_consumer`: may also be set for one
    consumer.
    """

    name: str
    doc: str
    classes: tuple[type[Policy], ...]
    per_consumer: bool = False
    policy: type[Policy] | None = None
    """Code may give this object instead of a table."""
    extra: tuple[PolicyField, ...] = ()
    """Settings that are no fields of the classes."""
    shorthand: str | None = None
    """A plain text in place of the table means this setting: `retry = "financial"`."""
    switch: str | None = None
    """True or false in place of the table means this setting, and a policy in code switches it on: `breaker=True`."""
    merged: frozenset[str] = frozenset()
    """What all sources say of these is joined, the nearest first, instead of the nearest alone."""
    code_only: frozenset[str] = frozenset()
    """These say something about the code, so only the code can set them."""
    one_consumer: frozenset[str] = frozenset()
    """These belong to one consumer: set for the whole app, they are an error if the app has several."""

    @cached_property
    def settings(self) -> tuple[PolicyField, ...]:
        """In the order of the classes and their fields."""
        return (*self.extra, *(_with_default(one, field) for one in self.classes for field in fields_of(one)))

    @cached_property
    def by_name(self) -> Mapping[str, PolicyField]:
        return {setting.name: setting for setting in self.settings}


def _with_default(policy: type[Policy], field: PolicyField) -> PolicyField:
    return replace(field, default=getattr(policy(), field.name)) if field.default is DERIVED else field


def _of_consumers(policy: type[Policy], doc: str, **more: Any) -> Section:
    return Section(name=policy.section, doc=doc, classes=(policy,), policy=policy, per_consumer=True, **more)


def _of_the_app(model: type[Policy], doc: str, **more: Any) -> Section:
    return Section(name=model.section, doc=doc, classes=(model,), **more)


def _switch(doc: str, *, on: bool = False) -> dict[str, Any]:
    return {"extra": (PolicyField("enabled", Flag(), on, doc),), "switch": "enabled"}


CONSUMER: Final = Section(
    name="consumer",
    doc="What is consumed, as which group, in which order.",
    classes=(ConsumerSettings, TimeoutPolicy, TimingPolicy),
    per_consumer=True,
    merged=frozenset({"rules", "retries"}),
    code_only=frozenset({"idempotent", "atomic", "exactly_once"}),
    one_consumer=frozenset({"topics", "pattern", "group", "entity"}),
)
COMMIT: Final = _of_consumers(CommitPolicy, "When offsets are committed.", shorthand="mode")
RETRY: Final = _of_consumers(
    RetryPolicy,
    "How failed records are tried again. Profiles are named sets of these: [retry.profiles.<name>].",
    extra=(PolicyField("profile", Text("the name of a profile"), "default", "The profile for what is not set here."),),
    shorthand="profile",
)
RETRY_TOPICS: Final = _of_consumers(
    RetryTopics,
    "Where failed records wait after the retries in place, so that their partition continues meanwhile.",
    shorthand="delays",
)
BATCH: Final = _of_consumers(BatchPolicy, "How many records a handler that takes a list gets at once.")
BUFFER: Final = _of_consumers(BufferPolicy, "How much may wait in memory.")
DEAD_LETTER: Final = _of_consumers(DeadLetterPolicy, "Where records go that cannot be processed.", shorthand="topic")
BREAKER: Final = _of_consumers(
    BreakerPolicy,
    "Makes records wait while what the handler depends on is down, instead of dead-lettering them.",
    **_switch("Whether there is one."),
)
STORM_GUARD: Final = _of_consumers(
    StormPolicy,
    "Stops the consumer when nearly every record is dead-lettered, which only a bug does.",
    **_switch("Whether there is one.", on=True),
)
RATE: Final = _of_consumers(RatePolicy, "How fast records may start, retries included.")
ALERTS: Final = _of_consumers(
    AlertPolicy,
    "What the rules that `keepfast monitoring` writes call too much. A running app does not read it.",
    shorthand="kind",
)

SECTIONS: Final = (
    _of_the_app(KafkaSettings, "How to reach the brokers."),
    _of_the_app(RegistrySettings, "The schema registry, for topics with schemas (extra `schemas`).", shorthand="url"),
    CONSUMER,
    COMMIT,
    RETRY,
    RETRY_TOPICS,
    BATCH,
    BUFFER,
    DEAD_LETTER,
    BREAKER,
    STORM_GUARD,
    RATE,
    ALERTS,
    _of_the_app(
        MaskingSettings,
        "What is masked in logs, in the diagnostics of dead letters and in what commands show, besides card numbers and"
        " the usual names of secrets. The original bytes of a dead letter are never changed.",
    ),
    _of_the_app(
        SpoolSettings, "Where letters wait that Kafka does not accept. Off unless a URL is set.", shorthand="url"
    ),
    _of_the_app(
        PostgresSettings,
        "The database of `PostgresInbox`, for apps whose resources have no pool of psycopg_pool.",
        shorthand="url",
    ),
    _of_the_app(
        StateSettings,
        "What a process leaves behind on this host for the one that is started in its place.",
        shorthand="dir",
    ),
    _of_the_app(DeskSettings, "What is done about dead letters: the topic of `keepfast dlq` and of the page."),
    _of_the_app(ShutdownSettings, "What happens at SIGTERM."),
    _of_the_app(AppSettings, "What this deployment is."),
    _of_the_app(HealthSettings, "Health and metrics over HTTP."),
    _of_the_app(MetricsSettings, "How metrics leave the process besides /metrics."),
    _of_the_app(
        TracingSettings,
        "Spans of what handlers do, through OpenTelemetry (extra `tracing`, and an exporter), as OTEL_* say.",
    ),
    _of_the_app(
        ControlSettings,
        "The control API, on the port of health and metrics, for this host alone.",
        shorthand="token",
    ),
    _of_the_app(LogSettings, "What is logged, and how."),
)
BY_NAME: Final = {section.name: section for section in SECTIONS}

# Only what a profile changes, so that `forever` still finds its own delays under the default one.
PROFILES: Final[Mapping[str, Mapping[str, object]]] = {
    "default": {},
    "financial": {"max_retries": 5, "initial_delay_ms": 5000, "max_delay_ms": 60_000},
    "notification": {"max_retries": 3, "initial_delay_ms": 1000, "max_delay_ms": 10_000},
    "none": {"max_retries": 0},
}

# Variables with our prefix that are no settings: other parts of keepfast read them.
OTHER_VARIABLES: Final = frozenset({"KEEPFAST_CACHE_DIR"})
OTHER_PREFIXES: Final = ("KEEPFAST_TEST_",)


def variable(*path: str) -> str:
    """The environment variable of a path: `kafka`, `brokers` → KEEPFAST_KAFKA_BROKERS."""
    return PREFIX + "_".join(variable_part(part) for part in path)


def variable_part(name: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name).upper()
