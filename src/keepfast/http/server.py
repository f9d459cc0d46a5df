"""A small HTTP server on the standard library for probes, scrapes and the control API; not for heavy traffic.

It has its own threads and never blocks a loop. A request must arrive within a few seconds. The number of concurrent
requests is limited: at the limit, the oldest request that has not arrived completely is dropped, and a few connections
are reserved for probes.
"""

from __future__ import annotations

import contextlib
import io
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from keepfast.core.errors import ConfigError
from keepfast.settings import HealthSettings, Settings
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.state import Problem

log = get_logger("keepfast.http")

REQUEST_TIMEOUT_S = 5.0
"""For a complete request to arrive, however slowly it is sent, and for the client to read the response."""
MAX_REQUESTS, MAX_PROBES = 16, 4
"""Concurrent requests, and probes beside them."""
PROBE_PATH = "/health"
MAX_BODY_BYTES = 64 * 1024
PROXY_HEADERS = frozenset({"via", "forwarded", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip"})
PROXY_PREFIXES = ("x-forwarded", "x-original-", "x-envoy-", "x-appengine-", "cf-", "l5d-")
"""Headers that proxies add, whatever the client sends."""
UNIX = "unix:"
"""Prefix of a path, in place of a host: a Unix socket."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. `peer` is the address of the client; empty for a Unix socket."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names are in lower case."""
    body: bytes = b""
    peer: str = ""
    version: str = "HTTP/1.1"

    @property
    def is_local(self) -> bool:
        """Whether it comes from this host, without any sign of a proxy. HTTP/1.0 is one: nginx speaks it to what it
        stands before, and without any header of its own; no client of the control API does.
        """
        if self.version == "HTTP/1.0" or any(
            name in PROXY_HEADERS or name.startswith(PROXY_PREFIXES) for name in self.headers
        ):
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


RequestHandler = Callable[[HttpRequest], Response]
"""Answers a request; an exception becomes a 500."""


def as_json(value: Any, status: int = HTTPStatus.OK) -> Response:
    return Response(status, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def problem(status: int, text: str) -> Response:
    return as_json(Problem(error=text), status)


class _DeadlineReader(io.RawIOBase):
    """Reads from a connection until a deadline. The timeout of a socket would begin again with every byte."""

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + timeout_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


@dataclass(slots=True)
class _Connection:
    """An open connection. `arriving`: its request is not complete yet."""

    probes_only: bool
    arriving: bool = True


class _Handler(BaseHTTPRequestHandler):
    """One request per connection: probes and scrapes are rare."""

    timeout = REQUEST_TIMEOUT_S
    server_version = "keepfast"
    sys_version = ""
    handler: RequestHandler

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_DeadlineReader(self.connection, REQUEST_TIMEOUT_S))

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the client disconnected or was too slow
            self.close_connection = True

    def _answer(self) -> None:
        try:
            response = self._response()
        except Exception as error:  # noqa: BLE001 - the thread's edge: it is logged, and the client gets a 500
            log.error("request_failed", method=self.command, path=self.path, exc=error)  # noqa: TRY400
            response = problem(HTTPStatus.INTERNAL_SERVER_ERROR, "The request failed; see the log of the app.")
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
        try:
            split = urlsplit(self.path)
        except ValueError:
            return problem(HTTPStatus.BAD_REQUEST, "The address of the request is invalid.")
        address: Any = self.client_address  # a tuple; an empty string for a Unix socket
        headers = {name.lower(): value for name, value in self.headers.items()}
        if "transfer-encoding" in headers:
            return problem(HTTPStatus.LENGTH_REQUIRED, "Send the body with Content-Length, not in chunks.")
        try:
            length = int(headers.get("content-length") or 0)
        except ValueError:
            return problem(HTTPStatus.BAD_REQUEST, "Content-Length is not a number.")
        if not 0 <= length <= MAX_BODY_BYTES:
            return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body may have at most {MAX_BODY_BYTES} bytes.")
        body = self.rfile.read(length) if length else b""
        if len(body) < length:
            return problem(HTTPStatus.BAD_REQUEST, "The body is shorter than Content-Length.")
        if not self._threads.arrived(self.request, split.path):
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, "Too many concurrent requests; try again.")
        request = HttpRequest(
            method=self.command,
            path=split.path,
            query=dict(parse_qsl(split.query)),
            headers=headers,
            body=body,
            peer=str(address[0]) if address else "",
            version=self.request_version,
        )
        return type(self).handler(request)

    @property
    def _threads(self) -> _LimitedThreads:
        assert isinstance(self.server, _LimitedThreads)
        return self.server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        """Requests are not logged: probes come every few seconds."""


class _LimitedThreads(socketserver.ThreadingMixIn):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *arguments: Any) -> None:
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, _Connection] = {}  # oldest first
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
                self._connections.pop(request, None)

    def arrived(self, request: socket.socket, path: str) -> bool:
        """Note that the request is complete; returns whether it may be answered."""
        with self._lock:
            connection = self._connections.get(request)
            if connection is None:
                return False
            connection.arriving = False
            return not connection.probes_only or path == PROBE_PATH or path.startswith(f"{PROBE_PATH}/")

    def _admit(self, request: socket.socket) -> bool:
        """Below the limit, or in place of the oldest incomplete request, or as a connection for probes."""
        with self._lock:
            for probes_only, limit in ((False, MAX_REQUESTS), (True, MAX_PROBES)):
                taken = [one for one, known in self._connections.items() if known.probes_only is probes_only]
                slowest = next((one for one in taken if self._connections[one].arriving), None)
                if len(taken) >= limit and slowest is None:
                    continue
                if len(taken) >= limit and slowest is not None:
                    del self._connections[slowest]
                    with contextlib.suppress(OSError):
                        slowest.shutdown(socket.SHUT_RDWR)  # its thread reads the end of the stream and closes it
                self._connections[request] = _Connection(probes_only)
                return True
            return False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A broken connection is not an error of the app."""


class _Tcp(_LimitedThreads, socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = 64


class _Tcp6(_Tcp):
    address_family = socket.AF_INET6


class _Unix(_LimitedThreads, socketserver.UnixStreamServer):
    request_queue_size = 64


class Server:
    """`start` binds and returns. `url` is its URL on this host, `address` the address that it is bound to. Any thread
    may call `stop`.
    """

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = type("_Bound", (_Handler,), {"handler": staticmethod(handler)})
        self._server: socketserver.BaseServer | None = None
        self._path: Path | None = None
        self.url = ""
        self.address = ""

    def start(self, host: str, port: int) -> None:
        """Raises OSError if it cannot bind to the address."""
        if host.startswith(UNIX):
            self._path = Path(host.removeprefix(UNIX))
            self._path.unlink(missing_ok=True)  # left by a process that crashed
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


def start_server(handler: RequestHandler, health: HealthSettings, *, required: bool) -> Server | None:
    """A running server; None if it is disabled, or if it cannot bind to its address and is not `required`.

    Raises ConfigError if it cannot bind and is required.
    """
    if not health.enabled:
        return None
    server = Server(handler)
    try:
        server.start(health.host, health.port)
    except OSError as error:
        what_to_do = "set HEALTH_CHECK_PORT to another port (0: any free one), or HEALTH_CHECK_ENABLED=false"
        where, why = f"{health.host}:{health.port}", error.strerror or str(error)
        if required:
            raise ConfigError(
                f"Health and metrics cannot be served on {where} ({why}): {what_to_do}, or"
                " KEEPFAST_HEALTH_REQUIRED=false to run without them."
            ) from error
        log.warning("health_not_served", address=where, error=why, what_to_do=what_to_do)
        return None
    log.info("health_served", url=server.url, address=server.address)
    return server


def start_metrics_server(handler: RequestHandler, settings: Settings) -> Server | None:
    """The same pages on `metrics.port`, beside a health server of the user's; None if there is no such port.

    If the port is taken: raises ConfigError if it was configured, else None.
    """
    port = settings.metrics.port
    if port is None:
        return None
    server = Server(handler)
    try:
        server.start(settings.health.host, port)
    except OSError as error:
        what_to_do = "set KEEPFAST_METRICS_PORT to another port (0: any free one), or to none"
        where, why = f"{settings.health.host}:{port}", error.strerror or str(error)
        if "metrics.port" in settings.origins:
            raise ConfigError(f"Metrics cannot be served on {where} ({why}): {what_to_do}.") from error
        log.warning("metrics_not_served", address=where, error=why, what_to_do=what_to_do)
        return None
    log.info("metrics_served", url=server.url, address=server.address)
    return server


_CONFIGURED = ("health.enabled", "health.port")


def server_required(settings: Settings) -> bool:
    """Whether the app must not run without its server: `health.required`, or else whether it was configured."""
    required = settings.health.required
    return any(name in settings.origins for name in _CONFIGURED) if required is None else required


def without_server(settings: Settings) -> Settings:
    """The settings of an app that listens on no port: something else serves its pages, or nothing does."""
    return replace(settings, health=replace(settings.health, enabled=False))


def on_unix_socket(settings: Settings, path: Path) -> Settings:
    """The settings of a child of a supervisor: it serves on a Unix socket, and its supervisor on the port.

    It does so even if health is switched off, because the supervisor asks whether it lives.
    """
    return replace(settings, health=replace(settings.health, enabled=True, host=f"{UNIX}{path}", required=False))
