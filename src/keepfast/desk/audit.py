"""Who did what at the desk: records of the audit topic, which are never deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from keepfast.core.records import Outgoing, Record
from keepfast.core.retry_topics import text, whole
from keepfast.deadletters.inline import from_json
from keepfast.desk.facts import one_of

Action = Literal[
    "replay",
    "resume",
    "pause",
    "cancel",
    "edit",
    "discard",
    "fail",
    "archive",
    "restore",
    "note",
    "reveal",
    "try",
    "export",
    "import",
    "purge",
    "replay-from",
    "control",
]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
MAX_TEXT: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One action. `by` is a name that the page has checked; of the command line it is `user@host`, unverified."""

    at_ms: int
    by: str
    action: Action
    topic: str = ""
    """The dead-letter topic."""
    count: int = 0
    """Cases or records."""
    why: str = ""
    what: str = ""
    """The selection, the case, or the run."""
    result: str = "done"
    via: Literal["command", "page", "api"] = "command"
    details: Mapping[str, Any] = field(default_factory=dict)

    def record(self, topic: str) -> Outgoing:
        fields = {
            "at": self.at_ms,
            "by": self.by,
            "action": self.action,
            "topic": self.topic,
            "count": self.count,
            "why": self.why,
            "what": self.what,
            "result": self.result,
            "via": self.via,
            "details": dict(self.details),
        }
        return Outgoing(topic, json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace"), partition=0)

    @classmethod
    def of(cls, record: Record) -> AuditEntry | None:
        """The entry in a record of the audit topic; None if it is none. Never raises."""
        fields = from_json(record.value) or {}
        at_ms = whole(fields.get("at"))
        action: Action | None = one_of(ACTIONS, fields.get("action"))
        if at_ms is None or action is None:
            return None
        details = fields.get("details")
        given = fields.get("via")
        return cls(
            at_ms=at_ms,
            by=text(fields.get("by"), MAX_TEXT),
            action=action,
            topic=text(fields.get("topic"), MAX_TEXT),
            count=whole(fields.get("count")) or 0,
            why=text(fields.get("why"), MAX_TEXT),
            what=text(fields.get("what"), MAX_TEXT),
            result=text(fields.get("result"), MAX_TEXT),
            via="page" if given == "page" else "api" if given == "api" else "command",
            details=details if isinstance(details, dict) else {},
        )
