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
from keepfast.audit import evidence as e
from keepfast.audit import evidence_around as a
from keepfast.audit.clause import Clause, must, outside, should

_BUILT_ELSEWHERE = outside(
    "Where an image is built cannot be seen in its files; ours needs nothing outside its folder."
)

PATTERN: Final[tuple[Clause, ...]] = (
    must("pattern:design.1", "Records of a partition run one after another.", e.PARTITION_ORDER, groups.sequential),
    should("pattern:design.2", "A failed record is tried again in its place.", e.RETRIED),
    must("pattern:design.3", "Commits are manual, after success or a letter.", e.COMMITTED_AFTER),
    must("pattern:design.4", "Letters say all about the error.", e.ENVELOPE),
    must("pattern:design.5", "Signals end it gracefully.", e.DRAINED),
    must("pattern:package.1", "It is a package: pyproject.toml, src, tests.", a.PACKAGE, project.is_a_package),
    must("pattern:package.2", "Beside the Dockerfile there is a .dockerignore.", a.IMAGE, project.dockerignore),
    should("pattern:package.3", "Flow and tasks are modules of their own.", a.PROJECT, project.layout),
    must("pattern:package.4", "It depends on the shared package, with its import paths.", a.SHIM),
    must("pattern:package.5", "It has no classification and no back-off of its own.", a.SHARED_RULES),
    must("pattern:package.6", "pyproject.toml has a command for it.", a.IMAGE, project.own_command),
    should("pattern:package.7", "Nobody bends PYTHONPATH, pytest included.", a.PACKAGE, project.no_path_bent),
    should("pattern:components.1", "The consumer is the flow: it reads, retries, commits and ends.", a.RUNNER),
    should("pattern:components.2", "Messages are typed, and read from JSON.", e.DECODED, groups.validated),
    should("pattern:components.3", "The processor may answer with success or an error.", a.ANSWERS),
    should("pattern:components.4", "Failures to publish a letter are dealt with.", e.PUBLISHED_AGAIN),
    should("pattern:components.5", "Errors are classified by the standard.", a.SHARED_RULES),
    should("pattern:components.6", "Back-off has jitter and respects rates.", a.BACKOFF),
    should("pattern:components.7", "Connections to PostgreSQL are pooled, and closed in order.", a.POOLED),
    must("pattern:runner.1", "The shared runner is used.", a.RUNNER),
    must("pattern:runner.2", "It is imported from neotool_common, and so are classification and back-off.", a.SHIM),
    must("pattern:runner.3", "It takes the hooks by their names.", a.HOOKS),
    must("pattern:runner.4", "It logs what errors were taken for.", a.LOGGED, settings.logged_at("WARNING")),
    must("pattern:runner.5", "It ends by signals, and calls the hooks of health, flag and clean-up.", a.ENDS_IN_ORDER),
    should("pattern:config.1", "Environment variables configure everything.", e.ONE_PLACE),
    should("pattern:config.2", "Defaults serve locally.", e.DEFAULTS),
    should("pattern:config.3", "Configuration is typed.", e.TYPED),
    should("pattern:config.4", "It is validated at the start.", e.CHECKED_WHOLE),
    should("pattern:config.5", ".env files serve locally.", e.DOTENV),
    must("pattern:config.6", "POSTGRES_HOST, _PORT, _DB, _USER and _PASSWORD are read.", a.POOLED),
    must("pattern:config.7", "POSTGRES_POOL_MIN and _MAX are read; 2 and 10 by default.", a.POOL_SIZE),
    must("pattern:config.8", "KAFKA_BROKERS, KAFKA_INPUT_TOPIC and KAFKA_CONSUMER_GROUP are read.", e.VARIABLES),
    must("pattern:config.9", "The RETRY_* variables are read.", e.VARIABLES),
    should(
        "pattern:config.10",
        "MAX_RETRIES, INITIAL_RETRY_DELAY_MS and MAX_RETRY_DELAY_MS are read, too.",
        e.VARIABLES,
    ),
    must(
        "pattern:docker.1",
        "Packages of the system come from Alpine's package manager, users from its tools.",
        a.IMAGE,
        image.alpine_tools,
    ),
    must("pattern:docker.2", "There is a user that is not root.", a.IMAGE, image.not_root),
    must("pattern:docker.3", "The shared package is in the image.", a.IMAGE, image.installed),
    must("pattern:docker.4", "The consumer's code is in the image.", a.IMAGE, image.has_the_code),
    must("pattern:docker.5", "A health check asks /health.", a.IMAGE, image.health_check),
    must("pattern:docker.6", "Dependencies have a layer of their own.", a.IMAGE, image.dependencies_first),
    should("pattern:docker.7", "The image begins with Python on Alpine.", a.IMAGE, image.small_base),
    should(
        "pattern:docker.8",
        "It is asked every 30 s, has 10 s to answer and 40 s to start, and fails after 3 times.",
        a.IMAGE,
        image.health_timings,
    ),
    should("pattern:docker.9", "It starts by its own command, without a shell.", a.IMAGE, image.entry_point),
    should("pattern:docker.10", "Port 8080 is exposed.", a.IMAGE, image.port_exposed),
    must("pattern:docker.11", "The folder of the build holds the shared package, too.", a.IMAGE, _BUILT_ELSEWHERE),
    should(
        "pattern:compose.1", "Consumers are in a compose file, with Kafka and PostgreSQL.", a.COMPOSE, project.composed
    ),
    should("pattern:compose.2", "It sets brokers, topic, group, database and the port of health.", a.COMPOSE),
    should("pattern:compose.3", "The consumer starts after both.", a.COMPOSE),
    should("pattern:compose.4", "The consumer's health is checked there.", a.IMAGE),
    must(
        "pattern:health.1",
        "/health answers on port 8080, or HEALTH_CHECK_PORT.",
        e.HEALTH_PORT,
        settings.health_is_served,
    ),
    must("pattern:health.2", "It is 200 while the consumer is healthy.", a.HEALTH, settings.health_is_ours),
    should("pattern:health.3", "All consumers have it from one module.", a.HEALTH),
    must("pattern:security.1", "It runs as uid 1000.", a.IMAGE, image.uid_1000),
    should("pattern:security.2", "The image is small.", a.IMAGE, image.small_base),
    should("pattern:security.3", "pip keeps no cache.", a.IMAGE, image.no_pip_cache),
    should("pattern:security.4", "Requirements are copied before the code.", a.IMAGE, image.dependencies_first),
    should("pattern:security.5", "No more of the system is installed than is needed.", a.IMAGE, image.few_packages),
    should("pattern:build.1", "What must be compiled is compiled in a stage of its own.", a.IMAGE, image.no_compiler),
    should("pattern:build.2", "Dependencies come first, the code last.", a.IMAGE, image.dependencies_first),
    should("pattern:build.3", "The shared package has a layer before the code.", a.IMAGE, image.dependencies_first),
    should("pattern:build.4", "Requirements have a layer of their own.", a.IMAGE, image.dependencies_first),
    must("pattern:retry.1", "Retries are the standard's: classes, formula, defaults, letters, metrics.", e.ROUTED),
    must("pattern:retry.2", "429, 502, 503 and 504 are retried; 400, 401, 403 and 404 are final.", a.SHARED_RULES),
    must("pattern:retry.3", "Connections to databases are retried, violated constraints final.", a.SHARED_RULES),
    must("pattern:retry.4", "Networks and time-outs are retried, wrong values final.", a.SHARED_RULES),
    must("pattern:retry.5", "Unknown errors are retried.", a.SHARED_RULES),
    must("pattern:retry.6", "Delays are the formula's, in whole milliseconds.", a.BACKOFF),
    must("pattern:retry.7", "Results, errors and retries are counted as they come.", a.COUNTED),
    must(
        "pattern:letters.1",
        "The dead-letter topic is <domain>.<entity>.dlq.",
        e.LETTER_NAMES,
        letters.letter_topics_as("standard"),
    ),
    must(
        "pattern:letters.2",
        "Letters have the standard's fields.",
        e.ENVELOPE,
        letters.letters_as("envelope", "the pattern"),
    ),
    must("pattern:practice.1", "Commits are manual.", e.MANUAL),
    should("pattern:practice.2", "Processing is idempotent.", e.DECLARED, groups.idempotent),
    should("pattern:practice.3", "Errors are dealt with at every level.", e.NEVER_RAISES),
    should("pattern:practice.4", "Everything is logged and counted.", a.COUNTED),
    should("pattern:practice.5", "Messages are validated before they are processed.", e.DECODED, groups.validated),
    must("pattern:practice.6", "There is always a dead-letter topic.", e.LETTER_TOPIC_MADE),
    should(
        "pattern:practice.7",
        "Passing errors are retried, validation errors not.",
        a.SHARED_RULES,
        errors.final(ValueError),
    ),
    should("pattern:practice.8", "All metrics that matter are exposed.", a.EXPOSED, settings.metrics_are_exposed),
    must(
        "pattern:python.1", "Databases are reached through a pool; connections go back, the pool is closed.", a.POOLED
    ),
    should(
        "pattern:python.2",
        "Calls of others are spaced, and retries respect that.",
        e.RATE,
        settings.rate_limited,
    ),
    should("pattern:python.3", "Errors are classified by type and status, unknown ones are retried.", a.SHARED_RULES),
    should("pattern:python.4", "SIGTERM and SIGINT stop what is new; everything is closed at the end.", e.SIGNALS),
    should("pattern:python.5", "Configuration is typed, has defaults, and is validated.", e.CHECKED_WHOLE),
    should(
        "pattern:python.6",
        "Where a rate is limited, records come one at a time.",
        e.RATE,
        settings.one_at_a_time,
    ),
    should(
        "pattern:python.7",
        "Lines of the log are structured, with the record's place, its time and its error.",
        a.STRUCTURED,
    ),
    should("pattern:python.8", "Databases are written in transactions, undone on errors.", a.POOLED),
    must("pattern:python.9", "Letters have the message, the error, its class, the retries and the time.", e.ENVELOPE),
    should(
        "pattern:python.10",
        "Health is served by a thread of its own, for probes of liveness and readiness.",
        a.PROBES,
        settings.health_is_ours,
    ),
)
