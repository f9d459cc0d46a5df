"""The settings as the rest of keepfast sees them: frozen, complete, checked.

A field with a `Doc` is a setting; its annotation is all there is to declare (`keepfast.core.fields`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Literal

from keepfast.classify.rules import Rule
from keepfast.core import names
from keepfast.core.alerts import AlertPolicy
from keepfast.core.crash_guard import MAX_STARTS
from keepfast.core.fields import Derived, Doc, Env, NameList, NoneWord, Policy, Range, Text
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
from keepfast.core.replays import DESK_TOPIC
from keepfast.core.retry_topics import RetryTopics
from keepfast.core.timeouts import TimeoutPolicy
from keepfast.core.topic_patterns import pattern_problem
from keepfast.redact.masking import SECRET_FIELDS, MaskingRules
from keepfast.settings.kinds import (
    Brokers,
    ClientProperties,
    Hidden,
    HiddenUrl,
    Patterns,
    Retries,
    Rules,
    Secret,
)


def registry_url_problem(text: str) -> str | None:
    """What is wrong with the address of a registry, never repeating it: people paste URLs with passwords."""
    for url in text.split(","):
        scheme, found, rest = url.strip().partition("://")
        if not found or scheme not in ("http", "https", "mock"):
            return "must begin with http://, https:// or mock://"
        if "@" in rest:
            return "must not hold a password; use registry.username and registry.password"
    return None


SEGMENT: Final = Text("letters, digits, dots, underscores and hyphens", names.segment_problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings(Policy):
    """How to reach the brokers. `librdkafka` holds client properties by their own names; its values may be secret."""

    section: ClassVar[str] = "kafka"

    brokers: Annotated[
        tuple[str, ...],
        Brokers(),
        Env("KAFKA_BROKERS"),
        Doc("Addresses to connect to first."),
    ] = ("localhost:9092",)
    client_id: Annotated[str, Doc("The name of this app in the brokers' logs and quotas."), Derived("the app's name")]
    security_protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], Doc("Encryption and login, or neither.")
    ] = "PLAINTEXT"
    sasl_mechanism: Annotated[
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"] | None,
        Doc("How to log in, with SASL_PLAINTEXT or SASL_SSL."),
    ] = None
    sasl_username: Annotated[str | None, Doc("The name to log in with.")] = None
    sasl_password: Annotated[
        Secret | None, Hidden(), Doc("The password to log in with. Keep it out of keepfast.toml.")
    ] = None
    ssl_ca_location: Annotated[
        str | None, Doc("File or directory of trusted certificates."), Derived("the system's certificates")
    ] = None
    ssl_certificate_location: Annotated[str | None, Doc("The client's certificate (PEM), for mutual TLS.")] = None
    ssl_key_location: Annotated[str | None, Doc("The client's private key (PEM), for mutual TLS.")] = None
    ssl_key_password: Annotated[Secret | None, Hidden(), Doc("The password of the private key.")] = None
    ssl_endpoint_identification_algorithm: Annotated[
        Literal["https", "none"],
        Doc("`https` checks that the certificate names the broker's host; `none` does not."),
    ] = "https"
    librdkafka: Annotated[
        Mapping[str, object],
        ClientProperties(),
        Doc("Any other property of the client by its own name; those that would break a promise are refused."),
    ] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings(Policy):
    """The schema registry; `url` None: there is none."""

    section: ClassVar[str] = "registry"

    url: Annotated[
        str | None,
        Text("a URL like https://registry:8081, or mock://name, without a password", registry_url_problem),
        Env("SCHEMA_REGISTRY_URL"),
        Doc(
            "The address of a registry with Confluent's API; several are separated by commas. `mock://name` is one in"
            " the memory of the process, for tests."
        ),
    ] = None
    username: Annotated[str | None, Doc("The name to log in with.")] = None
    password: Annotated[Secret | None, Hidden(), Doc("The password to log in with. Keep it out of keepfast.toml.")] = (
        None
    )
    oauth_token_url: Annotated[
        str | None,
        Doc("Where tokens are issued (OAuth, client credentials). Then a token is sent instead of name and password."),
    ] = None
    oauth_client_id: Annotated[str | None, Doc("The client that asks for a token.")] = None
    oauth_client_secret: Annotated[Secret | None, Hidden(), Doc("Its secret. Keep it out of keepfast.toml.")] = None
    oauth_scope: Annotated[str | None, Doc("The scope of the token.")] = None
    oauth_cluster: Annotated[
        str | None,
        Doc("The logical cluster of the registry (the header `target-sr-cluster`), as Confluent Cloud wants it."),
    ] = None
    ssl_ca_location: Annotated[
        str | None, Doc("File or directory of trusted certificates."), Derived("those of certifi")
    ] = None
    ssl_certificate_location: Annotated[str | None, Doc("The client's certificate (PEM), for mutual TLS.")] = None
    ssl_key_location: Annotated[str | None, Doc("The client's private key (PEM), for mutual TLS.")] = None
    ssl_key_password: Annotated[Secret | None, Hidden(), Doc("The password of the private key.")] = None
    timeout_s: Annotated[float, Range(0, 300, above=True), Doc("How long one request may take.")] = 5.0
    register: Annotated[
        bool,
        Doc("Whether schemas of topics that the app sends to are registered at the start; otherwise they must be."),
    ] = False
    subjects: Annotated[
        Literal["topic", "record", "topic-record"],
        Doc("How subjects are named: `<topic>-value`, the record's full name, or `<topic>-<record>`."),
    ] = "topic"
    ids: Annotated[
        Literal["value", "header"],
        Doc("Where the schema id of what the app sends goes. Both are read."),
    ] = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNames:
    """The names that belong to one consumed topic."""

    topic: str
    domain: str
    entity: str
    dead_letter_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(Policy):
    """Everything about one consumer. `concurrency` None: by order and handler. `assignor` None: the broker's.
    `group_protocol` `auto`: KIP-848 if the broker has it, else classic with these timings and this assignor.

    `max_deliveries` None or 0: no crash guard. `breaker`, `storm_guard` and `rate` are None where nothing guards it,
    `batch` where its handler takes one record. `inbox_days`: how long its inbox knows a processed record; None without
    an inbox. `rules` are the user's, and `retries` policies for single errors by the
    keys that rules have; the nearest source comes first in both.
    """

    section: ClassVar[str] = "consumer"

    name: str
    topics: Annotated[
        tuple[str, ...],
        NameList(may_be_empty=True),
        Env("KAFKA_INPUT_TOPIC"),
        Doc("The topics; `{env}` is filled in."),
    ]
    names: Mapping[str, TopicNames]
    inbox_days: float | None = None
    pattern: Annotated[
        str | None,
        Text("a regular expression", pattern_problem),
        Doc(
            "Reads all topics, too, whose whole name matches this regular expression of Python's re. In code:"
            " `Pattern(…)`; `{env}` is filled in."
        ),
    ] = None
    topics_refresh_s: Annotated[
        float, Range(0.1, 3600), Doc("How often topics that match the pattern are looked up.")
    ] = 30.0
    group: Annotated[
        str,
        Env("KAFKA_CONSUMER_GROUP"),
        Doc("The consumer group; `{env}` is filled in."),
        Derived("`<app>.<consumer>`"),
    ]
    domain: Annotated[
        str | None, SEGMENT, Doc("Used in names."), Derived("the topic's first segment; else the app's name")
    ] = None
    entity: Annotated[
        str | None, SEGMENT, Doc("Used in names."), Derived("the topic's other segments, without version")
    ] = None
    order: Annotated[
        Order,
        Doc(
            "What must run one after another: a partition, a key, none. `queue` (experimental): a share group"
            " (KIP-932), with more members than partitions and an acknowledgement for each record."
        ),
    ] = "partition"
    concurrency: Annotated[
        int | None,
        Range(1, 100_000),
        Doc("Records that run at once."),
        Derived("32 threads or 256 coroutines; by partition, one for each at most"),
    ] = None
    idempotent: Annotated[bool, Doc("The handler may see a record twice without harm.")] = False
    exactly_once: Annotated[
        bool,
        Doc(
            "`ctx.send`, dead letters, moves to retry topics and the offset of a record are one Kafka transaction, each"
            " 0.1 s: readers of the outputs (read_committed) see each once."
        ),
    ] = False
    atomic: Annotated[bool, Doc("A call of a batch handler that fails has changed nothing.")] = False
    tombstones: Annotated[
        Literal["dead-letter", "discard"], Doc("What happens to null values that the handler does not take.")
    ] = "dead-letter"
    unknown_types: Annotated[
        Literal["dead-letter", "discard"],
        Doc("What happens to a record whose tag or type header names none of the types that the handler takes."),
    ] = "dead-letter"
    unknown_errors: Annotated[
        Literal["retry", "dead-letter"], Doc("What happens to a record whose error no rule knows.")
    ] = "retry"
    not_found: Annotated[
        Literal["final", "retry"], Doc("Whether HTTP 404 and the like are final, or what is missing may still come.")
    ] = "final"
    rules: Annotated[
        tuple[Rule, ...],
        Rules(),
        Doc("What errors mean, before the built-in rules: an exception, or a key such as http:409, and its kind."),
    ] = ()
    retries: Annotated[
        tuple[tuple[str, RetryPolicy], ...],
        Retries(),
        Doc("Retry policies of single errors: an exception, or a key such as http:429, and a profile or settings."),
    ] = ()
    auto_offset_reset: Annotated[
        Literal["earliest", "latest", "error"],
        Doc(
            "Where a group starts that has no committed offset. `latest` is for its first start: added partitions,"
            " recreated topics and offsets out of range start at the beginning (logged); with `error` the app halts."
        ),
    ] = "earliest"
    isolation_level: Annotated[
        Literal["read_committed", "read_uncommitted"],
        Doc("Whether records of open and aborted transactions are skipped."),
    ] = "read_committed"
    max_deliveries: Annotated[
        int | None,
        Range(0, MAX_STARTS),
        NoneWord("off"),
        Doc(
            "The crash guard: a record that killed the process this often, started alone, is dead-lettered."
            " 0 or `off`: none. Queues: from this delivery on it is dead-lettered without a call, or"
            " one later if another record is likelier to be the cause."
        ),
    ] = 3
    max_poll_records: Annotated[int, Range(1, 100_000), Doc("Records taken from the client in one go.")] = 500
    fetch_min_bytes: Annotated[
        int, Range(1, 100_000_000), Doc("The broker answers a fetch when it has this many bytes.")
    ] = 1
    fetch_max_wait_ms: Annotated[
        int, Range(0, 300_000), Doc("The broker answers a fetch after this time at the latest.")
    ] = 500
    group_instance_id: Annotated[
        str | None, Doc("Static membership: a name of this member that survives restarts.")
    ] = None
    assignor: Annotated[
        Literal["cooperative-sticky", "range", "roundrobin"] | None,
        Doc("How partitions are assigned; not with group_protocol=consumer."),
    ] = "cooperative-sticky"
    group_protocol: Annotated[
        Literal["auto", "classic", "consumer"],
        Doc(
            "`consumer` is the protocol of KIP-848. `auto`: classic for static members, with a session, heartbeat or"
            " assignor of your own, and on brokers without KIP-848."
        ),
    ] = "auto"
    lock_s: Annotated[
        float | None,
        Range(1, 3600),
        Doc("Queues: how long a record is locked for a member. Set by `configure_group`, otherwise only compared."),
        Derived("what the share group is configured with, 30 unless changed"),
    ] = None
    configure_group: Annotated[
        bool,
        Doc(
            "Queues: sets the share group's lock, start and isolation at startup, as `keepfast run --configure` does;"
            " otherwise a difference stops the start."
        ),
    ] = False
    unsafe_timings: Annotated[bool, Doc("Switches the floors of the timings off. For tests.")] = False
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
class AppSettings(Policy):
    """What is deployed."""

    section: ClassVar[str] = "app"

    name: str
    env: Annotated[str, SEGMENT, Env("KEEPFAST_ENV", "APP_ENV"), Doc("Fills `{env}` in names.")] = "local"
    version: Annotated[str, Text(may_be_empty=True), Doc("The app's version, written into dead letters.")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskingSettings(Policy):
    """What is masked besides card numbers and the usual names of secrets."""

    section: ClassVar[str] = "masking"

    fields: Annotated[
        tuple[str, ...],
        NameList(may_be_empty=True),
        Doc("More names of fields and headers whose values are masked."),
    ] = ()
    patterns: Annotated[tuple[str, ...], Patterns(), Doc("Regular expressions; what they match is masked.")] = ()

    @property
    def rules(self) -> MaskingRules:
        return MaskingRules(fields=(*SECRET_FIELDS, *self.fields), patterns=self.patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSettings(Policy):
    """Where letters wait that Kafka does not accept; `url` None: nowhere. It may hold a password."""

    section: ClassVar[str] = "spool"

    url: Annotated[
        Secret | None,
        HiddenUrl(),
        Env("KEEPFAST_SPOOL"),
        Doc("`file:///…` (a folder that outlives the container), `postgresql://…`, `s3://…` or another fsspec URL."),
    ] = None
    max_bytes: Annotated[int, Range(1), Doc("How much a process may write there; then it accepts no more.")] = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSettings(Policy):
    """The database of inboxes that find no pool among the app's resources; `host` and `url` None: there is none."""

    section: ClassVar[str] = "postgres"

    url: Annotated[
        Secret | None,
        HiddenUrl("a URL like postgresql://user@host/db (kept secret)"),
        Env("POSTGRES_URL"),
        Doc("All of the connection in one; goes before the others."),
    ] = None
    host: Annotated[str | None, Env("POSTGRES_HOST"), Doc("The host of the server, or the folder of its socket.")] = (
        None
    )
    port: Annotated[int, Range(1, 65_535), Env("POSTGRES_PORT"), Doc("Its port.")] = 5432
    db: Annotated[str | None, Env("POSTGRES_DB"), Doc("The name of the database."), Derived("the user's name")] = None
    user: Annotated[str | None, Env("POSTGRES_USER"), Doc("The role to log in as."), Derived("the system's user")] = (
        None
    )
    password: Annotated[
        Secret | None,
        Hidden(),
        Env("POSTGRES_PASSWORD"),
        Doc("The password to log in with. Keep it out of keepfast.toml."),
    ] = None
    pool_min: Annotated[
        int, Range(0, 10_000), Env("POSTGRES_POOL_MIN"), Doc("Connections that are always open, per process.")
    ] = 2
    pool_max: Annotated[
        int,
        Range(1, 10_000),
        Env("POSTGRES_POOL_MAX"),
        Doc("Connections that are open at most, per process: so many records are processed at once."),
    ] = 10

    @property
    def shown(self) -> str:
        """Where it is, without secrets."""
        return "the URL of the settings" if self.url is not None else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings(Policy):
    """What a process leaves behind on its host; `dir` None: in the temporary folder."""

    section: ClassVar[str] = "state"

    dir: Annotated[
        str | None,
        Text("a directory"),
        Doc(
            "Where it notes which records are in flight, so that after a crash only those are suspected. It must"
            " outlive a restart of the process."
        ),
        Derived("`keepfast-<user id>` in the temporary folder"),
    ] = None


