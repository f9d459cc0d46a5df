"""What an app with inboxes does in the background: forgets old identities, and sends the outbox."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from keepfast.core.errors import StartError
from keepfast.core.inbox import retention_days
from keepfast.core.ports import Sink
from keepfast.inbox import tables
from keepfast.inbox.postgres import BoundInbox, first_line
from keepfast.inbox.relay import REFUSED_PAUSE_S, OutboxStatus, Relay
from keepfast.inbox.sqlite import SqliteInbox
from keepfast.telemetry import catalogue
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.metrics import Metric, MetricFamily, Sample
from keepfast.telemetry.state import OutboxState

log = get_logger("keepfast.inbox")

POLL_S: Final = 0.2
"""How often the outbox is looked at when nothing in this process has written to it."""
COUNT_INTERVAL_S: Final = 5.0
"""How often its rows are counted."""
RETRY_S: Final = 1.0
PRUNE_FIRST_S, PRUNE_EVERY_S = 60.0, 3600.0
PRUNE_STEPS: Final = 100
"""Statements of one cleaning, of 10,000 rows at most; what is left is for the next one."""
PRUNE_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Pruned:
    """An inbox whose old identities are removed in the background."""

    inbox: Any
    retention_days: float

    @classmethod
    def of(cls, inbox: Any) -> Pruned:
        return cls(inbox, retention_days(inbox))

    def before(self, now: datetime) -> datetime:
        return now - timedelta(days=self.retention_days)


class InboxService:
    """One thread an app process. `event_loop` is that of the handlers, for inboxes whose methods are coroutines.

    `prepare` blocks, before the consumers start; `start` and `stop` are called once each, by the owner of the app's
    life. `status` is None without an outbox.
    """

    def __init__(
        self,
        inboxes: Sequence[Any],
        app: str,
        event_loop: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None,
    ) -> None:
        self._inboxes = [Pruned.of(one) for one in {id(one): one for one in inboxes}.values()]
        self._app = app
        self._event_loop = event_loop
        databases = [one for one in inboxes if isinstance(one, BoundInbox)]
        self._databases = databases
        self._outbox = next((one for one in databases if one.outbox), None)
        self.status = None if self._outbox is None else OutboxStatus()
        self._relay: Relay | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    @property
    def outbox(self) -> OutboxState | None:
        """For others to look at; None without an outbox."""
        status = self.status
        if status is None:
            return None
        return OutboxState(
            rows=status.fill.rows,
            age_s=status.fill.oldest_s,
            sent=status.sent,
            failures=status.failures,
            leads=status.leads,
            refused=status.refused,
            unreachable=status.unreachable,
        )

    def families(self) -> list[MetricFamily]:
        """Metrics of the outbox."""
        state = self.outbox
        if state is None:
            return []
        values: list[tuple[Metric, float]] = [
            (catalogue.OUTBOX_ROWS, state.rows),
            (catalogue.OUTBOX_AGE, state.age_s or 0.0),
            (catalogue.OUTBOX_SENT, state.sent),
            (catalogue.OUTBOX_FAILURES, state.failures),
        ]
        return [MetricFamily.of(metric, [Sample((), value)]) for metric, value in values]

    def wake(self) -> None:
        """Something was written to the outbox. Any thread; never blocks."""
        self._wake.set()

    def prepare(self) -> None:
        """Make tables that are missing. Raises StartError."""
        for pruned in self._inboxes:
            if isinstance(pruned.inbox, SqliteInbox):
                pruned.inbox.prepare()
        if not self._databases:
            return  # and no driver is needed
        import psycopg

        try:
            for one in {one.pool.conninfo: one for one in self._databases}.values():
                with one.connect() as connection:
                    tables.ensure(connection, outbox=self._outbox is not None)
                    self._warn_of_loss(connection)
        except psycopg.Error as error:
            raise StartError(f"The inbox in PostgreSQL cannot be used: {first_line(error)}.") from error

    def relay(self, sink: Sink) -> Relay | None:
        """What sends the outbox with this sink; None if there is no outbox."""
        if self._outbox is None or self.status is None:
            return None
        return Relay(self._outbox.connect, sink, self._app, self.status)

    def start(self, sink: Sink) -> None:
        """`sink` is where the outbox is sent to."""
        self._relay = self.relay(sink)
        self._thread = threading.Thread(target=self._run, name="keepfast-inbox", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """What is on its way is answered or left for the next process."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        prune_at, count_at = time.monotonic() + PRUNE_FIRST_S, 0.0
        while not self._stopping:
            now = time.monotonic()
            if now >= prune_at:
                prune_at = now + PRUNE_EVERY_S
                self._prune()
            count_at, pause_s = self._relay_once(now, count_at)
            if self._wake.wait(pause_s):
                self._wake.clear()
        if self._relay is not None:
            self._relay.close()

    def _relay_once(self, now: float, count_at: float) -> tuple[float, float]:
        """Returns when to count again, and how long to wait for the next rows."""
        relay, status = self._relay, self.status
        if relay is None or status is None:
            return count_at, RETRY_S
        try:
            sent = relay.step()
            if now >= count_at:
                relay.look()
                count_at = now + COUNT_INTERVAL_S
            status.unreachable = ""
        except Exception as error:  # noqa: BLE001 - the thread's edge: the database is tried again
            if not status.unreachable:
                log.warning("outbox_unreachable", error=error, consequence="its rows wait until it can be read")
            status.unreachable = first_line(error)
            relay.close()
            return count_at, RETRY_S
        pause_s = REFUSED_PAUSE_S if status.refused else POLL_S
        return count_at, 0.0 if sent else pause_s

    def _prune(self) -> None:
        for one in self._inboxes:
            try:
                removed = self._prune_one(one)
            except Exception as error:  # noqa: BLE001 - the thread's edge: it is tried again an hour later
                log.warning("inbox_not_pruned", error=error, consequence="old identities stay until the next try")
                continue
            if removed:
                log.info("inbox_pruned", identities=removed, older_than_days=one.retention_days)

    def _prune_one(self, one: Pruned) -> int:
        removed, before = 0, one.before(datetime.now(UTC))
        for _ in range(PRUNE_STEPS):
            count = self._called(one.inbox.prune, before)
            removed += count
            if not count or self._stopping:
                break
            time.sleep(PRUNE_PAUSE_S)
        return removed

    def _called(self, prune: Callable[[datetime], Any], before: datetime) -> int:
        if not inspect.iscoroutinefunction(prune):
            return int(prune(before))
        loop = self._event_loop()
        if loop is None or loop.is_closed():
            return 0
        return int(asyncio.run_coroutine_threadsafe(prune(before), loop).result(60.0))

    def _warn_of_loss(self, connection: Any) -> None:
        """A commit that is not on disk can be lost with the server, after the record's offset is committed."""
        if connection.execute("SHOW synchronous_commit").fetchone()[0] == "off":
            log.warning(
                "inbox_may_lose_commits",
                why="synchronous_commit is off in PostgreSQL",
                consequence="a crash of the server may lose effects of records that are finished; set it to on",
            )
