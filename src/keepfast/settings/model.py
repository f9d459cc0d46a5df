"""The settings as the rest of keepfast sees them: frozen, complete, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from keepfast.classify.rules import Rule
from keepfast.core.alerts import AlertPolicy
from keepfast.core.guards import BreakerPolicy, RatePolicy, StormPolicy
from keepfast.core.policies import (
    BatchPolicy,
    BufferPolicy,
    CommitPolicy,
    DeadLetterPolicy,
    Order,
    RetryPolicy,
    TimingPolicy,
)
from keepfast.core.retry_topics import RetryTopics
from keepfast.core.timeouts import TimeoutPolicy
from keepfast.redact.masking import SECRET_FIELDS, MaskingRules
from keepfast.settings.secret import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """How to reach the brokers. `librdkafka` holds client properties by their own names; its values may be secret."""

    brokers: tuple[str, ...]
    client_id: str
    security_protocol: str
    sasl_mechanism: str | None
    sasl_username: str | None
    sasl_password: Secret | None
    ssl_ca_location: str | None
    ssl_certificate_location: str | None
    ssl_key_location: str | None
    ssl_key_password: Secret | None
    ssl_endpoint_identification_algorithm: str
    librdkafka: Mapping[str, object] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNames:
    """The names that belong to one consumed topic."""

    topic: str
    domain: str
    entity: str
    dead_letter_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """Everything about one consumer. `concurrency` None: by order and handler. `assignor` None: the broker's.
    `group_protocol` `auto`: KIP-848 if the broker has it, else classic with these timings and this assignor.

    `max_deliveries` None or 0: no crash guard. `breaker`, `storm_guard` and `rate` are None where nothing guards it,
    `batch` where its handler takes one record.
    """

    name: str
    topics: tuple[str, ...]
    names: Mapping[str, TopicNames]
    group: str
    order: Order
    concurrency: int | None
    idempotent: bool
    atomic: bool
    tombstones: Literal["dead-letter", "discard"]
    unknown_errors: Literal["retry", "dead-letter"]
    not_found: Literal["final", "retry"]
    rules: tuple[Rule, ...]
    """The user's, the nearest source first."""
    retries: tuple[tuple[str, RetryPolicy], ...]
    """Policies for single errors, by the keys that rules have; the nearest source first."""
    auto_offset_reset: Literal["earliest", "latest", "error"]
    isolation_level: Literal["read_committed", "read_uncommitted"]
    max_deliveries: int | None
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    group_instance_id: str | None
    assignor: Literal["cooperative-sticky", "range", "roundrobin"] | None
    group_protocol: Literal["auto", "classic", "consumer"]
    timings: TimingPolicy
    timeout: TimeoutPolicy
    commit: CommitPolicy
    retry: RetryPolicy
    retry_topics: RetryTopics
    batch: BatchPolicy | None
    buffer: BufferPolicy
    dead_letter: DeadLetterPolicy
    breaker: BreakerPolicy | None
    storm_guard: StormPolicy | None
    rate: RatePolicy | None
    alerts: AlertPolicy
    named_by_supervisor: bool = False
    """`group_instance_id` was made by the supervisor, not configured."""

    @property
    def dead_letter_topics(self) -> dict[str, str]:
        """Source topic → where its letters go."""
        return {topic: names.dead_letter_topic for topic, names in self.names.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSettings:
    """What is deployed. `version` is empty when nobody told it."""

    name: str
    env: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskingSettings:
    """What is masked besides card numbers and the usual names of secrets."""

    fields: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    @property
    def rules(self) -> MaskingRules:
        return MaskingRules(fields=(*SECRET_FIELDS, *self.fields), patterns=self.patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSettings:
    """Where letters wait that Kafka does not take; `url` None: nowhere. It may hold a password."""

    url: Secret | None
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """What a process leaves behind on its host; `dir` None: in the temporary folder."""

    dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownSettings:
    """What happens at SIGTERM."""

    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """Health and metrics over HTTP. Port 0: any free one. `required` None: if the port was told."""

    enabled: bool
    host: str
    port: int
    required: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """How metrics leave the process besides /metrics."""

    otel: bool
    interval_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingSettings:
    """Spans of what handlers do."""

    enabled: bool = False
    relation: Literal["parent", "link"] = "parent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """The control API. `token` None: nothing may be changed by it."""

    token: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What is logged, and how."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
    format: Literal["auto", "console", "json"]
    most_lines: int | None = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of an app. `warnings` are for the log; `origins` says where what is no default came from."""

    app: AppSettings
    kafka: KafkaSettings
    spool: SpoolSettings
    state: StateSettings
    shutdown: ShutdownSettings
    health: HealthSettings
    metrics: MetricsSettings
    tracing: TracingSettings
    control: ControlSettings
    log: LogSettings
    masking: MaskingSettings
    consumers: Mapping[str, ConsumerSettings]
    warnings: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict, repr=False)
    """`kafka.brokers` or `consumers.charge.retry.max_retries` → `environment variable KAFKA_BROKERS`, `code: …`."""