TOPIC: Final = Text("the name of a topic", names.topic_problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskSettings(Policy):
    """Where the desk keeps what is done about dead letters."""

    section: ClassVar[str] = "desk"

    topic: Annotated[
        str,
        TOPIC,
        Doc(
            "The compacted topic with what was done about dead letters and what became of replayed records; the audit"
            " is in `<topic>.audit`. Both are created when they are first needed."
        ),
    ] = DESK_TOPIC
    replay_limit: Annotated[int, Range(1, 1_000), Doc("A case that was replayed this often is left out of plans.")] = 3
    count_every_s: Annotated[
        float,
        Range(0, 3_600),
        Doc("How often unresolved cases are counted, for the metric `keepfast_dlq_unresolved`; 0: not at all."),
    ] = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownSettings(Policy):
    """What happens at SIGTERM."""

    section: ClassVar[str] = "shutdown"

    timeout_s: Annotated[
        float,
        Range(0, 86_400),
        Doc("How long running handlers may take; then the process ends."),
    ] = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings(Policy):
    """Health and metrics over HTTP. `required` None: if `enabled` or `port` was set."""

    section: ClassVar[str] = "health"

    enabled: Annotated[bool, Env("HEALTH_CHECK_ENABLED"), Doc("Whether they are served.")] = True
    host: Annotated[str, Doc("The address to listen on, or `unix:/…`, a socket in the file system.")] = "0.0.0.0"
    port: Annotated[int, Range(0, 65_535), Env("HEALTH_CHECK_PORT"), Doc("The port; 0 takes any free one.")] = 8080
    required: Annotated[
        bool | None,
        Doc("Whether the app does not start when that port is taken."),
        Derived("true if `enabled` or `port` was set"),
    ] = None
    restart_after_s: Annotated[
        float,
        Range(10, 86_400),
        Doc("`--processes`: a child that does not answer for so long, or answers that it is not live, is restarted."),
    ] = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings(Policy):
    """How metrics leave the process besides /metrics on the port of health."""

    section: ClassVar[str] = "metrics"

    port: Annotated[
        int | None,
        Range(0, 65_535),
        NoneWord("none"),
        Doc("Where /metrics is served beside a health server of your own (`health_server_start` of a runner)."),
    ] = 9464

    otel: Annotated[
        bool, Doc("Whether they are exported through OpenTelemetry (extra `tracing`, and an exporter), as OTEL_* say.")
    ] = False
    interval_s: Annotated[float, Range(0, 3600, above=True), Doc("How often they are exported.")] = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingSettings(Policy):
    """Spans of what handlers do."""

    section: ClassVar[str] = "tracing"

    enabled: Annotated[bool, Doc("Whether there are any.")] = False
    relation: Annotated[
        Literal["parent", "link"],
        Doc("Whether a span is a child of the one that the record's `traceparent` names, or only linked to it."),
    ] = "parent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings(Policy):
    """The control API. `token` None: nothing may be changed by it."""

    section: ClassVar[str] = "control"

    token: Annotated[
        Secret | None,
        Hidden(),
        Doc("What a request must bring to change something (pause, resume, release). Without it none may."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings(Policy):
    """What is logged, and how."""

    section: ClassVar[str] = "log"

    level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], Doc("The lowest level that is written.")
    ] = "INFO"
    format: Annotated[
        Literal["auto", "console", "json", "app"],
        Doc("`auto`: console on a terminal, else json. `app`: handlers that the app has set up get every line."),
    ] = "auto"
    max_lines: Annotated[
        int | None,
        Range(1),
        NoneWord("all"),
        Doc("In a storm: lines in 10 s of one event, topic and type of error; `suppressed` counts those left out."),
    ] = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of an app. `warnings` are for the log; `origins` says where what is no default came from."""

    app: AppSettings
    kafka: KafkaSettings
    registry: RegistrySettings
    spool: SpoolSettings
    postgres: PostgresSettings
    state: StateSettings
    desk: DeskSettings
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
