"""The consumer standard: errors, retries, dead letters, commits, groups, metrics, logs, tests."""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_alerts, checks_errors, checks_groups, checks_letters, checks_project, checks_settings
from keepfast.audit.profile import Profile
from keepfast.audit.rule import must, not_checkable, should
from keepfast.core.errors import ConfigError
from neotool_common.profiles import checks_errors as errors
from neotool_common.profiles import checks_groups as groups
from neotool_common.profiles import checks_letters as letters
from neotool_common.profiles import checks_project as project
from neotool_common.profiles import checks_settings as settings
from neotool_common.profiles.hooks import REPLACED

_PARTITIONS = not_checkable("Only the brokers know the partition count; see `keepfast doctor`.")
_OF_A_TEAM = not_checkable("A matter of team process, which an app does not show.")

STANDARD: Final = Profile(
    "standard",
    "the consumer standard",
    (
        must(
            "standard:1.1.1.1",
            "Network errors are retried: refused, reset, unreachable, timed out.",
            checks_errors.retried(ConnectionRefusedError, ConnectionResetError, "errno:ENETUNREACH"),
        ),
        must(
            "standard:1.1.1.2",
            "An unavailable service (HTTP 502, 503, 504) is retried.",
            checks_errors.retried("http:502", "http:503", "http:504"),
        ),
        must("standard:1.1.1.3", "HTTP 429 is retried later.", checks_errors.retried("http:429")),
        must(
            "standard:1.1.1.4",
            "Transient database errors are retried: no connection available, deadlock, lock timeout.",
            checks_errors.retried("sqlstate:40P01", "sqlstate:55P03", "sqlstate:53300"),
        ),
        must(
            "standard:1.1.1.5",
            "Transient Kafka errors are retried.",
            checks_errors.retried("kafka:_TRANSPORT", "kafka:BROKER_NOT_AVAILABLE"),
        ),
        must("standard:1.1.1.6", "Requests that time out are retried.", checks_errors.retried(TimeoutError)),
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
        must("standard:1.1.3.3", "The classification is logged.", checks_settings.logged_at("WARNING")),
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
        must("standard:1.3.1.6", "Retries are logged.", checks_settings.logged_at("WARNING")),
        must("standard:1.3.1.7", "Retries are counted."),
        must("standard:1.3.2.1", "Delays follow the formula."),
        must("standard:1.3.2.2", "Jitter is applied where it is on."),
        must("standard:1.3.2.3", "Rate limits are respected.", settings.rate_limited),
        must("standard:1.3.2.4", "Delays are capped at the longest one.", settings.capped),
        should(
            "standard:1.4.1", "One shared runner provides retries, classification, dead letters, commits and shutdown."
        ),
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
            checks_letters.timeouts_are_dead_lettered,
        ),
        must("standard:2.1.4", "No record is dead-lettered while retries remain."),
        must("standard:2.1.5", "No processed record is dead-lettered."),
        must(
            "standard:2.2",
            "A letter has original_message, error_type, error_message, failed_at, retry_count, error_classification"
            " and, optionally, stack_trace.",
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
        must("standard:5.1.1", "Each consumer has a group of its own."),
        must(
            "standard:5.1.2",
            "Group names are unique and descriptive.",
            checks_groups.group_is_descriptive,
        ),
        should(
            "standard:5.1.3",
            "A group is named <domain>.<entity>.<version> or <service>.<consumer>.",
            groups.group_pattern,
        ),
        must("standard:5.1.4", "The group is documented in the README.", checks_project.groups_are_documented),
        must(
            "standard:5.2.1",
            "The default assignors are used, unless order requires another.",
            groups.default_assignor,
        ),
        must("standard:5.2.2", "Where order matters, a key stays in one partition."),
        must("standard:5.2.3", "Assignments and rebalances are monitored."),
        should("standard:5.2.4", "Partitions are not assigned manually without need."),
        should("standard:5.2.5", "The frequency of rebalances is monitored."),
        should("standard:5.2.6", "There are enough partitions.", _PARTITIONS),
        must(
            "standard:6.1.1",
            "{domain}.{entity}.processed is exposed, a counter by status (success, failure).",
            checks_settings.metrics_are_exposed,
        ),
        must(
            "standard:6.1.2",
            "{domain}.{entity}.processing.duration is exposed, a timer.",
            checks_settings.metrics_are_exposed,
        ),
        must(
            "standard:6.1.3",
            "{domain}.{entity}.retry.count is exposed, a counter by retry_attempt.",
            checks_settings.metrics_are_exposed,
        ),
        must(
            "standard:6.1.4",
            "{domain}.{entity}.retry.delay is exposed, a timer by retry_attempt.",
            checks_settings.metrics_are_exposed,
        ),
        must(
            "standard:6.1.5",
            "{domain}.{entity}.dlq.count is exposed, a counter by error_type and error_classification.",
            checks_settings.metrics_are_exposed,
        ),
        must(
            "standard:6.1.6",
            "{domain}.{entity}.error.count is exposed, a counter by error_type and error_classification.",
            checks_settings.metrics_are_exposed,
        ),
        must(
            "standard:6.2.1",
            "A retry is logged as a warning, with its count and delay.",
            checks_settings.logged_at("WARNING"),
        ),
        must(
            "standard:6.2.2",
            "A dead letter is logged as info, with error type and classification.",
            checks_settings.logged_at("INFO"),
        ),
        must("standard:6.2.3", "Exhausted retries are logged as an error.", checks_settings.logged_at("ERROR")),
        must("standard:6.2.4", "A final error is logged as a warning.", checks_settings.logged_at("WARNING")),
        must(
            "standard:6.2.5",
            "Lines carry retry_count, error_type, error_classification, backoff_delay_ms, consumer_group, partition and"
            " offset.",
        ),
        must("standard:7.1.1", "All retry parameters can be configured."),
        must("standard:7.1.2", "They come from environment variables."),
        must("standard:7.1.3", "Defaults are those of the standard."),
        must("standard:7.1.4", "Configuration is validated at startup."),
        should("standard:7.1.5", "Consumers run in containers.", project.container),
        must("standard:8.1.1", "Retries are tested with different errors.", project.tested_by_keepfast),
        must("standard:8.1.2", "The back-off is tested.", project.tested_by_keepfast),
        must("standard:8.1.3", "The classification is tested.", project.tested_by_keepfast),
        must("standard:8.1.4", "Dead-lettering is tested.", project.tested_by_keepfast),
        must("standard:8.1.5", "Exhausted retries are tested.", project.tested_by_keepfast),
        must("standard:8.2.1", "Retries are tested end to end on a real Kafka.", project.tested_by_keepfast),
        must("standard:8.2.2", "The content of dead letters is tested.", project.tested_by_keepfast),
        must("standard:8.2.3", "Group behavior during retries is tested.", project.tested_by_keepfast),
        must("standard:8.2.4", "Commits after retries are tested.", project.tested_by_keepfast),
        should("standard:9.1.1", "The standard's defaults are the starting point.", settings.standard_retries),
        should("standard:9.1.2", "Retries are monitored and tuned."),
        should("standard:9.1.3", "Minimum delays are enforced for rate-limited services.", settings.rate_limited),
        should("standard:9.1.4", "Jitter is on.", settings.jitter),
        should("standard:9.1.5", "Permanent failures are not retried.", errors.final(ValueError, "http:401")),
        should(
            "standard:9.2.1",
            "The number of dead letters is monitored, and too many raise an alert.",
            checks_alerts.alert_exists("KeepfastDeadLetters"),
        ),
        should("standard:9.2.2", "Dead letters are grouped by error."),
        should("standard:9.2.3", "Dead letters are replayed selectively."),
        should(
            "standard:9.2.4",
            "Old dead letters are archived.",
            not_checkable("Topics that keepfast creates retain letters without limit; archiving is up to operators."),
        ),
        should("standard:9.3.1", "Records of a partition run one after another.", groups.sequential),
        should("standard:9.3.2", "I/O runs in threads or coroutines."),
        should("standard:9.3.3", "There are timeouts.", checks_letters.has_a_timeout),
        should("standard:9.3.4", "Lag is monitored."),
        should("standard:9.4.1", "Group names are unique and descriptive.", checks_groups.group_is_descriptive),
        should("standard:9.4.2", "Rebalances are monitored."),
        should("standard:9.4.3", "There are enough partitions.", _PARTITIONS),
        should("standard:9.4.4", "Group names are documented.", checks_project.groups_are_documented),
        must("standard:10.1", "New consumers comply with this standard.", not_checkable("Covered by the other rules.")),
        must("standard:10.2", "Existing consumers are migrated to it.", _OF_A_TEAM),
        must("standard:10.3", "A change that adds a consumer includes its retries."),
        must(
            "standard:10.4",
            "The configuration is documented in the README.",
            checks_project.configuration_is_documented,
        ),
        must("standard:10.5", "Retry metrics are exposed.", checks_settings.metrics_are_exposed),
        must("standard:10.6", "Group names are documented.", checks_project.groups_are_documented),
    ),
    replaced=REPLACED,
)
