"""Rules that keepfast guarantees for every app, but not for a runner whose hooks replace keepfast's code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from keepfast.audit.clause import Clause, Finding, not_applicable
from keepfast.audit.subject import Subject

OWN_PUBLISHER: Final = "dlq_publisher writes the letters; their format and topic depend on its code."
OWN_SERVER: Final = "health_server_start replaces keepfast's health server"

REPLACED: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "dlq_publisher": (
        OWN_PUBLISHER,
        frozenset(
            {
                "standard:2.3.4",
                "standard:9.2.2",
                "standard:9.2.3",
                "pattern:design.4",
                "pattern:practice.6",
                "pattern:python.9",
                "pattern:pitfalls.2",
                "pattern:medium.2",
                "fraud:context.4",
                "fraud:consequences.3",
                "spring:reprocessing.1",
                "spring:reprocessing.2",
                "spring:reprocessing.3",
                "spring:reprocessing.4",
            }
        ),
    ),
    "health_server_start": (f"{OWN_SERVER}.", frozenset({"pattern:health.3"})),
}
"""Hook → the reason, and the rules that it makes not applicable."""


def replaced_by_hook(clause: Clause, subject: Subject) -> Finding | None:
    """The finding if a hook replaces the code that guarantees this rule, otherwise None."""
    for hook, (reason, rules) in REPLACED.items():
        if clause.id in rules and any(hook in one.hooks for one in subject.consumers):
            return not_applicable(reason)
    return None
