"""A small HTTP server on the standard library: for probes, scrapes and people, not for traffic.

It has threads of its own and never touches a loop. A request has a few seconds to arrive as a whole, and never more
than some are served at once; when that many are, the oldest that has not arrived yet gives way, and some places are
for probes alone.
"""

from __future__ import annotations

import contextlib
import io
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.state import Problem

log = get_logger("keepfast.http")

CONNECT_TIMEOUT_S = 5.0
"""For a request to arrive as a whole, however it trickles; and for its client to take the answer."""
AT_ONCE, FOR_PROBES = 16, 4
"""Requests that are served at once, and how many probes beside them."""
PROBES = "/health"
MAX_BODY_BYTES = 64 * 1024
UNIX = "unix:"
"""Before a path, in place of a host: a socket in the file system."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """`peer` is the client's address; empty for one that came through the file system."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """By names in lower case."""
    body: bytes = b""
    peer: str = ""

    @property
    def is_local(self) -> bool:
        """Whether it comes from this host, and not by way of a proxy on it."""
        if "x-forwarded-for" in self.headers or "forwarded" in self.headers:
            return False
        if not self.peer:
            return True
        try:
            address = ip_address(self.peer.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return bool((mapped or address).is_loopback)


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes
    content_type: str = "application/json; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


App = Callable[[HttpRequest], Response]
"""Answers any request; may raise, which becomes a 500."""


def as_json(value: Any, status: int = HTTPStatus.OK) -> Response:
    return Response(status, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def problem(status: int, text: str) -> Response:
    return as_json(Problem(error=text), status)


class _Arriving(io.RawIOBase):
    """Reads from a connection until a deadline. A time-out of the socket alone would begin again with every byte."""

    def __init__(self, connection: socket.socket, patience_s: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + patience_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


@dataclass(slots=True)
class _Place:
    """A connection that is served. `arriving`: its request is not there as a whole."""

    probes_only: bool
    arriving: bool = True


class _Handler(BaseHTTPRequestHandler):
    """One connection, one request: probes and scrapes come seldom."""

    timeout = CONNECT_TIMEOUT_S
    server_version = "keepfast"
    sys_version = ""
    app: App

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Arriving(self.connection, self.timeout))

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # it went away, or was too slow
            self.close_connection = True

    def _answer(self) -> None:
        try:
            response = self._response()
        except Exception as error:  # noqa: BLE001 - the thread's edge: the client hears that it failed, the log why
            log.error("request_failed", method=self.command, path=self.path, exc=error)  # noqa: TRY400
            response = problem(HTTPStatus.INTERNAL_SERVER_ERROR, "It failed; the log says why.")
        self.connection.settimeout(self.timeout)
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _answer  # noqa: N815 - its names

    def _response(self) -> Response:
        split = urlsplit(self.path)
        address: Any = self.client_address  # a tuple, or an empty text for a socket in the file system
        headers = {name.lower(): value for name, value in self.headers.items()}
        if "transfer-encoding" in headers:
            return problem(HTTPStatus.LENGTH_REQUIRED, "Send the body with Content-Length, not in chunks.")
        try:
            length = int(headers.get("content-length") or 0)
        except ValueError:
            return problem(HTTPStatus.BAD_REQUEST, "Content-Length is not a number.")
        if not 0 <= length <= MAX_BODY_BYTES:
            return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A body has at most {MAX_BODY_BYTES} bytes.")
        body = self.rfile.read(length) if length else b""
        if len(body) < length:
            return problem(HTTPStatus.BAD_REQUEST, "The body is shorter than Content-Length says.")
        if not self._threads.arrived(self.request, split.path):
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, "Too many requests at once; ask again.")
        request = HttpRequest(
            method=self.command,
            path=split.path,
            query=dict(parse_qsl(split.query)),
            headers=headers,
            body=body,
            peer=str(address[0]) if address else "",
        )
        return type(self).app(request)

    @property
    def _threads(self) -> _Threads:
        assert isinstance(self.server, _Threads)
        return self.server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        """Probes come every few seconds: nothing is logged of them."""


class _Threads(socketserver.ThreadingMixIn):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *arguments: Any) -> None:
        self._lock = threading.Lock()
        self._places: dict[socket.socket, _Place] = {}  # the oldest first
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._admit(request):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)  # type: ignore[attr-defined]

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._places.pop(request, None)

    def arrived(self, request: socket.socket, path: str) -> bool:
        """The request is there as a whole; whether it may be answered."""
        with self._lock:
            place = self._places.get(request)
            if place is None:
                return False
            place.arriving = False
            return not place.probes_only or path == PROBES or path.startswith(f"{PROBES}/")

    def _admit(self, request: socket.socket) -> bool:
        """A free place, else that of the oldest whose request has not arrived, else one of those for probes."""
        with self._lock:
            for probes_only, places in ((False, AT_ONCE), (True, FOR_PROBES)):
                taken = [one for one, place in self._places.items() if place.probes_only is probes_only]
                slowest = next((one for one in taken if self._places[one].arriving), None)
                if len(taken) >= places and slowest is None:
                    continue
                if len(taken) >= places and slowest is not None:
                    del self._places[slowest]
                    with contextlib.suppress(OSError):
                        slowest.shutdown(socket.SHUT_RDWR)  # its thread sees the end of it, and closes it
                self._places[request] = _Place(probes_only)
                return True
            return False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke concerns nobody else."""


class _Tcp(_Threads, socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = 64


class _Tcp6(_Tcp):
    address_family = socket.AF_INET6


class _Unix(_Threads, socketserver.UnixStreamServer):
    request_queue_size = 64


class Server:
    """`start` binds and returns; `url` says where to ask on this host, `address` what it is bound to. Any thread may
    call `stop`.
    """

    def __init__(self, app: App) -> None:
        self._handler = type("_Bound", (_Handler,), {"app": staticmethod(app)})
        self._server: socketserver.BaseServer | None = None
        self._path: Path | None = None
        self.url = ""
        self.address = ""

    def start(self, host: str, port: int) -> None:
        """Raises OSError if the address cannot be had."""
        if host.startswith(UNIX):
            self._path = Path(host.removeprefix(UNIX))
            self._path.unlink(missing_ok=True)  # of one that died
            self._server = _Unix(str(self._path), self._handler)
            self._path.chmod(0o600)
            self.url = self.address = host
        else:
            server = (_Tcp6 if ":" in host else _Tcp)((host, port), self._handler)
            self._server = server
            bound, number = server.server_address[:2]
            self.address = f"[{bound!s}]:{number}" if ":" in str(bound) else f"{bound!s}:{number}"
            shown = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
            self.url = f"http://{f'[{shown}]' if ':' in shown else shown}:{server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="keepfast-web", daemon=True
        ).start()

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            if self._path is not None:
                self._path.unlink(missing_ok=True)
