"""The connections of the desk: uvicorn's, with a deadline for requests and a limit on those that do not arrive."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

REQUEST_TIMEOUT_S: Final = 15.0
"""For a complete request to arrive, from the connection or the last response on, however slowly it is sent; and for a
response to be read after it was written.
"""
MAX_CONNECTIONS: Final = 400
"""Above this, the oldest connection without a complete request is closed for a new one."""


class DeskConnection(H11Protocol):
    """A connection. One event loop."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def _is_arriving(self) -> bool:
        """Whether no request is complete that has no response yet."""
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request
        return cycle is None or cycle.response_complete or cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        open_ones = [one for one in self.connections if isinstance(one, DeskConnection)]
        arriving = [one for one in open_ones if one._is_arriving and one is not self]  # noqa: SLF001 - its own class
        if len(open_ones) > MAX_CONNECTIONS and arriving:
            oldest = min(arriving, key=lambda one: one._deadline.when() if one._deadline else 0.0)  # noqa: SLF001
            self.connections.discard(oldest)  # at once: uvicorn counts them
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        if self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_TIMEOUT_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the deadline if there is none, or end it if the request is complete."""
        if not self._is_arriving:
            self._stop_watching()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_TIMEOUT_S, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
