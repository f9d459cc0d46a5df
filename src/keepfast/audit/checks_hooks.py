"""Rules that keepfast keeps whatever an app says, but not for a runner whose own functions stand in its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from keepfast.audit import evidence as e
from keepfast.audit import evidence_around as a
from keepfast.audit.clause import Clause, Evidence, Finding, not_applicable
from keepfast.audit.subject import Subject

OWN_PUBLISHER: Final = "dlq_publisher writes the letters, and what they look like and where they go is in its code."
OWN_SERVER: Final = "health_server_start serves in place of keepfast"

_REPLACED: Final[Mapping[str, tuple[str, tuple[Evidence, ...]]]] = {
    "dlq_publisher": (OWN_PUBLISHER, (e.BYTES_KEPT, e.CAUSES, e.ENVELOPE, e.LETTER_TOPIC_MADE, e.REPLAYED)),
    "health_server_start": (f"{OWN_SERVER}.", (a.HEALTH,)),
}


def in_its_place(clause: Clause, subject: Subject) -> Finding | None:
    """None: nothing stands in the place of what keeps this rule."""
    for hook, (reason, evidence) in _REPLACED.items():
        if clause.evidence in evidence and any(hook in one.hooks for one in subject.consumers):
            return not_applicable(reason)
    return None
