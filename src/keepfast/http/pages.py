"""What is served, whatever it is about: health, metrics, and the door of the control API."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from keepfast.http.http import HttpRequest, Response, as_json, problem
from keepfast.telemetry import logs, prometheus
from keepfast.telemetry.state import HealthReport

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = logs.get_logger("keepfast.http")

API = "/api/"
FAMILIES = "/families"
"""Metrics as a supervisor wants them from its children; through the file system only."""
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1", ""})

INDEX = (
    "/health  /health/live  /health/ready  /health/startup  /metrics\n"
    "/api/state  /api/consumers/<name>  (from this host)\n"
)


class ServedApp:
    """What there is to serve: one app here, or several children."""

    app: str

    def health(self) -> HealthReport:
        raise NotImplementedError

    def collect(self) -> Iterable[Metric]:
        """All metrics, as a collector of prometheus-client has them."""
        raise NotImplementedError

    def api(self, request: HttpRequest) -> Response:
        raise NotImplementedError


class Pages:
    """Answers any request about a subject.

    `token`: what a request must bring to change something; None: none may. `passes_on`: others look at the token.
    """

    def __init__(self, subject: ServedApp, *, token: str | None = None, passes_on: bool = False) -> None:
        self._subject = subject
        self._token = token
        self._passes_on = passes_on

    def __call__(self, request: HttpRequest) -> Response:
        path = request.path.rstrip("/") or "/"
        if path.startswith(API):
            return self._refused(request) or self._subject.api(request)
        if request.method not in ("GET", "HEAD"):
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is answered here.")
        match path:
            case "/metrics":
                body, content_type = prometheus.page(self._subject, request.headers.get("accept", ""))
                return Response(HTTPStatus.OK, body, content_type)
            case "/health" | "/health/live" | "/health/ready" | "/health/startup":
                return health_page(self._subject.health(), path)
            case "/families" if not request.peer:
                return Response(HTTPStatus.OK, prometheus.packed(self._subject), "application/msgpack")
            case "/":
                return Response(HTTPStatus.OK, f"{self._subject.app}\n{INDEX}".encode(), "text/plain; charset=utf-8")
            case _:
                return problem(HTTPStatus.NOT_FOUND, f"There is nothing here. Try {' '.join(INDEX.split())}.")

    def _refused(self, request: HttpRequest) -> Response | None:
        """The control API is for this host; a page of another origin in a browser on it is a stranger, too."""
        name = (
            request.headers.get("host", "").rpartition("]")[0].lstrip("[")
            or request.headers.get("host", "").partition(":")[0]
        )
        if not request.is_local or (request.peer and name.lower() not in LOCAL_NAMES):
            return problem(HTTPStatus.FORBIDDEN, "The control API answers on this host only: ask 127.0.0.1.")
        if request.method in ("GET", "HEAD"):
            return None
        if request.method != "POST":
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, "Use GET to look and POST to change something.")
        if self._passes_on:
            return None
        if self._token is None:
            return problem(
                HTTPStatus.FORBIDDEN,
                "Nothing may be changed here because the app was started without KEEPFAST_CONTROL_TOKEN. Choose one, "
                "set it for the app and for this command, and start the app anew.",
            )
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return problem(
                HTTPStatus.UNAUTHORIZED, "The token is missing or wrong: send `Authorization: Bearer <token>`."
            )
        return None


def _name(host: str) -> str:
    """The Host header without its port."""
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    return name.lower()


def health_page(report: HealthReport, path: str) -> Response:
    """200 or 503, and the reasons; of what is well the answer is short."""
    well = {
        "/health": report.status != "failing",
        "/health/live": report.live,
        "/health/ready": report.ready,
        "/health/startup": report.started,
    }[path]
    return as_json(report, HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE)
