"""Derives all names of a project from the name that the user typed, and validates it."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass

from keepfast.core import names
from keepfast.core.errors import ConfigError

FUNCTION = "handle"
RESERVED = frozenset(
    {"keepfast", "psycopg", "pytest", "mypy", "click", "msgspec", "confluent_kafka", "kafka", "tests", "src"}
)
"""Packages that the new one would hide, or that its own tools need."""

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*", re.ASCII)
_MAX_LENGTH = 50
RULE = "use lower-case letters, digits, hyphens and underscores, and start with a letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectNames:
    """All names of a project, created by `of`."""

    project: str
    package: str
    topic: str
    group: str
    dead_letter_topic: str

    @classmethod
    def of(cls, name: str, topic: str | None = None) -> ProjectNames:
        """Derive the names. Raises ConfigError with all problems."""
        problems = [problem for problem in (name_problem(name), topic and _topic_problem(topic)) if problem]
        if problems:
            raise ConfigError(*problems)
        package = name.replace("-", "_")
        source = topic or f"{package}.event.v1"
        domain, entity = names.topic_parts(source, app=name)
        return cls(
            project=name,
            package=package,
            topic=source,
            group=names.default_group(name, FUNCTION),
            dead_letter_topic=f"{domain}.{entity}.dlq",
        )


def name_problem(name: str) -> str | None:
    """Why this cannot be the name of a project, and what to do; None if it can."""
    if not _NAME.fullmatch(name) or len(name) > _MAX_LENGTH:
        near = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-").lstrip("0123456789-")[:_MAX_LENGTH].strip("-")
        hint = f" Try {near}." if near and name_problem(near) is None else ""
        return f"{name!r} cannot be the name of a project: {RULE}, at most {_MAX_LENGTH} characters.{hint}"
    package = name.replace("-", "_")
    if keyword.iskeyword(package) or package in sys.stdlib_module_names or package in RESERVED:
        return (
            f"{name!r} cannot be the name of a project: it would conflict with {package!r}, a keyword or existing"
            f" package. Try {name}-consumer."
        )
    return None


def _topic_problem(topic: str) -> str | None:
    problem = names.topic_problem(topic)
    return f"--topic {problem}." if problem else None
