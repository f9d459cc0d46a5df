"""The pages of an app: health, metrics, and access to the control API; for our server, and for a service to mount."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from keepfast.http.server import MAX_BODY_BYTES, PROBE_PATH, HttpRequest, Response, as_json, problem
from keepfast.telemetry import logs, prometheus
from keepfast.telemetry.state import HealthReport

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = logs.get_logger("keepfast.http")

API = "/api/"
FAMILIES = "/families"
"""The metrics for a supervisor, on a Unix socket only."""
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1", ""})

INDEX = (
    "/health  /health/live  /health/ready  /health/startup  /metrics\n"
    "/api/state  /api/consumers/<name>  (from this host)\n"
)


class ServedApp:
    """What is served: the app of this process, or the children of a supervisor."""

    app: str

    def health(self) -> HealthReport:
        raise NotImplementedError

    def collect(self) -> Iterable[Metric]:
        """All metrics; the method of prometheus-client's collectors."""
        raise NotImplementedError

    def api(self, request: HttpRequest) -> Response:
        raise NotImplementedError


class Pages:
    """Answers the requests for an app.

    `token`: what a request that changes something must contain; None: all of them are refused. `forwards`: the token is
    checked by the child processes.
    """

    def __init__(self, served: ServedApp, *, token: str | None = None, forwards: bool = False) -> None:
        self._served = served
        self._token = token
        self._forwards = forwards

    def __call__(self, request: HttpRequest) -> Response:
        path = request.path.rstrip("/") or "/"
        if path.startswith(API):
            return self._refused(request) or self._served.api(request)
        if request.method not in ("GET", "HEAD"):
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, "Use GET.")
        match path:
            case "/metrics":
                body, content_type = prometheus.page(self._served, request.headers.get("accept", ""))
                return Response(HTTPStatus.OK, body, content_type)
            case "/health" | "/health/live" | "/health/ready" | "/health/startup":
                return health_page(self._served.health(), path)
            case "/families" if not request.peer:
                return Response(HTTPStatus.OK, prometheus.packed(self._served), "application/msgpack")
            case "/":
                return Response(HTTPStatus.OK, f"{self._served.app}\n{INDEX}".encode(), "text/plain; charset=utf-8")
            case _:
                return problem(HTTPStatus.NOT_FOUND, f"There is no such page; see {' '.join(INDEX.split())}.")

    def _refused(self, request: HttpRequest) -> Response | None:
        """The control API is for this host only, and not for pages of other origins in a browser on it."""
        name = (
            request.headers.get("host", "").rpartition("]")[0].lstrip("[")
            or request.headers.get("host", "").partition(":")[0]
        )
        if not request.is_local or (request.peer and name.lower() not in LOCAL_NAMES):
            return problem(HTTPStatus.FORBIDDEN, "The control API answers on this host only: use 127.0.0.1.")
        if request.method in ("GET", "HEAD"):
            return None
        if request.method != "POST":
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, "Use GET to read and POST to change something.")
        if self._forwards:
            return None
        if self._token is None:
            return problem(
                HTTPStatus.FORBIDDEN,
                "The app was started without KEEPFAST_CONTROL_TOKEN, so it accepts no changes. Choose a token, set it"
                " for the app and for this command, and restart the app.",
            )
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return problem(
                HTTPStatus.UNAUTHORIZED, "The token is missing or wrong: send `Authorization: Bearer <token>`."
            )
        return None


def health_page(report: HealthReport, path: str) -> Response:
    """200 or 503, and the reasons."""
    well = {
        "/health": report.status != "failing",
        "/health/live": report.live,
        "/health/ready": report.ready,
        "/health/startup": report.started,
    }[path]
    return as_json(report, HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE)


# -- mounted in a service

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class AsgiApp:
    """Health, metrics and the control API under whatever path it is mounted at. `pages` is asked for each request.

    Health is answered on the event loop, from what the consumers recorded last; everything else by a thread.
    """

    def __init__(self, pages: Callable[[], Pages]) -> None:
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._serve(scope, receive, send)
            case "lifespan":
                await _acknowledge(receive, send)
            case "websocket":
                await send({"type": "websocket.close", "code": 1000})
            case kind:
                raise ValueError(f"there is no answer to the ASGI scope {kind!r}")

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._response(scope, receive)
        except Exception as error:  # noqa: BLE001 - the service continues: it is logged, and the client gets a 500
            log.error("request_failed", method=scope["method"], path=scope["path"], exc=error)  # noqa: TRY400
            response = problem(HTTPStatus.INTERNAL_SERVER_ERROR, "The request failed; see the log of the app.")
        headers = {
            "content-type": response.content_type,
            "content-length": str(len(response.body)),
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **{name.lower(): value for name, value in response.headers.items()},
        }
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": int(response.status), "headers": pairs})
        body = b"" if scope["method"] == "HEAD" else response.body
        await send({"type": "http.response.body", "body": body})

    async def _response(self, scope: Scope, receive: Receive) -> Response:
        body = await _body(receive)
        if body is None:
            return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body may have at most {MAX_BODY_BYTES} bytes.")
        request = _request(scope, body)
        pages = self._pages()
        if request.path == PROBE_PATH or request.path.startswith(f"{PROBE_PATH}/"):
            return pages(request)  # a probe must not wait for a thread of a pool that others have filled
        return await asyncio.to_thread(pages, request)


def _request(scope: Scope, body: bytes) -> HttpRequest:
    path, root = scope["path"], scope.get("root_path", "")
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    client = scope.get("client")
    return HttpRequest(
        method=scope["method"],
        path=path or "/",
        query=dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"))),
        headers=_joined(scope["headers"]),
        body=body,
        # Without an address it may come from anywhere, for example through a socket of a proxy.
        peer=str(client[0]) if client and client[0] else "unknown",
        version=f"HTTP/{scope.get('http_version', '1.1')}",
    )


def _joined(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}


async def _body(receive: Receive) -> bytes | None:
    """None if it is too large."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return bytes(body)


async def _acknowledge(receive: Receive, send: Send) -> None:
    """Served alone: the app is started and stopped elsewhere, so there is nothing to do."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
