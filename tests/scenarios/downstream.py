"""A service that handlers call: a real one, on a real port, that can go away and come back."""

from __future__ import annotations

import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from tests.support.waiting import DEADLINE_S


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


class Downstream:
    """Up when entered. `call` is what a handler does; it raises what the client library raises."""

    def __init__(self) -> None:
        self._server: _Server | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.come_back()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.go_away()

    def come_back(self) -> None:
        """Listen, on the port it had before."""
        self._server = _Server(("127.0.0.1", self.port), _Answer)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def go_away(self) -> None:
        """Whoever calls from now on is refused."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def call(self) -> None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        finally:
            connection.close()
