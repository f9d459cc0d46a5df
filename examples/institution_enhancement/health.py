"""A health server of the service's own: `/health` is 200 while the consumer runs and 503 before and after; `/metrics`
are those of the runner.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Health:
    """`port` None: nothing is served."""

    def __init__(self, port: int | None, metrics: Callable[[], str]) -> None:
        self._port = port
        self._metrics = metrics
        self._running = threading.Event()
        self._server: ThreadingHTTPServer | None = None

    def set_running(self, flag: bool) -> None:  # noqa: FBT001 - the runner's hook is called so
        (self._running.set if flag else self._running.clear)()

    def answer(self, path: str) -> tuple[int, str]:
        if path == "/metrics":
            return 200, self._metrics()
        if path != "/health":
            return 404, "there is /health and /metrics\n"
        return (200, "running\n") if self._running.is_set() else (503, "not running\n")

    def start(self) -> None:
        if self._port is None:
            return
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, text = answer(self.path)
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                """Probes are no news."""

        self._server = ThreadingHTTPServer(("", self._port), Handler)
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
