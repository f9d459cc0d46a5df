"""A health server of the service's own: 200 while the consumer runs, 503 before and after."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Health:
    def __init__(self, port: int) -> None:
        self._port = port
        self._running = threading.Event()
        self._server: ThreadingHTTPServer | None = None

    def set_running(self, flag: bool) -> None:  # noqa: FBT001 - the runner's hook is called so
        (self._running.set if flag else self._running.clear)()

    def start(self) -> None:
        running = self._running

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                well = self.path == "/health" and running.is_set()
                self.send_response(200 if well else 503)
                self.end_headers()
                self.wfile.write(b"running\n" if well else b"not running\n")

            def log_message(self, *_: object) -> None:
                """Probes are no news."""

        self._server = ThreadingHTTPServer(("", self._port), Handler)
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
