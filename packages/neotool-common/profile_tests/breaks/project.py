"""Breaks of what `keepfast new` writes, and of what helps with tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as copy
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from profile_tests.breaking import add, breaks, replace, wrap

from keepfast.scaffold import project
from keepfast.testing import broker
from keepfast.testing.harness.memory import TestSink


def write_instead(file: str, old: str, new: str) -> None:
    """In the template whose path ends so, every `old` is `new`."""

    def templates(*facts: Any) -> Iterator[tuple[PurePosixPath, str]]:
        for path, text in before(*facts):
            yield path, text.replace(old, new) if str(path).endswith(file) else text

    known = project._templates(files("keepfast.scaffold") / "template", PurePosixPath())
    assert any(old in text for path, text in known if str(path).endswith(file)), f"{file} has no {old!r}"
    before = replace(project, "_templates", templates)


def _written(evidence: str, name: str, file: str, old: str, new: str) -> None:
    add(evidence, name, lambda: write_instead(file, old, new))


for _evidence, _name, _file, _old, _new in [
    ("PROJECT", "the_group_is_misspelled", "README.md", "`{{group}}`", "`{{group}}x`"),
    ("PROJECT", "the_database_is_misspelled", "README.md", "`POSTGRES_HOST`", "`POSTGRES_HOSTx`"),
    ("PROJECT", "the_retries_are_misspelled", "README.md", "`RETRY_MAX_RETRIES`", "`RETRY_MAX_RETRIESx`"),
    ("PROJECT", "a_file_is_misspelled", "README.md", "tasks/db_connection.py", "tasks/connection.py"),
    ("PACKAGE", "its_command_has_a_window", "pyproject.toml", "[project.scripts]", "[project.gui-scripts]"),
    ("IMAGE", "its_image_is_large", "Dockerfile", "FROM python:3.13-slim", "FROM python:3.13"),
    ("IMAGE", "it_runs_as_root", "Dockerfile", "USER 1000:1000\n", ""),
    ("IMAGE", "its_user_has_another_number", "Dockerfile", "--uid 1000", "--uid 1001"),
    ("IMAGE", "its_health_is_not_asked_for", "Dockerfile", "'/health'", "'/'"),
    ("IMAGE", "its_health_is_asked_for_seldom", "Dockerfile", "--interval=30s", "--interval=90s"),
    ("IMAGE", "its_port_is_not_exposed", "Dockerfile", "EXPOSE 8080\n", ""),
    ("IMAGE", "pip_keeps_its_cache", "Dockerfile", "    PIP_NO_CACHE_DIR=1 \\\n", ""),
    ("IMAGE", "everything_is_copied_first", "Dockerfile", "COPY pyproject.toml README.md ./\n", "COPY . ./\n"),
    ("IMAGE", "a_shell_stands_before_it", "Dockerfile", 'ENTRYPOINT ["', 'ENTRYPOINT sh ["'),
    ("IMAGE", "secrets_go_into_the_image", ".dockerignore", ".env\n", ""),
    ("COMPOSE", "there_is_no_postgres", "compose.yaml", "\n  postgres:\n", "\n  postgresql:\n"),
    ("COMPOSE", "it_starts_before_postgres", "compose.yaml", "      postgres: { condition: service_healthy }\n", ""),
    *(
        ("COMPOSE", f"{name.lower()}_is_misspelled", "compose.yaml", f"{name}:", f"{name}X:")
        for name in ("KAFKA_BROKERS", "KAFKA_INPUT_TOPIC", "KAFKA_CONSUMER_GROUP", "POSTGRES_HOST", "HEALTH_CHECK_PORT")
    ),
    ("POOLED", "a_message_is_stored_twice", "tasks/database.py", "ON CONFLICT (id) DO NOTHING", ""),
    ("POOLED", "its_pool_is_not_closed", "tasks/database.py", "        pool.close()\n", "        pass\n"),
    ("POOL_SIZE", "a_pool_begins_larger", "tasks/config.py", '("POSTGRES_POOL_MIN", 2)', '("POSTGRES_POOL_MIN", 3)'),
    ("POOL_SIZE", "a_pool_is_larger", "tasks/config.py", '("POSTGRES_POOL_MAX", 10)', '("POSTGRES_POOL_MAX", 11)'),
    ("PROBES", "liveness_asks_for_readiness", "deploy/kubernetes.yaml", "/health/live", "/health/ready"),
]:
    _written(_evidence, _name, _file, _old, _new)


@breaks("HARNESS")
def values_are_lost_on_the_way() -> None:
    wrap(TestSink, "write", lambda before: lambda self, outgoing: before(self, copy(outgoing, value=b"")))


@breaks("FIXTURES")
def the_broker_is_not_started() -> None:
    replace(broker.KafkaBroker, "__enter__", lambda self: self)
