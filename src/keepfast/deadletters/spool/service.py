"""The spool's thread: all blocking operations run here."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from keepfast.core.errors import SpoolError
from keepfast.core.ports import Clock, OnKept, Sink
from keepfast.core.records import Outgoing
from keepfast.deadletters.spool.letters import letter_of
from keepfast.deadletters.spool.store import Head, Store
from keepfast.deadletters.spool.worker import Item, Keep, RetryNow, SpoolStatus, SpoolWorker
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.spool")


class SpoolService:
    """Implements `core.ports.Spool`; one for all consumers of a process. `sends`: see `SpoolWorker`."""

    def __init__(
        self, store: Store, sink: Sink, clock: Clock, *, sends: Callable[[Head], bool] = lambda _: True
    ) -> None:
        self._inbox: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._worker = SpoolWorker(store, sink, clock, self._inbox.put, sends=sends)
        self._thread = threading.Thread(target=self._run, name="keepfast-spool", daemon=True)
        self._lock = threading.Lock()  # guards `_closed`, so that nothing is queued after the last item
        self._closed = False

    def open(self) -> None:
        """Open the store (blocking), then start. Raises SpoolError."""
        self._worker.open()
        self._thread.start()

    def keep(self, outgoing: Outgoing, answer: OnKept) -> None:
        with self._lock:
            if not self._closed:
                self._inbox.put(Keep(outgoing, answer))
                return
        answer(SpoolError("The spool is closed."))

    def has(self, outgoing: Outgoing) -> bool:
        return self._worker.knows_some and self._worker.knows(letter_of(outgoing).identity)

    @property
    def status(self) -> SpoolStatus:
        return self._worker.status

    def try_again(self) -> None:
        """Retry at once, for example after an operator fixed the cause."""
        self._inbox.put(RetryNow())

    def stop_draining(self) -> None:
        """Stop sending letters; letters are still stored, and answers still processed."""
        self._worker.stop_draining()

    def close(self, timeout_s: float) -> None:
        """Process what was queued so far, for at most timeout_s; then close the store."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._worker.stop_draining()
            self._inbox.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        wait_s = 0.0
        while True:
            items = self._collect(wait_s)
            now = time.monotonic()
            try:
                self._worker.take([item for item in items if item is not None], now)
                wait_s = self._worker.step(now)
            except Exception as error:  # noqa: BLE001 - the thread's edge: a spool that does not answer would block lanes
                log.error("spool_failed", exc=error)  # noqa: TRY400 - our logger shows where it came from
                for item in items:
                    if isinstance(item, Keep):
                        item.answer(SpoolError(f"The spool failed: {type(error).__name__}."))
                wait_s = 1.0
            if None in items:
                self._worker.close()
                return

    def _collect(self, wait_s: float) -> list[Item | None]:
        """Wait for the first item, then take all."""
        items: list[Item | None] = []
        try:
            items.append(self._inbox.get(timeout=wait_s) if wait_s > 0 else self._inbox.get_nowait())
            while True:
                items.append(self._inbox.get_nowait())
        except queue.Empty:
            return items
