"""From what the user typed to every name that a project needs, or to a sentence that says why not."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass

from keepfast.core import names
from keepfast.core.errors import ConfigError

FUNCTION = "handle"
TAKEN = frozenset(
    {"keepfast", "psycopg", "pytest", "mypy", "click", "msgspec", "confluent_kafka", "kafka", "tests", "src"}
)
"""Packages beside which the new one could not be imported, or that its own tools have."""

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*", re.ASCII)
_LONGEST = 50
RULE = "use small letters, digits, hyphens and underscores, and begin with a letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectNames:
    """All names of a project; `of` makes them."""

    project: str
    package: str
    topic: str
    group: str
    dead_letter_topic: str

    @classmethod
    def of(cls, name: str, topic: str | None = None) -> ProjectNames:
        """Raises ConfigError with every problem."""
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
    """Why this cannot be the name of a project, as a sentence with what to do; None if it can."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        near = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-").lstrip("0123456789-")[:_LONGEST].strip("-")
        hint = f" How about {near}?" if near and name_problem(near) is None else ""
        return f"{name!r} cannot be the name of a project: {RULE}, at most {_LONGEST} characters.{hint}"
    package = name.replace("-", "_")
    if keyword.iskeyword(package) or package in sys.stdlib_module_names or package in TAKEN:
        return (
            f"{name!r} cannot be the name of a project: Python could not tell it from {package!r}, which exists"
            f" already. How about {name}-consumer?"
        )
    return None


def _topic_problem(topic: str) -> str | None:
    problem = names.topic_problem(topic)
    return f"--topic {problem}." if problem else None
