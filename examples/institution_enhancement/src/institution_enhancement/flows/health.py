"""The health server: `/health` is 200 while the consumer runs, and 503 before and after. Metrics have a port of their
own, which the runner serves.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from institution_enhancement.tasks.config import HealthCheckConfig

_running = threading.Event()
_servers: list[ThreadingHTTPServer] = []


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        healthy = self.path == "/health" and _running.is_set()
        self.send_response(200 if healthy else 404 if self.path != "/health" else 503)
        self.end_headers()
        self.wfile.write(b"running\n" if healthy else b"not running\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the standard library
        """Probes are not logged."""


def set_consumer_running(running: bool) -> None:  # noqa: FBT001 - the runner calls it so
    (_running.set if running else _running.clear)()


def start_health_server(config: HealthCheckConfig) -> None:
    """Raises OSError if the port is taken: then the consumer does not start."""
    if config.enabled:
        server = ThreadingHTTPServer(("", config.port), _Handler)
        threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
        _servers.append(server)


def stop_health_server() -> None:
    while _servers:
        server = _servers.pop()
        server.shutdown()
        server.server_close()
