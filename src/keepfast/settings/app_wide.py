"""The settings of the whole app: how to reach the brokers, what is deployed, what is logged and masked, how it ends."""

from __future__ import annotations

from typing import Final

from keepfast.core import names
from keepfast.settings.kinds import Brokers, Choice, Flag, Hidden, NameList, Number, SettingPlace, Table, Text, Whole
from keepfast.settings.passthrough import CALLABLES, property_problem
from keepfast.settings.shape import Section, Setting
from keepfast.settings.tables import Patterns

LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

SEGMENT: Final = Text("letters, digits, dots, underscores and hyphens", names.segment_problem)
LIBRDKAFKA: Final = Table(property_problem, CALLABLES)

KAFKA: Final = Section(
    "kafka",
    "How to reach the brokers.",
    (
        Setting("brokers", Brokers(), ("localhost:9092",), "Addresses to begin with.", ("KAFKA_BROKERS",)),
        Setting("client_id", Text(), None, "How the brokers' logs and quotas name this app. Default: the app's name."),
        Setting("security_protocol", Choice(SECURITY_PROTOCOLS), "PLAINTEXT", "Encryption and login, or neither."),
        Setting("sasl_mechanism", Choice(SASL_MECHANISMS), None, "How to log in, with SASL_PLAINTEXT or SASL_SSL."),
        Setting("sasl_username", Text(), None, "The name to log in with."),
        Setting("sasl_password", Hidden(), None, "The password to log in with. Keep it out of keepfast.toml."),
        Setting("ssl_ca_location", Text(), None, "File or directory of trusted certificates. Default: the system's."),
        Setting("ssl_certificate_location", Text(), None, "The client's certificate (PEM), for mutual TLS."),
        Setting("ssl_key_location", Text(), None, "The client's private key (PEM), for mutual TLS."),
        Setting("ssl_key_password", Hidden(), None, "The password of the private key."),
        Setting(
            "ssl_endpoint_identification_algorithm",
            Choice(("https", "none")),
            "https",
            "`https` checks that the certificate names the broker's host; `none` does not.",
        ),
        Setting(
            "librdkafka",
            LIBRDKAFKA,
            None,
            "Any other property of the client by its own name; those that would break a promise are refused.",
        ),
    ),
)

APP_WIDE: Final = (
    Section(
        "masking",
        "What is masked in logs, in the diagnostics of dead letters and in what commands show, besides card numbers and"
        " the usual names of secrets. The original bytes of a dead letter are never changed.",
        (
            Setting("fields", NameList(or_none=True), (), "More names of fields and headers whose values are masked."),
            Setting("patterns", Patterns(), (), "Regular expressions; what they match is masked."),
        ),
    ),
    Section(
        "spool",
        "Where letters wait that Kafka does not take. Off unless a place is told.",
        (
            Setting(
                "url",
                SettingPlace(),
                None,
                "`file:///…` (a folder that outlives the container), `postgresql://…`, `s3://…` or another fsspec URL.",
                ("KEEPFAST_SPOOL",),
            ),
            Setting("max_bytes", Whole(1), 1024**3, "How much a process may write there; then it takes no more."),
        ),
        shorthand="url",
    ),
    Section(
        "state",
        "What a process leaves behind on this host for the one that is started in its place.",
        (
            Setting(
                "dir",
                Text("a directory"),
                None,
                "Where it notes which records it has in hand, so that after a crash only those are suspected. It must"
                " outlive a restart of the process. Default: `keepfast-<user id>` in the temporary folder.",
            ),
        ),
        shorthand="dir",
    ),
    Section(
        "shutdown",
        "What happens at SIGTERM.",
        (Setting("timeout_s", Number(0, 86_400), 30.0, "How long running handlers may take; then the process ends."),),
    ),
    Section(
        "app",
        "What this deployment is.",
        (
            Setting("env", SEGMENT, "local", "Fills `{env}` in names.", ("KEEPFAST_ENV", "APP_ENV")),
            Setting("version", Text(), None, "The app's version, written into dead letters."),
        ),
    ),
    Section(
        "health",
        "Health and metrics over HTTP.",
        (
            Setting("enabled", Flag(), True, "Whether they are served.", ("HEALTH_CHECK_ENABLED",)),
            Setting("host", Text(), "0.0.0.0", "The address to listen on, or `unix:/…`, a socket in the file system."),
            Setting("port", Whole(0, 65_535), 8080, "The port; 0 takes any free one.", ("HEALTH_CHECK_PORT",)),
            Setting(
                "required",
                Flag(),
                None,
                "Whether the app does not start when that port is taken. Default: only if the port was told.",
            ),
        ),
    ),
    Section(
        "metrics",
        "How metrics leave the process besides /metrics.",
        (
            Setting(
                "otel",
                Flag(),
                False,
                "Whether they are exported through OpenTelemetry (extra `tracing`, and an exporter), as OTEL_* say.",
            ),
            Setting("interval_s", Number(0, 3600, above=True), 60.0, "How often they are exported."),
        ),
    ),
    Section(
        "tracing",
        "Spans of what handlers do, through OpenTelemetry (extra `tracing`, and an exporter), as OTEL_* say.",
        (
            Setting("enabled", Flag(), False, "Whether there are any."),
            Setting(
                "relation",
                Choice(("parent", "link")),
                "parent",
                "Whether a span is a child of the one that the record's `traceparent` names, or only linked to it.",
            ),
        ),
    ),
    Section(
        "control",
        "The control API, on the port of health and metrics, for this host alone.",
        (
            Setting(
                "token",
                Hidden(),
                None,
                "What a request must bring to change something (pause, resume, release). Without it none may.",
            ),
        ),
        shorthand="token",
    ),
    Section(
        "log",
        "What is logged, and how.",
        (
            Setting("level", Choice(LOG_LEVELS), "INFO", "The lowest level that is written."),
            Setting("format", Choice(("auto", "console", "json")), "auto", "`auto`: console on a terminal, else json."),
            Setting(
                "most_lines",
                Whole(1, none_word="all"),
                100,
                "In a storm: lines in 10 s of one event, topic and type of error; `suppressed` counts those left out.",
            ),
        ),
    ),
)
