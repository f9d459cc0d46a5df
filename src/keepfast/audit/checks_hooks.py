"""Rules that keepfast keeps whatever an app says, but not for a runner whose own functions stand in its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from keepfast.audit.clause import Clause, Finding, not_applicable
from keepfast.audit.subject import Subject

OWN_PUBLISHER: Final = "dlq_publisher writes the letters, and what they look like and where they go is in its code."
OWN_SERVER: Final = "health_server_start serves in place of keepfast"

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
"""By the hook: why nothing is known, and of which rules."""


def in_its_place(clause: Clause, subject: Subject) -> Finding | None:
    """None: nothing stands in the place of what keeps this rule."""
    for hook, (reason, rules) in REPLACED.items():
        if clause.id in rules and any(hook in one.hooks for one in subject.consumers):
            return not_applicable(reason)
    return None
