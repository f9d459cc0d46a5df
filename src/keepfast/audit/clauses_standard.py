"""The consumer standard, §1 to §4: errors, retries, letters, timings, commits."""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_errors as errors
from keepfast.audit import checks_groups as groups
from keepfast.audit import checks_letters as letters
from keepfast.audit import checks_project as project
from keepfast.audit import checks_settings as settings
from keepfast.audit.clause import Clause, must, should
from keepfast.core.errors import ConfigError

STANDARD: Final[tuple[Clause, ...]] = (
    must(
        "standard:1.1.1.1",
        "Errors of the network are retried: refused, reset, unreachable, timed out.",
        errors.retried(ConnectionRefusedError, ConnectionResetError, "errno:ENETUNREACH"),
    ),
    must(
        "standard:1.1.1.2",
        "A service that is unavailable (HTTP 502, 503, 504) is tried again.",
        errors.retried("http:502", "http:503", "http:504"),
    ),
    must("standard:1.1.1.3", "HTTP 429 is tried again, later.", errors.retried("http:429")),
    must(
        "standard:1.1.1.4",
        "Passing trouble of a database is tried again: no connection left, deadlock, lock time-out.",
        errors.retried("sqlstate:40P01", "sqlstate:55P03", "sqlstate:53300"),
    ),
    must(
        "standard:1.1.1.5",
        "Passing trouble of Kafka is tried again.",
        errors.retried("kafka:_TRANSPORT", "kafka:BROKER_NOT_AVAILABLE"),
    ),
    must("standard:1.1.1.6", "Requests that time out are tried again.", errors.retried(TimeoutError)),
    must(
        "standard:1.1.2.1",
        "Messages of the wrong form are final: format, fields, types.",
        errors.final(ValueError, TypeError, "http:400"),
    ),
    must("standard:1.1.2.2", "HTTP 401 and 403 are final.", errors.final("http:401", "http:403")),
    must(
        "standard:1.1.2.3",
        "HTTP 404 is final, or retried where the thing may still come.",
        errors.not_found,
    ),
    must(
        "standard:1.1.2.4",
        "Errors of business logic and violated constraints are final.",
        errors.business_errors,
    ),
    must(
        "standard:1.1.2.5",
        "What does not fit its schema or cannot be decoded is final.",
        errors.decode_errors,
    ),
    must("standard:1.1.2.6", "Errors of configuration are final.", errors.final(ConfigError)),
    must("standard:1.1.3.1", "Every error is either retryable or not."),
    must("standard:1.1.3.2", "It is classified before anything is retried."),
    must("standard:1.1.3.3", "The classification is logged.", settings.logged_at("WARNING")),
    must("standard:1.1.3.4", "The classification is in the metrics, by error type."),
    must("standard:1.2.1.1", "max_retries can be configured; 3 by default."),
    must("standard:1.2.1.2", "The initial delay can be configured; 1000 ms by default."),
    must("standard:1.2.1.3", "The longest delay can be configured; 30000 ms by default."),
    must("standard:1.2.1.4", "The multiplier can be configured; 2.0 by default."),
    must("standard:1.2.1.5", "Jitter can be configured; on by default."),
    must(
        "standard:1.2.2.1",
        "A delay is the initial one times the multiplier to the retry's power, up to the cap.",
    ),
    should("standard:1.2.2.2", "Up to 10 % of jitter is added.", settings.jitter),
    must("standard:1.2.3.1", "Delays of retries respect the rate limits of others.", settings.rate_limited),
    must("standard:1.2.3.2", "A minimum delay between calls is enforced.", settings.rate_limited),
    should("standard:1.2.3.3", "A retry waits for the larger of its back-off and the minimum delay."),
    must("standard:1.3.1.1", "A record is attempted max_retries + 1 times at most.", settings.retries_end),
    must("standard:1.3.1.2", "Errors are classified before a retry."),
    must("standard:1.3.1.3", "Retryable errors are retried with a growing delay, max_retries times."),
    must("standard:1.3.1.4", "Final errors go to the dead-letter topic without a retry."),
    must(
        "standard:1.3.1.5",
        "After the last retry a record goes to the dead-letter topic.",
        settings.buried_after_retries,
    ),
    must("standard:1.3.1.6", "Retries are logged.", settings.logged_at("WARNING")),
    must("standard:1.3.1.7", "Retries are counted."),
    must("standard:1.3.2.1", "Delays follow the formula."),
    must("standard:1.3.2.2", "Jitter is applied where it is on."),
    must("standard:1.3.2.3", "Rate limits are respected.", settings.rate_limited),
    must("standard:1.3.2.4", "Delays are capped at the longest one.", settings.capped),
    should("standard:1.4.1", "Retries, classification, letters, commits and the end come from one shared runner."),
    should("standard:1.4.2", "What is special about a consumer is plugged in as hooks."),
    should("standard:1.4.3", "All consumers share one classification and one back-off."),
    should("standard:1.4.4", "The shared runner has tests.", project.tested_by_keepfast),
    must(
        "standard:2.1.1",
        "A final error goes to the dead-letter topic at once.",
        errors.nothing_is_dropped,
    ),
    must("standard:2.1.2", "A record goes there after its last retry.", settings.buried_after_retries),
    must(
        "standard:2.1.3",
        "A record goes there when its time-out is exceeded, if there is one.",
        letters.timeouts_are_buried,
    ),
    must("standard:2.1.4", "Nothing goes there while retries remain."),
    must("standard:2.1.5", "Nothing goes there that was processed."),
    must(
        "standard:2.2",
        "A letter has original_message, error_type, error_message, failed_at, retry_count, error_classification and,"
        " if wanted, stack_trace.",
        letters.letters_as("envelope", "the standard"),
    ),
    must("standard:2.3.1", "Publishing a letter is retried with a growing delay."),
    must(
        "standard:2.3.2",
        "If it cannot be published, its record is not committed.",
        letters.nothing_committed_without_letter,
    ),
    must("standard:2.3.3", "Failures to publish are logged and can be watched."),
    must("standard:2.3.4", "The dead-letter topic exists before the consumer starts."),
    must(
        "standard:2.4",
        "The dead-letter topic is named <domain>.<entity>.dlq.",
        letters.letter_topics_as("standard"),
    ),
    must("standard:3.1.1", "The session is at least 30 s.", settings.session_floor),
    must("standard:3.1.2", "The heartbeat interval is at least 10 s.", settings.heartbeat_floor),
    must(
        "standard:3.1.3",
        "The heartbeat interval is less than a third of the session.",
        settings.heartbeat_share,
    ),
    must("standard:3.1.4", "The poll interval is at least 300 s.", settings.poll_floor),
    must(
        "standard:3.1.5",
        "The poll interval covers all retries, processing and a buffer.",
        settings.retry_sum,
    ),
    should(
        "standard:3.1.6",
        "Session, heartbeat and poll interval are 60, 10 and 600 s.",
        settings.recommended_timings,
    ),
    must("standard:3.2.1", "The client does not commit by itself."),
    must("standard:3.2.2", "auto_offset_reset is earliest or latest.", settings.offset_reset),
    must("standard:3.2.3", "max_poll_records fits the processing.", settings.poll_records),
    should("standard:3.2.4", "fetch_min_bytes is 1.", settings.fetch_min_bytes),
    should("standard:3.2.5", "fetch_max_wait_ms is 500.", settings.fetch_max_wait),
    must("standard:4.1.1", "Commits are manual."),
    must("standard:4.1.2", "A record is committed only when it was processed or its letter published."),
    must(
        "standard:4.1.3",
        "Nothing is committed whose letter failed.",
        letters.nothing_committed_without_letter,
    ),
    must("standard:4.1.4", "Commits are confirmed before the next record starts."),
    should("standard:4.2.1", "A record is committed at once when it was processed."),
    should("standard:4.2.2", "It is committed at once when its letter was published."),
    should(
        "standard:4.2.3",
        "Commits are not batched, unless processing is idempotent.",
        groups.commits_each,
    ),
    should("standard:4.2.4", "Commits that fail are logged and retried."),
)
