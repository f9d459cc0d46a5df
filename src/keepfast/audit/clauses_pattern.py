"""The consumer pattern, how a consumer is built: layout, runner, configuration, image, retries, letters.

Where it numbers its rules, so do we. Its Kotlin and JVM parts are not for us.
"""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_errors as errors
from keepfast.audit import checks_groups as groups
from keepfast.audit import checks_image as image
from keepfast.audit import checks_letters as letters
from keepfast.audit import checks_project as project
from keepfast.audit import checks_settings as settings
from keepfast.audit.clause import Clause, must, outside, should

_BUILT_ELSEWHERE = outside(
    "Where an image is built cannot be seen in its files; ours needs nothing outside its folder."
)

PATTERN: Final[tuple[Clause, ...]] = (
    must("pattern:design.1", "Records of a partition run one after another.", groups.sequential),
    should("pattern:design.2", "A failed record is tried again in its place."),
    must("pattern:design.3", "Commits are manual, after success or a letter."),
    must("pattern:design.4", "Letters say all about the error."),
    must("pattern:design.5", "Signals end it gracefully."),
    must("pattern:package.1", "It is a package: pyproject.toml, src, tests.", project.is_a_package),
    must("pattern:package.2", "Beside the Dockerfile there is a .dockerignore.", project.dockerignore),
    should("pattern:package.3", "Flow and tasks are modules of their own.", project.layout),
    must(
        "pattern:package.4",
        "It depends on the shared package, with its import paths.",
        project.names_of_the_shared_package,
    ),
    must("pattern:package.5", "It has no classification and no back-off of its own."),
    must("pattern:package.6", "pyproject.toml has a command for it.", project.own_command),
    should("pattern:package.7", "Nobody bends PYTHONPATH, pytest included.", project.no_path_bent),
    should("pattern:components.1", "The consumer is the flow: it reads, retries, commits and ends."),
    should("pattern:components.2", "Messages are typed, and read from JSON.", groups.validated),
    should("pattern:components.3", "The processor may answer with success or an error."),
    should("pattern:components.4", "Failures to publish a letter are dealt with."),
    should("pattern:components.5", "Errors are classified by the standard."),
    should("pattern:components.6", "Back-off has jitter and respects rates."),
    should(
        "pattern:components.7", "Connections to PostgreSQL are pooled, and closed in order.", project.of_the_database
    ),
    must("pattern:runner.1", "The shared runner is used."),
    must(
        "pattern:runner.2",
        "It is imported from neotool_common, and so are classification and back-off.",
        project.names_of_the_shared_package,
    ),
    must("pattern:runner.3", "It takes the hooks by their names."),
    must("pattern:runner.4", "It logs what errors were taken for.", settings.logged_at("WARNING")),
    must("pattern:runner.5", "It ends by signals, and calls the hooks of health, flag and clean-up."),
    should("pattern:config.1", "Environment variables configure everything."),
    should("pattern:config.2", "Defaults serve locally."),
    should("pattern:config.3", "Configuration is typed."),
    should("pattern:config.4", "It is validated at the start."),
    should("pattern:config.5", ".env files serve locally."),
    must("pattern:config.6", "POSTGRES_HOST, _PORT, _DB, _USER and _PASSWORD are read.", project.of_the_database),
    must("pattern:config.7", "POSTGRES_POOL_MIN and _MAX are read; 2 and 10 by default.", project.of_the_database),
    must("pattern:config.8", "KAFKA_BROKERS, KAFKA_INPUT_TOPIC and KAFKA_CONSUMER_GROUP are read."),
    must("pattern:config.9", "The RETRY_* variables are read."),
    should(
        "pattern:config.10",
        "MAX_RETRIES, INITIAL_RETRY_DELAY_MS and MAX_RETRY_DELAY_MS are read, too.",
    ),
    must(
        "pattern:docker.1",
        "Packages of the system come from Alpine's package manager, users from its tools.",
        image.alpine_tools,
    ),
    must("pattern:docker.2", "There is a user that is not root.", image.not_root),
    must("pattern:docker.3", "The shared package is in the image.", image.installed),
    must("pattern:docker.4", "The consumer's code is in the image.", image.has_the_code),
    must("pattern:docker.5", "A health check asks /health.", image.health_check),
    must("pattern:docker.6", "Dependencies have a layer of their own.", image.dependencies_first),
    should("pattern:docker.7", "The image begins with Python on Alpine.", image.small_base),
    should(
        "pattern:docker.8",
        "It is asked every 30 s, has 10 s to answer and 40 s to start, and fails after 3 times.",
        image.health_timings,
    ),
    should("pattern:docker.9", "It starts by its own command, without a shell.", image.entry_point),
    should("pattern:docker.10", "Port 8080 is exposed.", image.port_exposed),
    must("pattern:docker.11", "The folder of the build holds the shared package, too.", _BUILT_ELSEWHERE),
    should("pattern:compose.1", "Consumers are in a compose file, with Kafka and PostgreSQL.", project.composed),
    should(
        "pattern:compose.2",
        "It sets brokers, topic, group, database and the port of health.",
        project.inside_the_compose_file,
    ),
    should("pattern:compose.3", "The consumer starts after both.", project.inside_the_compose_file),
    should("pattern:compose.4", "The consumer's health is checked there.", project.inside_the_compose_file),
    must(
        "pattern:health.1",
        "/health answers on port 8080, or HEALTH_CHECK_PORT.",
        settings.health_is_served,
    ),
    must("pattern:health.2", "It is 200 while the consumer is healthy.", settings.health_is_ours),
    should("pattern:health.3", "All consumers have it from one module."),
    must("pattern:security.1", "It runs as uid 1000.", image.uid_1000),
    should("pattern:security.2", "The image is small.", image.small_base),
    should("pattern:security.3", "pip keeps no cache.", image.no_pip_cache),
    should("pattern:security.4", "Requirements are copied before the code.", image.dependencies_first),
    should("pattern:security.5", "No more of the system is installed than is needed.", image.few_packages),
    should("pattern:build.1", "What must be compiled is compiled in a stage of its own.", image.no_compiler),
    should("pattern:build.2", "Dependencies come first, the code last.", image.dependencies_first),
    should("pattern:build.3", "The shared package has a layer before the code.", image.dependencies_first),
    should("pattern:build.4", "Requirements have a layer of their own.", image.dependencies_first),
    must("pattern:retry.1", "Retries are the standard's: classes, formula, defaults, letters, metrics."),
    must("pattern:retry.2", "429, 502, 503 and 504 are retried; 400, 401, 403 and 404 are final."),
    must("pattern:retry.3", "Connections to databases are retried, violated constraints final."),
    must("pattern:retry.4", "Networks and time-outs are retried, wrong values final."),
    must("pattern:retry.5", "Unknown errors are retried."),
    must("pattern:retry.6", "Delays are the formula's, in whole milliseconds."),
    must("pattern:retry.7", "Results, errors and retries are counted as they come."),
    must(
        "pattern:letters.1",
        "The dead-letter topic is <domain>.<entity>.dlq.",
        letters.letter_topics_as("standard"),
    ),
    must(
        "pattern:letters.2",
        "Letters have the standard's fields.",
        letters.letters_as("envelope", "the pattern"),
    ),
    must("pattern:practice.1", "Commits are manual."),
    should("pattern:practice.2", "Processing is idempotent.", groups.idempotent),
    should("pattern:practice.3", "Errors are dealt with at every level."),
    should("pattern:practice.4", "Everything is logged and counted."),
    should("pattern:practice.5", "Messages are validated before they are processed.", groups.validated),
    must("pattern:practice.6", "There is always a dead-letter topic."),
    should(
        "pattern:practice.7",
        "Passing errors are retried, validation errors not.",
        errors.final(ValueError),
    ),
    should("pattern:practice.8", "All metrics that matter are exposed.", settings.metrics_are_exposed),
    must(
        "pattern:python.1",
        "Databases are reached through a pool; connections go back, the pool is closed.",
        project.of_the_database,
    ),
    should(
        "pattern:python.2",
        "Calls of others are spaced, and retries respect that.",
        settings.rate_limited,
    ),
    should("pattern:python.3", "Errors are classified by type and status, unknown ones are retried."),
    should("pattern:python.4", "SIGTERM and SIGINT stop what is new; everything is closed at the end."),
    should("pattern:python.5", "Configuration is typed, has defaults, and is validated."),
    should(
        "pattern:python.6",
        "Where a rate is limited, records come one at a time.",
        settings.one_at_a_time,
    ),
    should(
        "pattern:python.7",
        "Lines of the log are structured, with the record's place, its time and its error.",
    ),
    should("pattern:python.8", "Databases are written in transactions, undone on errors.", project.of_the_database),
    must("pattern:python.9", "Letters have the message, the error, its class, the retries and the time."),
    should(
        "pattern:python.10",
        "Health is served by a thread of its own, for probes of liveness and readiness.",
        settings.health_is_ours,
    ),
)
