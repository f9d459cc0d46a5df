"""Where the tests of classification get real errors from."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from keepfast.classify.classification import Classification, classify
from tests.support.waiting import DEADLINE_S

NOW_WALL = 1_700_000_000.0


def caught(act: Callable[[], object]) -> BaseException:
    """What it raises."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - the point of it
        return error
    raise AssertionError("nothing was raised")


def caught_async(act: Callable[[], Awaitable[object]]) -> BaseException:
    async def run() -> None:
        await act()

    return caught(lambda: asyncio.run(run()))


def found(error: BaseException) -> Classification:
    return classify(error, now_wall=NOW_WALL)


def verdict(error: BaseException) -> tuple[str, str, bool]:
    """Kind, code and outage."""
    result = found(error)
    return result.kind, result.code, result.outage


DOWN = ("retryable", "NETWORK_ERROR", True)
TIMED_OUT = ("retryable", "TIMEOUT", True)


@contextmanager
def refused_port() -> Iterator[int]:
    """A port on which nobody listens, and nobody can begin to while we hold it."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@contextmanager
def listener(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port whose every connection is handed to `talk`, in a thread of its own."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    talk(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(DEADLINE_S)


class _Answers(BaseHTTPRequestHandler):
    """Answers with the status in the path (`/503-7`: with Retry-After); the query becomes headers.

    `/silent` never answers, `/cut` hangs up, `/loop` redirects to itself.
    """

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        word = url.path.strip("/").partition("/")[0]
        server = self.server
        assert isinstance(server, HttpServer)
        if word == "silent":
            server.over.wait(DEADLINE_S)
            return
        if word == "cut":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if word == "loop":
            word, url = "302", url._replace(query="Location=/loop")
        body = b"<html>not what you asked for</html>"
        status, _, wait = word.partition("-")
        self.send_response(int(status))
        if wait:
            self.send_header("Retry-After", wait)
        for name, value in parse_qsl(url.query):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    do_POST = do_GET  # noqa: N815 - the server's names
    do_PUT = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Not on the terminal."""


class HttpServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.over = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that gives up is what the tests want."""


@contextmanager
def http_server() -> Iterator[HttpServer]:
    with HttpServer() as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join(DEADLINE_S)
