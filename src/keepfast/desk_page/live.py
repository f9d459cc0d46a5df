"""Server-sent events: a page is notified of changes, and reads itself again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

LOOK_S: Final = 1.0
"""How often Kafka is asked for what is new while a page is open."""
ALIVE_S: Final = 15.0
MAX_STREAMS: Final = 200


class Pulse:
    """Looks at Kafka while pages are open, and counts changes. One event loop.

    `look` reads what is new and returns something that differs when there was something; it runs on a thread.
    """

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._seen: object = None
        self._looked_at = 0.0
        self._lock = asyncio.Lock()
        self.version = 0
        self.streams = 0

    async def now(self) -> int:
        """The number of the last change; looks if the last look is old."""
        async with self._lock:
            if time.monotonic() - self._looked_at >= LOOK_S:
                seen = await run_in_threadpool(self._look)
                self._looked_at = time.monotonic()
                if seen != self._seen:
                    self._seen = seen
                    self.version += 1
        return self.version

    async def stream(self, request: Request, *, always: bool) -> AsyncIterator[bytes]:
        """Lines of an event stream. `always`: the view changes by itself, such as that of consumers."""
        self.streams += 1
        try:
            known, alive_at = await self.now(), time.monotonic()
            yield b"retry: 3000\n\n"
            while not await request.is_disconnected():
                await asyncio.sleep(LOOK_S * (2 if always else 1))
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
