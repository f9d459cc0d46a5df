"""Every setting there is: name, kind, default, what it is for, and the other names under which it may be set.

The loader, the checks and the reference in the docs are made from this list; a setting that is not here does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from keepfast.core import policies
from keepfast.core.crash_guard import MAX_STARTS
from keepfast.core.policies import BatchPolicy, BufferPolicy, CommitPolicy, DeadLetterPolicy, RetryPolicy
from keepfast.core.retry_topics import RetryTopics
from keepfast.core.timeouts import MAX_S, ON_TIMEOUT, TimeoutPolicy
from keepfast.settings.alerts import ALERTS
from keepfast.settings.app_wide import APP_WIDE, KAFKA, SEGMENT
from keepfast.settings.guards import GUARDS
from keepfast.settings.kinds import Choice, Delays, Flag, NameList, Number, Text, Whole
from keepfast.settings.shape import Section, Setting
from keepfast.settings.tables import Retries, Rules

_TIMEOUT = TimeoutPolicy()
CONSUMER: Final = Section(
    "consumer",
    "What is consumed, as which group, in which order.",
    (
        Setting(
            "topics", NameList(), None, "The topics; `{env}` is filled in.", ("KAFKA_INPUT_TOPIC",), one_consumer=True
        ),
        Setting(
            "group",
            Text(),
            None,
            "The consumer group; `{env}` is filled in. Default: `<app>.<consumer>`.",
            ("KAFKA_CONSUMER_GROUP",),
            one_consumer=True,
        ),
        Setting("domain", SEGMENT, None, "Used in names. Default: the topic's first segment; else the app's name."),
        Setting(
            "entity",
            SEGMENT,
            None,
            "Used in names. Default: the topic's other segments, without version.",
            one_consumer=True,
        ),
        Setting(
            "order", Choice(policies.ORDERS), "partition", "What must run one after another: a partition, a key, none."
        ),
        Setting(
            "concurrency",
            Whole(1, 100_000),
            None,
            "Records at work at once. Default: 32 threads or 256 coroutines; by partition, one for each at most.",
        ),
        Setting("idempotent", Flag(), False, "The handler may see a record twice without harm.", code_only=True),
        Setting("atomic", Flag(), False, "A call of a batch handler that fails has changed nothing.", code_only=True),
        Setting(
            "tombstones",
            Choice(("dead-letter", "discard")),
            "dead-letter",
            "What becomes of null values the handler does not take.",
        ),
        Setting(
            "unknown_errors",
            Choice(("retry", "dead-letter")),
            "retry",
            "What becomes of a record whose error no rule knows.",
        ),
        Setting(
            "not_found",
            Choice(("final", "retry")),
            "final",
            "Whether HTTP 404 and its like are final, or what is missing may still come.",
        ),
        Setting(
            "rules",
            Rules(),
            (),
            "What errors mean, asked before the built-in rules: an exception, or a key such as http:409, and its kind.",
            merged=True,
        ),
        Setting(
            "retries",
            Retries(),
            (),
            "Retry policies of single errors: an exception, or a key such as http:429, and a profile or settings.",
            merged=True,
        ),
        Setting(
            "timeout_s",
            Number(0, MAX_S, above=True, none_word="none"),
            _TIMEOUT.timeout_s,
            "How long the handler may take for one record; `none`: as long as it likes.",
        ),
        Setting(
            "on_timeout",
            Choice(ON_TIMEOUT),
            _TIMEOUT.on_timeout,
            "`dead-letter` the record and leave the handler to itself, or `hold` its lane until the handler ends.",
        ),
        Setting(
            "max_abandoned",
            Whole(1, 10_000),
            _TIMEOUT.max_abandoned,
            "Handlers that timed out and go on all the same; if there are so many, the next one holds the consumer.",
        ),
        Setting(
            "stuck_after_s",
            Number(0, MAX_S, above=True, none_word="none"),
            _TIMEOUT.stuck_after_s,
            "A handler that takes longer (and longer than timeout_s) is logged with its stack and shown in health;"
            " a reassigned partition waits that long for a handler of before. `none`: off, it waits for ever.",
        ),
        Setting(
            "auto_offset_reset",
            Choice(("earliest", "latest", "error")),
            "earliest",
            "Where a group begins that has no committed offset. `latest` is for its first start: added partitions,"
            " recreated topics and offsets outside the log go on at the beginning, loudly; with `error` the app halts.",
        ),
        Setting(
            "isolation_level",
            Choice(("read_committed", "read_uncommitted")),
            "read_committed",
            "Whether records of open and aborted transactions are skipped.",
        ),
        Setting(
            "max_deliveries",
            Whole(0, MAX_STARTS, none_word="off"),
            3,
            "The crash guard: a record of which the process died so often, started alone, is buried. 0 or `off`: none.",
        ),
        Setting("max_poll_records", Whole(1, 100_000), 500, "Records taken from the client in one go."),
        Setting("fetch_min_bytes", Whole(1, 100_000_000), 1, "The broker answers a fetch when it has this much."),
        Setting(
            "fetch_max_wait_ms", Whole(0, 300_000), 500, "The broker answers a fetch after this time at the latest."
        ),
        Setting(
            "session_timeout_ms",
            Whole(1, 3_600_000),
            60_000,
            "A member that is silent for this long is dead; at least 30000.",
        ),
        Setting(
            "heartbeat_interval_ms",
            Whole(1, 3_600_000),
            10_000,
            "How often a member shows that it lives; at least 10000 and at most a third of the session.",
        ),
        Setting(
            "max_poll_interval_ms",
            Whole(1, 86_400_000),
            600_000,
            "A member that does not poll for so long is stuck; at least 300000. Slow handlers do not count.",
        ),
        Setting(
            "revoke_timeout_s",
            Number(0, 43_200, above=True),
            10.0,
            "How long running records of a revoked partition may take; below half of max_poll_interval_ms.",
        ),
        Setting("unsafe_timings", Flag(), False, "Switches the floors of the timings off. For tests."),
        Setting("group_instance_id", Text(), None, "Static membership: a name of this member that survives restarts."),
        Setting(
            "assignor",
            Choice(("cooperative-sticky", "range", "roundrobin")),
            "cooperative-sticky",
            "How partitions are shared out; not with group_protocol=consumer.",
        ),
        Setting(
            "group_protocol",
            Choice(("auto", "classic", "consumer")),
            "auto",
            "`consumer` is the protocol of KIP-848. `auto`: classic for static members, with a session, heartbeat or"
            " assignor of your own, and on brokers without KIP-848.",
        ),
    ),
    per_consumer=True,
)

_COMMIT = CommitPolicy()
COMMIT: Final = Section(
    "commit",
    "When offsets are committed.",
    (
        Setting(
            "mode",
            Choice(policies.COMMIT_MODES),
            _COMMIT.mode,
            "`each`: after each record. `interval`: now and then; needs idempotent=True.",
        ),
        Setting("every_s", Number(0, 3600, above=True), _COMMIT.every_s, "Interval: at the latest after this time."),
        Setting("every_records", Whole(1), _COMMIT.every_records, "Interval: at the latest after so many records."),
    ),
    per_consumer=True,
    policy=CommitPolicy,
    shorthand="mode",
)

_RETRY = RetryPolicy()
RETRY: Final = Section(
    "retry",
    "How failed records are tried again. Profiles are named sets of these: [retry.profiles.<name>].",
    (
        Setting(
            "profile", Text("the name of a profile"), "default", "The profile to take what is not told otherwise from."
        ),
        Setting(
            "max_retries",
            Whole(0, none_word="forever"),
            _RETRY.max_retries,
            "Retries after the first attempt; `forever` retries every 3 s unless delays are told.",
            ("RETRY_MAX_RETRIES", "MAX_RETRIES"),
        ),
        Setting(
            "initial_delay_ms",
            Number(0, policies.WEEK_MS),
            _RETRY.initial_delay_ms,
            "The delay before the first retry.",
            ("RETRY_INITIAL_DELAY_MS", "INITIAL_RETRY_DELAY_MS"),
        ),
        Setting(
            "max_delay_ms",
            Number(0, policies.WEEK_MS),
            _RETRY.max_delay_ms,
            "No delay is longer, jitter aside.",
            ("RETRY_MAX_DELAY_MS", "MAX_RETRY_DELAY_MS"),
        ),
        Setting(
            "multiplier",
            Number(1, 1000),
            _RETRY.multiplier,
            "By how much each delay is longer than the last.",
            ("RETRY_BACKOFF_MULTIPLIER",),
        ),
        Setting("jitter", Flag(), _RETRY.jitter, "Adds up to 10 % to each delay, by chance.", ("RETRY_JITTER",)),
        Setting("max_elapsed_s", Number(0, none_word="none"), None, "No retry begins later after the first attempt."),
    ),
    per_consumer=True,
    policy=RetryPolicy,
    shorthand="profile",
)
# Only what a profile says differently, so that `forever` still finds its own delays under the default one.
PROFILES: Final[Mapping[str, Mapping[str, object]]] = {
    "default": {},
    "financial": {"max_retries": 5, "initial_delay_ms": 5000, "max_delay_ms": 60_000},
    "notification": {"max_retries": 3, "initial_delay_ms": 1000, "max_delay_ms": 10_000},
    "none": {"max_retries": 0},
}

_TOPICS = RetryTopics()
RETRY_TOPICS: Final = Section(
    "retry_topics",
    "Where failed records wait after the retries in place, so that their partition goes on meanwhile.",
    (
        Setting(
            "delays",
            Delays(),
            _TOPICS.delays,
            "Like `5s,1m,10m`, or `off`: one attempt after each. Topics are named `<topic>.<group>.retry.<delay>`.",
        ),
        Setting(
            "allow_reorder",
            Flag(),
            _TOPICS.allow_reorder,
            "Agrees that a record which comes back was overtaken; needed with order partition or key.",
        ),
        Setting("create_topics", Flag(), _TOPICS.create_topics, "Whether missing retry topics are made."),
    ),
    per_consumer=True,
    policy=RetryTopics,
    shorthand="delays",
)

_BATCH = BatchPolicy()
BATCH: Final = Section(
    "batch",
    "How many records a handler that takes a list gets at once.",
    (
        Setting("size", Whole(1, policies.MAX_BATCH), _BATCH.size, "So many, if they are there."),
        Setting("wait_s", Number(0, 60), _BATCH.wait_s, "Fewer, so long after the first of them could have started."),
    ),
    per_consumer=True,
    policy=BatchPolicy,
)

_BUFFER = BufferPolicy()
BUFFER: Final = Section(
    "buffer",
    "How much may wait in memory.",
    (
        Setting("records", Whole(1, 10_000_000), _BUFFER.records, "Records per partition."),
        Setting("bytes", Whole(1), _BUFFER.bytes, "Bytes per partition; one record is always taken."),
        Setting(
            "client_queue_bytes",
            Whole(1024 * 1024, 2_147_482_624),
            _BUFFER.client_queue_bytes,
            "Bytes that the client may have fetched ahead, per consumer.",
        ),
    ),
    per_consumer=True,
    policy=BufferPolicy,
)

_LETTER = DeadLetterPolicy()
DEAD_LETTER: Final = Section(
    "dead_letter",
    "Where records go that cannot be processed.",
    (
        Setting("topic", Text(), _LETTER.topic, "May use {domain}, {entity}, {topic}, {env} and {group}."),
        Setting("create_topic", Flag(), _LETTER.create_topic, "Whether a missing dead-letter topic is made."),
        Setting("format", Choice(policies.LETTER_FORMATS), _LETTER.format, "How a letter looks."),
    ),
    per_consumer=True,
    policy=DeadLetterPolicy,
    shorthand="topic",
)

SECTIONS: Final = (
    KAFKA,
    CONSUMER,
    COMMIT,
    RETRY,
    RETRY_TOPICS,
    BATCH,
    BUFFER,
    DEAD_LETTER,
    *GUARDS,
    ALERTS,
    *APP_WIDE,
)
BY_NAME: Final = {section.name: section for section in SECTIONS}

# Variables with our prefix that are no settings: other parts of keepfast read them.
OTHER_VARIABLES: Final = frozenset({"KEEPFAST_CACHE_DIR"})
OTHER_PREFIXES: Final = ("KEEPFAST_TEST_",)
