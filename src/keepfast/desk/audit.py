"""Who did what at the desk: records of the audit topic, which are never deleted."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Full, Queue
from typing import Any, Final, Literal, Self, get_args

from keepfast.core.errors import Fault, PortError
from keepfast.core.records import Outgoing, Record
from keepfast.core.retry_topics import text, whole
from keepfast.deadletters.inline import from_json
from keepfast.desk.cluster import AUDIT_CONFIG, DeskCluster
from keepfast.desk.facts import one_of
from keepfast.kafka.config import Connection
from keepfast.settings import Settings
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.state import ControlDone

log = get_logger("keepfast.desk")

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
    "offsets",
    "control",
]
Via = Literal["command", "page", "api", "code"]
VIAS: Final[tuple[Via, ...]] = get_args(Via)
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
MAX_TEXT: Final = 2_000
MAX_WAITING: Final = 1_000
RETRY_S: Final = 5.0


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
    via: Via = "command"
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_control(cls, done: ControlDone, at_ms: int) -> AuditEntry:
        """The entry about an order to a running consumer."""
        return cls(
            at_ms=at_ms,
            by=done.by,
            action="control",
            count=1,
            why=done.why,
            what=done.what,
            result=done.result,
            via=done.via,
        )

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
        return cls(
            at_ms=at_ms,
            by=text(fields.get("by"), MAX_TEXT),
            action=action,
            topic=text(fields.get("topic"), MAX_TEXT),
            count=whole(fields.get("count")) or 0,
            why=text(fields.get("why"), MAX_TEXT),
            what=text(fields.get("what"), MAX_TEXT),
            result=text(fields.get("result"), MAX_TEXT),
            via=one_of(VIAS, fields.get("via")) or "command",
            details=details if isinstance(details, dict) else {},
        )


@dataclass(slots=True)
class AuditedAction:
    """An action under way, for `Desk.audited`: how it ended, and if it fails, what was done before."""

    result: str = "done"
    count: int = 0
    """Cases or records; of an action that fails, those that are known to be done, or all that were meant."""
    done: str = ""
    """What has been done so far, in words."""
    details: dict[str, object] = field(default_factory=dict)


class ControlAudit:
    """Writes the orders that the consumers of this process have carried out to the audit topic, on a thread of its own,
    which the first order starts. While the brokers are silent it tries again: control does not wait for them.

    Any thread may call `note`, which does not block; the owner of the app's or runner's life calls `stop`.
    """

    def __init__(self, connection: Connection, topic: str, *, wall: Callable[[], float] = time.time) -> None:
        self._cluster = DeskCluster(connection)
        self._topic = topic
        self._wall = wall
        self._entries: Queue[AuditEntry | None] = Queue(MAX_WAITING)
        self._lock = threading.Lock()  # of starting the thread
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    @classmethod
    def of(cls, connection: Connection | None, settings: Settings) -> Self | None:
        """For the audit topic of these settings; None without a connection."""
        return None if connection is None else cls(connection, f"{settings.desk.topic}.audit")

    def note(self, done: ControlDone) -> None:
        entry = AuditEntry.of_control(done, round(self._wall() * 1000))
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="keepfast-audit", daemon=True)
                self._thread.start()
        try:
            self._entries.put_nowait(entry)
        except Full:
            log_lost(entry, f"{MAX_WAITING} others wait already")

    def stop(self, timeout_s: float) -> None:
        """Write what waits, within this time."""
        self._ended.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            with suppress(Full):
                self._entries.put_nowait(None)
            thread.join(timeout_s)

    def _run(self) -> None:
        while (entry := self._entries.get()) is not None:
            self._write(entry)
        self._cluster.close()

    def _write(self, entry: AuditEntry) -> None:
        while True:
            try:
                if self._cluster.topics([self._topic])[self._topic] is None:
                    self._cluster.create(self._topic, config=AUDIT_CONFIG)
                self._cluster.write([entry.record(self._topic)])
            except PortError as error:
                if error.fault is not Fault.RETRY or self._ended.wait(RETRY_S):
                    log_lost(entry, str(error))
                    return
            else:
                return


def log_lost(entry: AuditEntry, why: str) -> None:
    """Log an entry that could not be written."""
    log.error("audit_not_written", what=entry.what, by=entry.by, why=entry.why, result=entry.result, error=why)
