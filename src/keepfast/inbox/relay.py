"""Sends the rows of the outbox. Owner: the thread of `InboxService`, or of a command."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from keepfast.core.errors import SinkError
from keepfast.core.ports import Sink
from keepfast.core.records import Outgoing, Receipt
from keepfast.inbox import tables
from keepfast.inbox.outbox import event_of
from keepfast.telemetry.clean import clean_message
from keepfast.telemetry.logs import LEVELS, get_logger

log = get_logger("keepfast.outbox")

PAGE_ROWS: Final = 1_000
PAGE_BYTES: Final = 16 * 1024 * 1024
REPLY_TIMEOUT_S: Final = 120.0
"""Longer than the producer's own limit: every send is answered by then."""
REFUSED_PAUSE_S: Final = 2.0
"""After an event that Kafka refused, before its key is tried again."""

_READ = (
    "SELECT id, event_id, topic, key, value, headers FROM keepfast_outbox WHERE app = %s AND id > %s"
    " ORDER BY id LIMIT %s"
)


@dataclass(slots=True)
class OutboxStatus:
    """What is known of the outbox; written by the relay's thread, read by any."""

    fill: tables.TableFill = field(default_factory=lambda: tables.TableFill(0, None))
    sent: int = 0
    failures: int = 0
    refused: str = ""
    """Why the last event was refused, while it is."""
    unreachable: str = ""
    """Why the database cannot be read, while it cannot."""
    leads: bool = False


@dataclass(frozen=True, slots=True)
class OutboxRow:
    id: int
    event: Outgoing

    @property
    def lane(self) -> Hashable:
        """Rows of one lane are sent in order; those without a key in any."""
        return self.id if self.event.key is None else (self.event.topic, self.event.key)


def lock_key(app: str) -> int:
    """Of the advisory lock of this app's outbox."""
    digest = blake2b(app.encode(), digest_size=8, person=b"keepfast-outbox").digest()
    return int.from_bytes(digest, "big", signed=True)


class Relay:
    """Sends rows in the order of their ids, one key after another: the next row of a key is sent when the one before is
    acknowledged. A row is removed when it is acknowledged, so a crash in between sends it again.

    One process of an app does it: the holder of an advisory lock, which ends with its connection. A row that Kafka
    refuses blocks its key, and is tried again.
    """

    def __init__(self, connect: Callable[[], Any], sink: Sink, app: str, status: OutboxStatus) -> None:
        self._connect = connect
        self._sink = sink
        self._app = app
        self.status = status
        self._connection: Any = None
        self._after = 0  # rows up to this id belong to lanes that are blocked
        self._blocked: set[Hashable] = set()  # lanes with a row that was refused, until the next pass

    def step(self) -> int:
        """Send a page of rows; returns how many were read. 0: there are no more, or another process sends them. Blocks
        until all are answered. Raises psycopg.Error when the database cannot be used; call it again later.
        """
        if not self._lead():
            return 0
        rows = self._read()
        if not rows:
            if not self._blocked:
                self.status.refused = ""
            self._after, self._blocked = 0, set()
            return 0
        page = _Page([row for row in rows if row.lane not in self._blocked], self._sink)
        answers = page.send()
        done = [one for one, answer in answers.items() if isinstance(answer, Receipt)]
        if done:
            self._connection.execute("DELETE FROM keepfast_outbox WHERE id = ANY(%s)", (done,))
            self.status.sent += len(done)
        self._note([answer for answer in answers.values() if isinstance(answer, SinkError)])
        self._blocked.update(page.unsent)
        if self._blocked:
            self._after = rows[-1].id
        return len(rows)

    def look(self) -> None:
        """Refresh the counts. Raises psycopg.Error."""
        self.status.fill = tables.outbox_fill(self._opened(), self._app)

    def close(self) -> None:
        """Give up the lock and the connection."""
        connection, self._connection, self.status.leads = self._connection, None, False
        if connection is not None:
            connection.close()

    def _opened(self) -> Any:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _lead(self) -> bool:
        if not self.status.leads:
            found = self._opened().execute("SELECT pg_try_advisory_lock(%s)", (lock_key(self._app),)).fetchone()
            self.status.leads = bool(found[0])
        return self.status.leads

    def _read(self) -> list[OutboxRow]:
        rows: list[OutboxRow] = []
        size = 0
        for number, event_id, topic, key, value, headers in self._opened().execute(
            _READ, (self._app, self._after, PAGE_ROWS)
        ):
            rows.append(OutboxRow(number, event_of(event_id, topic, _bytes(key), _bytes(value), bytes(headers))))
            size += len(rows[-1].event.value or b"")
            if size > PAGE_BYTES:
                break
        return rows

    def _note(self, failed: Sequence[SinkError]) -> None:
        self.status.failures += len(failed)
        if failed:
            self.status.refused = clean_message(failed[0])
            text = "these rows stay in the outbox and are sent again"
            log.sampled(
                LEVELS["error"],
                "outbox_send_failed",
                now=time.monotonic(),
                key=failed[0].code,
                rows=len(failed),
                error=failed[0],
                consequence=text,
            )


class _Page:
    """Rows on their way. Answers come on the thread of the sink."""

    def __init__(self, rows: Sequence[OutboxRow], sink: Sink) -> None:
        self._rows = rows
        self._sink = sink
        self._lanes: dict[Hashable, deque[OutboxRow]] = defaultdict(deque)
        for row in rows:
            self._lanes[row.lane].append(row)
        self._changed = threading.Condition()  # guards what follows
        self._answers: dict[int, Receipt | SinkError] = {}
        self._busy = len(self._lanes)  # lanes with a row on its way

    def send(self) -> dict[int, Receipt | SinkError]:
        """Of each row that was sent, the answer. Rows behind one that failed are not sent."""
        for lane in list(self._lanes.values()):
            self._send(lane)
        with self._changed:
            self._changed.wait_for(lambda: self._busy == 0, REPLY_TIMEOUT_S)
            return dict(self._answers)

    @property
    def unsent(self) -> set[Hashable]:
        """Lanes with rows that are not acknowledged."""
        with self._changed:
            return {row.lane for row in self._rows if not isinstance(self._answers.get(row.id), Receipt)}

    def _send(self, lane: deque[OutboxRow]) -> None:
        row = lane.popleft()
        self._sink.send(row.event, lambda answer: self._answered(lane, row, answer))

    def _answered(self, lane: deque[OutboxRow], row: OutboxRow, answer: Receipt | SinkError) -> None:
        with self._changed:
            self._answers[row.id] = answer
            more = bool(lane) and isinstance(answer, Receipt)
            if not more:
                self._busy -= 1
                self._changed.notify_all()
        if more:
            self._send(lane)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
