"""The consumer standard, §5 to §10: groups, metrics, logs, configuration, tests, good practice, compliance."""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_alerts as alerts
from keepfast.audit import checks_errors as errors
from keepfast.audit import checks_groups as groups
from keepfast.audit import checks_letters as letters
from keepfast.audit import checks_project as project
from keepfast.audit import checks_settings as settings
from keepfast.audit.clause import Clause, must, not_checkable, should

_PARTITIONS = not_checkable("Only the brokers know the partition count; see `keepfast doctor`.")
_OF_A_TEAM = not_checkable("A matter of team process, which an app does not show.")

STANDARD_OPERATING: Final[tuple[Clause, ...]] = (
    must("standard:5.1.1", "Each consumer has a group of its own."),
    must(
        "standard:5.1.2",
        "Group names are unique and descriptive.",
        groups.group_is_descriptive,
    ),
    should(
        "standard:5.1.3",
        "A group is named <domain>.<entity>.<version> or <service>.<consumer>.",
        groups.group_pattern,
    ),
    must("standard:5.1.4", "The group is documented in the README.", project.groups_are_documented),
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
        settings.metrics_are_exposed,
    ),
    must(
        "standard:6.1.2",
        "{domain}.{entity}.processing.duration is exposed, a timer.",
        settings.metrics_are_exposed,
    ),
    must(
        "standard:6.1.3",
        "{domain}.{entity}.retry.count is exposed, a counter by retry_attempt.",
        settings.metrics_are_exposed,
    ),
    must(
        "standard:6.1.4",
        "{domain}.{entity}.retry.delay is exposed, a timer by retry_attempt.",
        settings.metrics_are_exposed,
    ),
    must(
        "standard:6.1.5",
        "{domain}.{entity}.dlq.count is exposed, a counter by error_type and error_classification.",
        settings.metrics_are_exposed,
    ),
    must(
        "standard:6.1.6",
        "{domain}.{entity}.error.count is exposed, a counter by error_type and error_classification.",
        settings.metrics_are_exposed,
    ),
    must(
        "standard:6.2.1",
        "A retry is logged as a warning, with its count and delay.",
        settings.logged_at("WARNING"),
    ),
    must(
        "standard:6.2.2",
        "A dead letter is logged as info, with error type and classification.",
        settings.logged_at("INFO"),
    ),
    must("standard:6.2.3", "Exhausted retries are logged as an error.", settings.logged_at("ERROR")),
    must("standard:6.2.4", "A final error is logged as a warning.", settings.logged_at("WARNING")),
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
        alerts.alert_exists("KeepfastDeadLetters"),
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
    should("standard:9.3.3", "There are timeouts.", letters.has_a_timeout),
    should("standard:9.3.4", "Lag is monitored."),
    should("standard:9.4.1", "Group names are unique and descriptive.", groups.group_is_descriptive),
    should("standard:9.4.2", "Rebalances are monitored."),
    should("standard:9.4.3", "There are enough partitions.", _PARTITIONS),
    should("standard:9.4.4", "Group names are documented.", project.groups_are_documented),
    must("standard:10.1", "New consumers comply with this standard.", not_checkable("Covered by the other rules.")),
    must("standard:10.2", "Existing consumers are migrated to it.", _OF_A_TEAM),
    must("standard:10.3", "A change that adds a consumer includes its retries."),
    must(
        "standard:10.4",
        "The configuration is documented in the README.",
        project.configuration_is_documented,
    ),
    must("standard:10.5", "Retry metrics are exposed.", settings.metrics_are_exposed),
    must("standard:10.6", "Group names are documented.", project.groups_are_documented),
)
