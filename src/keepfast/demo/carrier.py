"""The downstream service of the demo: a carrier that books shipments over TCP. Sometimes busy; has one outage."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Self
from zlib import crc32

REPLY_DELAY_S = 0.005
BUSY_SHARE = 25
"""One of this many orders finds it busy, once or twice."""


class Carrier:
    """A server on a loopback port, with a thread of its own. Any thread may read and set `away`.

    While it is `away` every connection is reset at once. (Closing its port instead would let the next connection
    connect to itself, or another process take the port.)
    """

    def __init__(self) -> None:
        self.open_requests = 0
        self.away = False
        self.address = ""
        self._asked: Counter[str] = Counter()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="carrier", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.address = f"127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1000)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        mine = asyncio.current_task()
        serving = [task for task in asyncio.all_tasks() if task is not mine]
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.away:
            writer.transport.abort()
            return
        self.open_requests += 1
        try:
            order = (await reader.readline()).decode().strip()
            await asyncio.sleep(REPLY_DELAY_S)
            writer.write(b"busy\n" if self._is_busy(order) else b"booked\n")
            await writer.drain()
        except OSError:
            pass  # the client process has died
        finally:
            self.open_requests -= 1
            writer.close()

    def _is_busy(self, order: str) -> bool:
        self._asked[order] += 1
        luck = crc32(order.encode())
        return luck % BUSY_SHARE == 0 and self._asked[order] <= 1 + luck // BUSY_SHARE % 2
