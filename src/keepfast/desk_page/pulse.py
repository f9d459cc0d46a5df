"""Reads Kafka while pages are open, and notices when it cannot be read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from keepfast.core.errors import Fault, KeepfastError, SourceError
from keepfast.desk.cluster import DeskCluster
from keepfast.desk_page.wording import when
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.desk_page")

POLL_INTERVAL_S: Final = 1.0
"""How often Kafka is asked for what is new while a page is open."""
SILENCE_TIMEOUT_S: Final = 2.0
"""A page waits this long for an answer of the brokers before it shows what the index has."""
OUTAGE_TIMEOUT_S: Final = 0.3
"""The same during an outage: long enough for brokers that answer again."""
PROBE_S: Final = 3.0
RENEW_AFTER: Final = 3
"""Failures in a row after which the clients are replaced; and again after as many."""
ALIVE_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Outage:
    """Kafka cannot be read since a time. `reason`: the error; empty if the brokers are silent."""

    since_ms: int
    reason: str = ""


def refuse_in_outage(outage: Outage | None) -> None:
    """Raises SourceError if there is one."""
    if outage is not None:
        why = outage.reason or f"The brokers have been silent since {when(outage.since_ms)} UTC."
        raise SourceError(f"{why} Nothing was done; try again when they answer.", fault=Fault.RETRY, code="SILENT")


class Pulse:
    """Reads Kafka while pages are open, and counts changes. One event loop.

    `read` reads what is new and returns something that differs when there was something; it runs on a thread, and
    pages wait for it only while the brokers answer. `outage` is what keeps it from reading; None if nothing does.
    """

    def __init__(self, read: Callable[[], object], cluster: DeskCluster) -> None:
        self._read = read
        self._cluster = cluster
        self._reading: asyncio.Task[None] | None = None
        self._seen: object = None
        self._began = self._ended = self._acted_at = float("-inf")
        self._began_ms = 0
        self._failures = 0
        self.outage: Outage | None = None
        self.version = 0
        self.streams = 0

    async def now(self) -> int:
        """The number of the last change; reads first if the last reading is old."""
        self._begin_if_due()
        asked_at = time.monotonic()
        while (reading := self._reading) is not None:
            left_s = (
                asked_at + OUTAGE_TIMEOUT_S
                if self.outage is not None
                else max(self._began, self._cluster.answered_at) + SILENCE_TIMEOUT_S
            ) - time.monotonic()
            if left_s <= 0:
                break
            await asyncio.wait({reading}, timeout=left_s)
            self._begin_if_due()
        if self._reading is not None and self.outage is None and self._cluster.unanswered_s() >= SILENCE_TIMEOUT_S:
            self._cluster.note_silence()
            self._set_outage(Outage(self._began_ms))
        return self.version

    def expire(self) -> None:
        """The next page must show what was done just now."""
        self._acted_at = time.monotonic()

    def _begin_if_due(self) -> None:
        now = time.monotonic()
        if self._reading is None and (now - self._ended >= POLL_INTERVAL_S or self._began < self._acted_at):
            self._began, self._began_ms = now, round(time.time() * 1000)
            self._reading = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            seen = await run_in_threadpool(self._probed)
        except KeepfastError as error:
            self._failed("" if self._cluster.silent_since is not None else str(error))
        except Exception as error:  # noqa: BLE001 - the task's edge: it is logged, and shown on every page
            log.error("desk_reading_failed", exc=error)  # noqa: TRY400 - our log lines carry it
            self._failed("The reading failed; see the log of the desk.")
        else:
            self._failures = 0
            self._set_outage(None)
            if seen != self._seen:
                self._seen = seen
                self.version += 1
        finally:
            self._ended, self._reading = time.monotonic(), None

    def _probed(self) -> object:
        if self._cluster.silent_since is not None:
            self._cluster.check(PROBE_S)
        return self._read()

    def _failed(self, reason: str) -> None:
        self._failures += 1
        self._set_outage(Outage(self._began_ms if self.outage is None else self.outage.since_ms, reason))
        if not reason and self._failures % RENEW_AFTER == 0:
            # A client that a frozen broker left in a bad state, or a thread that hangs in one, must not outlast it.
            log.warning("desk_clients_renewed", failures=self._failures)
            self._cluster.renew()

    def _set_outage(self, outage: Outage | None) -> None:
        if outage != self.outage:
            self.outage = outage
            self.version += 1

    async def stream(self, request: Request, *, always: bool) -> AsyncIterator[bytes]:
        """Lines of an event stream. `always`: the view changes by itself, such as that of consumers."""
        self.streams += 1
        try:
            known, alive_at = await self.now(), time.monotonic()
            yield b"retry: 3000\n\n"
            while not await request.is_disconnected():
                await asyncio.sleep(POLL_INTERVAL_S * (2 if always else 1))
                version = await self.now()
                if version != known or always:
                    known = version
                    yield b"event: changed\ndata: %d\n\n" % version
                    alive_at = time.monotonic()
                elif time.monotonic() - alive_at >= ALIVE_S:
                    alive_at = time.monotonic()
                    yield b": alive\n\n"
        finally:
            self.streams -= 1
