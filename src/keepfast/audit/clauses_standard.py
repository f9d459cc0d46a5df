"""The consumer standard, §1 to §4: errors, retries, dead letters, timings, commits."""

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
        "Network errors are retried: refused, reset, unreachable, timed out.",
        errors.retried(ConnectionRefusedError, ConnectionResetError, "errno:ENETUNREACH"),
    ),
    must(
        "standard:1.1.1.2",
        "An unavailable service (HTTP 502, 503, 504) is retried.",
        errors.retried("http:502", "http:503", "http:504"),
    ),
    must("standard:1.1.1.3", "HTTP 429 is retried later.", errors.retried("http:429")),
    must(
        "standard:1.1.1.4",
        "Transient database errors are retried: no connection available, deadlock, lock timeout.",
        errors.retried("sqlstate:40P01", "sqlstate:55P03", "sqlstate:53300"),
    ),
    must(
        "standard:1.1.1.5",
        "Transient Kafka errors are retried.",
        errors.retried("kafka:_TRANSPORT", "kafka:BROKER_NOT_AVAILABLE"),
    ),
    must("standard:1.1.1.6", "Requests that time out are retried.", errors.retried(TimeoutError)),
    must(
        "standard:1.1.2.1",
        "Validation errors are final: format, fields, types.",
        errors.final(ValueError, TypeError, "http:400"),
    ),
    must("standard:1.1.2.2", "HTTP 401 and 403 are final.", errors.final("http:401", "http:403")),
    must(
        "standard:1.1.2.3",
        "HTTP 404 is final, or retried if the resource may still appear.",
        errors.not_found,
    ),
    must(
        "standard:1.1.2.4",
        "Business errors and constraint violations are final.",
        errors.business_errors,
    ),
    must(
        "standard:1.1.2.5",
        "Schema and decoding errors are final.",
        errors.decode_errors,
    ),
    must("standard:1.1.2.6", "Configuration errors are final.", errors.final(ConfigError)),
    must("standard:1.1.3.1", "Every error is either retryable or not."),
    must("standard:1.1.3.2", "It is classified before it is retried."),
    must("standard:1.1.3.3", "The classification is logged.", settings.logged_at("WARNING")),
    must("standard:1.1.3.4", "The classification is in the metrics, by error type."),
    must("standard:1.2.1.1", "max_retries can be configured; 3 by default."),
    must("standard:1.2.1.2", "The initial delay can be configured; 1000 ms by default."),
    must("standard:1.2.1.3", "The longest delay can be configured; 30000 ms by default."),
    must("standard:1.2.1.4", "The multiplier can be configured; 2.0 by default."),
    must("standard:1.2.1.5", "Jitter can be configured; on by default."),
    must(
        "standard:1.2.2.1",
        "A delay is the initial delay times the multiplier to the power of the retry, up to the cap.",
    ),
    should("standard:1.2.2.2", "Up to 10 % of jitter is added.", settings.jitter),
    must("standard:1.2.3.1", "Retry delays respect the rate limits of external services.", settings.rate_limited),
    must("standard:1.2.3.2", "A minimum delay between calls is enforced.", settings.rate_limited),
    should("standard:1.2.3.3", "A retry waits for the larger of its back-off and the minimum delay."),
    must("standard:1.3.1.1", "A record is attempted max_retries + 1 times at most.", settings.retries_end),
    must("standard:1.3.1.2", "Errors are classified before a retry."),
    must("standard:1.3.1.3", "Retryable errors are retried with back-off, max_retries times."),
    must("standard:1.3.1.4", "Final errors are dead-lettered without a retry."),
    must(
        "standard:1.3.1.5",
        "After the last retry a record is dead-lettered.",
        settings.dead_lettered_after_retries,
    ),
    must("standard:1.3.1.6", "Retries are logged.", settings.logged_at("WARNING")),
    must("standard:1.3.1.7", "Retries are counted."),
    must("standard:1.3.2.1", "Delays follow the formula."),
    must("standard:1.3.2.2", "Jitter is applied where it is on."),
    must("standard:1.3.2.3", "Rate limits are respected.", settings.rate_limited),
    must("standard:1.3.2.4", "Delays are capped at the longest one.", settings.capped),
    should("standard:1.4.1", "One shared runner provides retries, classification, dead letters, commits and shutdown."),
    should("standard:1.4.2", "Consumer-specific code is plugged in as hooks."),
    should("standard:1.4.3", "All consumers share one classification and one back-off."),
    should("standard:1.4.4", "The shared runner has tests.", project.tested_by_keepfast),
    must(
        "standard:2.1.1",
        "A record with a final error is dead-lettered at once.",
        errors.nothing_is_dropped,
    ),
    must("standard:2.1.2", "A record is dead-lettered after its last retry.", settings.dead_lettered_after_retries),
    must(
        "standard:2.1.3",
        "A record is dead-lettered when its timeout is exceeded, if there is one.",
        letters.timeouts_are_dead_lettered,
    ),
    must("standard:2.1.4", "No record is dead-lettered while retries remain."),
    must("standard:2.1.5", "No processed record is dead-lettered."),
    must(
        "standard:2.2",
        "A letter has original_message, error_type, error_message, failed_at, retry_count, error_classification and,"
        " optionally, stack_trace.",
        letters.letters_as("envelope", "the standard"),
    ),
    must("standard:2.3.1", "Publishing a letter is retried with back-off."),
    must(
        "standard:2.3.2",
        "If it cannot be published, its record is not committed.",
        letters.nothing_committed_without_letter,
    ),
    must("standard:2.3.3", "Failures to publish are logged and can be monitored."),
    must("standard:2.3.4", "The dead-letter topic exists before the consumer starts."),
    must(
        "standard:2.4",
        "The dead-letter topic is named <domain>.<entity>.dlq.",
        letters.letter_topics_as("standard"),
    ),
    must("standard:3.1.1", "The session timeout is at least 30 s.", settings.session_floor),
    must("standard:3.1.2", "The heartbeat interval is at least 10 s.", settings.heartbeat_floor),
    must(
        "standard:3.1.3",
        "The heartbeat interval is less than a third of the session timeout.",
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
    must("standard:3.2.1", "Auto-commit is off."),
    must("standard:3.2.2", "auto_offset_reset is earliest or latest.", settings.offset_reset),
    must("standard:3.2.3", "max_poll_records fits the processing.", settings.poll_records),
    should("standard:3.2.4", "fetch_min_bytes is 1.", settings.fetch_min_bytes),
    should("standard:3.2.5", "fetch_max_wait_ms is 500.", settings.fetch_max_wait),
    must("standard:4.1.1", "Commits are manual."),
    must("standard:4.1.2", "A record is committed only when it was processed or its letter published."),
    must(
        "standard:4.1.3",
        "A record is not committed if its letter cannot be published.",
        letters.nothing_committed_without_letter,
    ),
    must("standard:4.1.4", "Commits are confirmed before the next record starts."),
    should("standard:4.2.1", "A record is committed as soon as it was processed."),
    should("standard:4.2.2", "A record is committed as soon as its letter was published."),
    should(
        "standard:4.2.3",
        "Commits are not batched, unless processing is idempotent.",
        groups.commits_each,
    ),
    should("standard:4.2.4", "Commits that fail are logged and retried."),
)
