"""A downstream service over HTTP, on a loopback port, with injected faults. For tests and stories."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0


class HttpServer:
    """Answers GET and POST with what `answer(path, body)` says; that is called on several threads."""

    def __init__(self, answer: Callable[[str, bytes], Answer]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                reply = answer(self.path, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
                time.sleep(reply.wait_s)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body)

            do_POST = do_GET  # noqa: N815 - the name that the standard library calls

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the standard library
                """The account tells what happened."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """The client closed the connection or was killed, which is expected here."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="downstream", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
