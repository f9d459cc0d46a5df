"""The timeout worker: a deal that is neither paid out nor refunded when its deadline passes is ended, and what was
deposited for it goes back.

Deadlines are rows, not records that wait: days pass until then, and a deal that is settled in time needs nothing. What
the worker sends it may send twice, if the process dies before the row says so: the keys are the same.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Self

from examples.database import Database

_OVERDUE = """
    SELECT id, funded FROM deals
    WHERE ends_at <= now() AND paid + refunded = 0 AND (ended_at IS NULL OR funded AND NOT refunding)
    ORDER BY ends_at LIMIT 100 FOR UPDATE SKIP LOCKED
"""
_ENDED = "UPDATE deals SET ended_at = coalesce(ended_at, now()), refunding = funded WHERE id = ANY(%s)"

logger = logging.getLogger(__name__)

Send = Callable[[str, bytes, str], None]
"""Topic, value, key; returns when the broker has acknowledged it."""


class TimeoutWorker:
    """Looks for overdue deals every `every_s`, in a thread of its own, while it is entered."""

    def __init__(self, database: Database, send: Send, *, every_s: float = 5.0) -> None:
        self._database = database
        self._send = send
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="timeout-worker", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self.end_overdue()
            except Exception:  # the database or the broker is unavailable: they are overdue the next time, too
                logger.exception("overdue_deals_wait")

    def end_overdue(self) -> None:
        with self._database.transaction() as connection:
            overdue = connection.execute(_OVERDUE).fetchall()
            for deal, funded in overdue:
                self._tell("deal.events", deal, f"{deal}/TIMEOUT", "DEAL_TIMED_OUT")
                if funded:
                    self._tell("escrow.commands", deal, f"{deal}/TIMEOUT/REFUND", "REFUND")
            if overdue:
                connection.execute(_ENDED, ([deal for deal, _ in overdue],))
                logger.info("deals_timed_out", extra={"deals": [deal for deal, _ in overdue]})

    def _tell(self, topic: str, deal: str, key: str, kind: str) -> None:
        self._send(topic, json.dumps({"idempotency_key": key, "deal_id": deal, "kind": kind}).encode(), deal)
