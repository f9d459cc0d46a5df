"""The consumer standard, §5 to §10: groups, metrics, logs, configuration, tests, good practice, compliance."""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_alerts as alerts
from keepfast.audit import checks_errors as errors
from keepfast.audit import checks_groups as groups
from keepfast.audit import checks_letters as letters
from keepfast.audit import checks_project as project
from keepfast.audit import checks_settings as settings
from keepfast.audit.clause import Clause, must, outside, should

_PARTITIONS = outside("How many partitions a topic has is known to its brokers: `keepfast doctor` tells.")
_OF_A_TEAM = outside("A matter of how a team works, which no app can show.")

STANDARD_OPERATING: Final[tuple[Clause, ...]] = (
    must("standard:5.1.1", "Each consumer has a group of its own."),
    must(
        "standard:5.1.2",
        "Names of groups are unique and say whose they are.",
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
        "The usual assignors are used, unless order demands otherwise.",
        groups.default_assignor,
    ),
    must("standard:5.2.2", "Where order matters, one key stays in one partition."),
    must("standard:5.2.3", "Assignments and rebalances are watched."),
    should("standard:5.2.4", "Nobody assigns partitions by hand without need."),
    should("standard:5.2.5", "The frequency of rebalances is watched."),
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
        "A letter is logged as information, with type and classification.",
        settings.logged_at("INFO"),
    ),
    must("standard:6.2.3", "The end of the retries is logged as an error.", settings.logged_at("ERROR")),
    must("standard:6.2.4", "A final error is logged as a warning.", settings.logged_at("WARNING")),
    must(
        "standard:6.2.5",
        "Lines carry retry_count, error_type, error_classification, backoff_delay_ms, consumer_group, partition and"
        " offset.",
    ),
    must("standard:7.1.1", "All parameters of retries can be configured."),
    must("standard:7.1.2", "They come from environment variables."),
    must("standard:7.1.3", "Defaults are those of the standard."),
    must("standard:7.1.4", "Configuration is validated at the start."),
    should("standard:7.1.5", "Consumers run in containers.", project.container),
    must("standard:8.1.1", "Retries are tested with different errors.", project.tested_by_keepfast),
    must("standard:8.1.2", "The back-off is tested.", project.tested_by_keepfast),
    must("standard:8.1.3", "The classification is tested.", project.tested_by_keepfast),
    must("standard:8.1.4", "What becomes a letter is tested.", project.tested_by_keepfast),
    must("standard:8.1.5", "The end of the retries is tested.", project.tested_by_keepfast),
    must("standard:8.2.1", "Retries are tested end to end on a real Kafka.", project.tested_by_keepfast),
    must("standard:8.2.2", "The content of letters is tested.", project.tested_by_keepfast),
    must("standard:8.2.3", "The group's behaviour during retries is tested.", project.tested_by_keepfast),
    must("standard:8.2.4", "Commits after retries are tested.", project.tested_by_keepfast),
    should("standard:9.1.1", "One begins with the standard's defaults.", settings.standard_retries),
    should("standard:9.1.2", "Retries are watched and tuned."),
    should("standard:9.1.3", "Minimum delays are enforced for limited services.", settings.rate_limited),
    should("standard:9.1.4", "Jitter is on.", settings.jitter),
    should("standard:9.1.5", "Permanent failures are not retried.", errors.final(ValueError, "http:401")),
    should(
        "standard:9.2.1",
        "The number of dead letters is watched, and too many raise an alert.",
        alerts.raised("KeepfastDeadLetters"),
    ),
    should("standard:9.2.2", "Letters are grouped by error."),
    should("standard:9.2.3", "Letters are replayed selectively."),
    should(
        "standard:9.2.4",
        "Old letters are archived.",
        outside("Letters stay for ever where keepfast makes the topic; moving old ones away is an operator's affair."),
    ),
    should("standard:9.3.1", "Records of a partition run one after another.", groups.sequential),
    should("standard:9.3.2", "Threads or coroutines wait for input and output."),
    should("standard:9.3.3", "There are time-outs.", letters.has_a_timeout),
    should("standard:9.3.4", "Lag is watched."),
    should("standard:9.4.1", "Names of groups are unique and descriptive.", groups.group_is_descriptive),
    should("standard:9.4.2", "Rebalances are watched."),
    should("standard:9.4.3", "There are enough partitions.", _PARTITIONS),
    should("standard:9.4.4", "Names of groups are documented.", project.groups_are_documented),
    must("standard:10.1", "New consumers keep this standard.", outside("Said by the other rules.")),
    must("standard:10.2", "Existing consumers are brought up to it.", _OF_A_TEAM),
    must("standard:10.3", "A change that brings a consumer brings its retries."),
    must(
        "standard:10.4",
        "The configuration is documented in the README.",
        project.configuration_is_documented,
    ),
    must("standard:10.5", "Metrics of all retries are exposed.", settings.metrics_are_exposed),
    must("standard:10.6", "Names of groups are documented.", project.groups_are_documented),
)
