"""Rules that keepfast guarantees, except for a runner whose hooks replace the code concerned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from keepfast.audit.checks_settings import OWN_SERVER

OWN_PUBLISHER: Final = "dlq_publisher writes the letters; their format and topic depend on its code."

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
