"""keepfast's own rules: what every app should do, whichever documents its team follows."""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_alerts as alerts
from keepfast.audit import checks_errors as errors
from keepfast.audit import checks_groups as groups
from keepfast.audit import checks_image as image
from keepfast.audit import checks_letters as letters
from keepfast.audit import checks_project as project
from keepfast.audit import checks_settings as settings
from keepfast.audit.profile import Profile
from keepfast.audit.rule import must, should

OWN: Final = Profile(
    "keepfast",
    "keepfast's own rules",
    (
        must(
            "keepfast:errors.transient",
            "Errors of networks, services, databases and brokers that pass are retried.",
            errors.retried(
                *(ConnectionRefusedError, ConnectionResetError, TimeoutError, "http:429", "http:503"),
                *("sqlstate:08006", "sqlstate:40P01", "kafka:_TRANSPORT"),
            ),
        ),
        must(
            "keepfast:errors.final",
            "Errors that every attempt repeats are dead-lettered without a retry.",
            errors.final(ValueError, TypeError, "http:400", "http:401", "http:403"),
        ),
        must(
            "keepfast:errors.discarded",
            "No rule discards records without a letter.",
            errors.nothing_is_dropped,
        ),
        should("keepfast:retries.jitter", "Retries vary, so that consumers do not retry together.", settings.jitter),
        should(
            "keepfast:letters.timeouts",
            "A record that exceeds its time is dead-lettered.",
            letters.timeouts_are_dead_lettered,
        ),
        must("keepfast:letters.spool", "A configured spool is used.", letters.spool_is_used),
        must("keepfast:timings", "Timings of the group are not below safe values.", settings.timings_are_safe),
        must(
            "keepfast:shutdown",
            "The shutdown timeout covers the time that a record may take.",
            settings.drains_long_enough,
        ),
        should("keepfast:handler.idempotent", "A record may be delivered twice.", groups.idempotent),
        should("keepfast:handler.typed", "Values are decoded into a declared type.", groups.validated),
        should("keepfast:handler.timeout", "A handler has a time limit.", letters.has_a_timeout),
        must("keepfast:group.name", "The group's name is descriptive.", groups.group_is_descriptive),
        should("keepfast:group.documented", "The README names every group.", project.groups_are_documented),
        should(
            "keepfast:project.configuration",
            "The README documents the configuration.",
            project.configuration_is_documented,
        ),
        should("keepfast:project.tests", "There are tests.", project.has_tests),
        must("keepfast:health", "Health is served.", settings.health_is_served),
        must("keepfast:metrics", "Metrics are served or exported.", settings.metrics_are_exposed),
        must("keepfast:logs", "Warnings are logged.", settings.logged_at("WARNING")),
        should("keepfast:alerts.letters", "Dead letters raise an alert.", alerts.alert_exists("KeepfastDeadLetters")),
        should(
            "keepfast:alerts.publishing",
            "Dead letters that cannot be published raise an alert.",
            alerts.alert_exists("KeepfastDeadLettersNotPublished"),
        ),
        should("keepfast:alerts.errors", "Many errors raise an alert.", alerts.alert_exists("KeepfastHighErrorRate")),
        should("keepfast:alerts.lag", "Lag raises an alert.", alerts.alert_exists("KeepfastHighPartitionLag")),
        should(
            "keepfast:alerts.stuck",
            "A partition that makes no progress raises an alert.",
            alerts.alert_exists("KeepfastStuckPartitions"),
        ),
        should(
            "keepfast:alerts.shutdown",
            "A shutdown that misses its deadline raises an alert.",
            alerts.app_alert_exists("KeepfastShutdownTimeout"),
        ),
        must("keepfast:image.user", "The container does not run as root.", image.not_root),
        must("keepfast:image.signals", "The container forwards SIGTERM to the consumer.", image.entry_point),
        should("keepfast:image.health", "The image has a health check of /health.", image.health_check),
        should("keepfast:image.port", "The image exposes the port of health and metrics.", image.port_exposed),
        should("keepfast:image.layers", "Dependencies have a layer of their own.", image.dependencies_first),
        should("keepfast:image.cache", "The image contains no pip cache.", image.no_pip_cache),
        should("keepfast:image.compiler", "The image contains no compiler.", image.no_compiler),
        should("keepfast:image.packages", "The image contains only required system packages.", image.few_packages),
        should("keepfast:image.context", "There is a .dockerignore.", project.dockerignore),
    ),
)
