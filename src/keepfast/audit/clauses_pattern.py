"""The consumer pattern, building a consumer: layout, runner, configuration, image, retries, dead letters.

Numbers are those of the document, where it has them. Its Kotlin and JVM parts are left out.
"""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_errors as errors
from keepfast.audit import checks_groups as groups
from keepfast.audit import checks_image as image
from keepfast.audit import checks_letters as letters
from keepfast.audit import checks_project as project
from keepfast.audit import checks_settings as settings
from keepfast.audit.clause import Clause, must, not_checkable, should

_BUILT_ELSEWHERE = not_checkable(
    "The files do not show where an image is built; ours needs nothing outside its folder."
)

PATTERN: Final[tuple[Clause, ...]] = (
    must("pattern:design.1", "Records of a partition run one after another.", groups.sequential),
    should("pattern:design.2", "A failed record is retried in place."),
    must("pattern:design.3", "Commits are manual, after success or dead-lettering."),
    must("pattern:design.4", "Dead letters describe the error completely."),
    must("pattern:design.5", "Signals cause a graceful shutdown."),
    must("pattern:package.1", "It is a package: pyproject.toml, src, tests.", project.is_a_package),
    must("pattern:package.2", "Beside the Dockerfile there is a .dockerignore.", project.dockerignore),
    should("pattern:package.3", "Flow and tasks are separate modules.", project.layout),
    must(
        "pattern:package.4",
        "It depends on the shared package, with its import paths.",
        project.names_of_the_shared_package,
    ),
    must("pattern:package.5", "It implements no classification and no back-off itself."),
    must("pattern:package.6", "pyproject.toml has a command for it.", project.own_command),
    should("pattern:package.7", "PYTHONPATH is not changed, pytest included.", project.no_pythonpath),
    should("pattern:components.1", "The consumer is the flow: it reads, retries, commits and shuts down."),
    should("pattern:components.2", "Messages are typed and parsed from JSON.", groups.validated),
    should("pattern:components.3", "The processor may return success or an error."),
    should("pattern:components.4", "Failures to publish a dead letter are handled."),
    should("pattern:components.5", "Errors are classified by the standard."),
    should("pattern:components.6", "Back-off has jitter and respects rates."),
    should(
        "pattern:components.7", "Connections to PostgreSQL are pooled, and closed at shutdown.", project.of_the_database
    ),
    must("pattern:runner.1", "The shared runner is used."),
    must(
        "pattern:runner.2",
        "It is imported from neotool_common, and so are classification and back-off.",
        project.names_of_the_shared_package,
    ),
    must("pattern:runner.3", "It takes the hooks by their names."),
    must("pattern:runner.4", "It logs the classification of errors.", settings.logged_at("WARNING")),
    must("pattern:runner.5", "It shuts down on signals, and calls the hooks for health, shutdown flag and cleanup."),
    should("pattern:config.1", "Environment variables configure everything."),
    should("pattern:config.2", "Defaults work locally."),
    should("pattern:config.3", "Configuration is typed."),
    should("pattern:config.4", "It is validated at startup."),
    should("pattern:config.5", ".env files are read locally."),
    must("pattern:config.6", "POSTGRES_HOST, _PORT, _DB, _USER and _PASSWORD are read.", project.of_the_database),
    must("pattern:config.7", "POSTGRES_POOL_MIN and _MAX are read; 2 and 10 by default.", project.of_the_database),
    must("pattern:config.8", "KAFKA_BROKERS, KAFKA_INPUT_TOPIC and KAFKA_CONSUMER_GROUP are read."),
    must("pattern:config.9", "The RETRY_* variables are read."),
    should(
        "pattern:config.10",
        "MAX_RETRIES, INITIAL_RETRY_DELAY_MS and MAX_RETRY_DELAY_MS are read too.",
    ),
    must(
        "pattern:docker.1",
        "System packages are installed with Alpine's package manager, users created with its tools.",
        image.alpine_tools,
    ),
    must("pattern:docker.2", "It runs as a non-root user.", image.not_root),
    must("pattern:docker.3", "The shared package is in the image.", image.installed),
    must("pattern:docker.4", "The consumer's code is in the image.", image.has_the_code),
    must("pattern:docker.5", "A health check requests /health.", image.health_check),
    must("pattern:docker.6", "Dependencies have a layer of their own.", image.dependencies_first),
    should("pattern:docker.7", "The base image is Python on Alpine.", image.small_base),
    should(
        "pattern:docker.8",
        "Its interval is 30 s, its timeout 10 s, its start period 40 s, with 3 retries.",
        image.health_timings,
    ),
    should("pattern:docker.9", "The entry point is its own command, without a shell.", image.entry_point),
    should("pattern:docker.10", "Port 8080 is exposed.", image.port_exposed),
    must("pattern:docker.11", "The build context contains the shared package.", _BUILT_ELSEWHERE),
    should("pattern:compose.1", "Consumers are in a compose file, with Kafka and PostgreSQL.", project.composed),
    should(
        "pattern:compose.2",
        "It sets brokers, topic, group, database and the health port.",
        project.inside_the_compose_file,
    ),
    should("pattern:compose.3", "The consumer starts after both.", project.inside_the_compose_file),
    should("pattern:compose.4", "It has a health check for the consumer.", project.inside_the_compose_file),
    must(
        "pattern:health.1",
        "/health is served on port 8080, or HEALTH_CHECK_PORT.",
        settings.health_is_served,
    ),
    must("pattern:health.2", "Its status is 200 while the consumer is healthy.", settings.health_is_ours),
    should("pattern:health.3", "All consumers share one health module."),
    must("pattern:security.1", "It runs as uid 1000.", image.uid_1000),
    should("pattern:security.2", "The image is small.", image.small_base),
    should("pattern:security.3", "There is no pip cache.", image.no_pip_cache),
    should("pattern:security.4", "Requirements are copied before the code.", image.dependencies_first),
    should("pattern:security.5", "Only required system packages are installed.", image.few_packages),
    should("pattern:build.1", "Code is compiled in a separate stage.", image.no_compiler),
    should("pattern:build.2", "Dependencies come first, the code last.", image.dependencies_first),
    should("pattern:build.3", "The shared package has a layer before the code.", image.dependencies_first),
    should("pattern:build.4", "Requirements have a layer of their own.", image.dependencies_first),
    must("pattern:retry.1", "Retries follow the standard: classification, formula, defaults, dead letters, metrics."),
    must("pattern:retry.2", "429, 502, 503 and 504 are retried; 400, 401, 403 and 404 are final."),
    must("pattern:retry.3", "Database connection errors are retried, constraint violations are final."),
    must("pattern:retry.4", "Network errors and timeouts are retried, validation errors are final."),
    must("pattern:retry.5", "Unknown errors are retried."),
    must("pattern:retry.6", "Delays follow the formula, in integer milliseconds."),
    must("pattern:retry.7", "Results, errors and retries are counted when they occur."),
    must(
        "pattern:letters.1",
        "The dead-letter topic is <domain>.<entity>.dlq.",
        letters.letter_topics_as("standard"),
    ),
    must(
        "pattern:letters.2",
        "Dead letters have the standard's fields.",
        letters.letters_as("envelope", "the pattern"),
    ),
    must("pattern:practice.1", "Commits are manual."),
    should("pattern:practice.2", "Processing is idempotent.", groups.idempotent),
    should("pattern:practice.3", "Errors are handled at every level."),
    should("pattern:practice.4", "Everything is logged and counted."),
    should("pattern:practice.5", "Messages are validated before they are processed.", groups.validated),
    must("pattern:practice.6", "There is always a dead-letter topic."),
    should(
        "pattern:practice.7",
        "Transient errors are retried, validation errors are not.",
        errors.final(ValueError),
    ),
    should("pattern:practice.8", "All relevant metrics are exposed.", settings.metrics_are_exposed),
    must(
        "pattern:python.1",
        "Databases are accessed through a pool; connections are returned, the pool is closed.",
        project.of_the_database,
    ),
    should(
        "pattern:python.2",
        "Calls to external services are rate-limited, and retries respect that.",
        settings.rate_limited,
    ),
    should("pattern:python.3", "Errors are classified by type and status, unknown ones are retried."),
    should("pattern:python.4", "SIGTERM and SIGINT stop new records; everything is closed at the end."),
    should("pattern:python.5", "Configuration is typed, has defaults, and is validated."),
    should(
        "pattern:python.6",
        "With a rate limit, records are fetched one at a time.",
        settings.one_at_a_time,
    ),
    should(
        "pattern:python.7",
        "Log lines are structured, with the record's position, time and error.",
    ),
    should("pattern:python.8", "Database writes are transactional, with rollback on errors.", project.of_the_database),
    must("pattern:python.9", "Dead letters have the message, the error, its classification, the retries and the time."),
    should(
        "pattern:python.10",
        "Health is served by a separate thread, for liveness and readiness probes.",
        settings.health_is_ours,
    ),
)
