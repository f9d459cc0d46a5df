"""A company registry on a loopback port, as bad as real ones: it limits, is away, is slow, knows not everybody, and
now and then answers with garbage. For tests and for the story.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Self

SLOW_S = 1.5
RETRY_AFTER_S = 1


class FakeRegistry:
    """What it does with a company is in the last digit of its number, the first times that it is asked."""

    def __init__(self) -> None:
        self.asked: defaultdict[str, list[float]] = defaultdict(list)
        """When each company was asked for."""
        self._lock = threading.Lock()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, headers, body, wait_s = registry.answer(self.path.rpartition("/")[2])
                time.sleep(wait_s)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Whoever asked has hung up: that was the time-out."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, cnpj: str) -> tuple[int, dict[str, str], bytes, float]:
        with self._lock:
            self.asked[cnpj].append(time.monotonic())
            first = len(self.asked[cnpj]) == 1
        found = json.dumps({"parent": {"name": f"Parent of {cnpj}"}}).encode()
        match cnpj[-1]:
            case "1" if first:
                return 429, {"Retry-After": str(RETRY_AFTER_S)}, b"slow down", 0.0
            case "2" if first:
                return 503, {}, b"back soon", 0.0
            case "3" if first:
                return 200, {}, found, SLOW_S
            case "4":
                return 404, {}, b"never heard of it", 0.0
            case "5":
                return 200, {}, b"<html>it works</html>", 0.0
            case _:
                return 200, {}, found, 0.0

    def gaps_s(self) -> list[float]:
        """Between one request and the next."""
        times = sorted(at for asked in self.asked.values() for at in asked)
        return [later - at for at, later in pairwise(times)]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="registry", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
