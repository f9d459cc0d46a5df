"""The pages of the server: health, metrics, and access to the control API."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from keepfast.http.server import HttpRequest, Response, as_json, problem
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
