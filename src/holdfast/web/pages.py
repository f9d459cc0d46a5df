"""What is served: health, metrics, and the control API, for one process."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from holdfast.observe import logs
from holdfast.observe.exposition import OPEN_METRICS, PLAIN, exposition, wants_open_metrics
from holdfast.observe.families import Family
from holdfast.observe.shapes import Done, HealthReport, Problem
from holdfast.runtime.lifecycle import LoopThread
from holdfast.runtime.operator import Verb
from holdfast.web.health import health_of
from holdfast.web.http import Request, Response, as_json, problem
from holdfast.web.running import Running, Unanswered

log = logs.get_logger("holdfast.web")

API = "/api/"
FAMILIES = "/families"
"""Metrics as a supervisor wants them from its children; through the file system only."""
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1", ""})

INDEX = (
    "/health  /health/live  /health/ready  /health/startup  /metrics\n"
    "/api/state  /api/consumers/<name>  (from this host)\n"
)


class Where(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to pause or resume; without a topic, the whole consumer."""

    topic: str | None = None
    partition: int | None = None


class Which(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to release."""

    hold: str


class Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: str


class Subject:
    """What there is to serve: one app here, or several children."""

    app: str

    def health(self) -> HealthReport:
        raise NotImplementedError

    def families(self) -> list[Family]:
        raise NotImplementedError

    def api(self, request: Request) -> Response:
        raise NotImplementedError


class Pages:
    """Answers any request about a subject. `token`: what a request must bring to change something; None: none may."""

    def __init__(self, subject: Subject, *, token: str | None = None) -> None:
        self._subject = subject
        self._token = token

    def __call__(self, request: Request) -> Response:
        path = request.path.rstrip("/") or "/"
        if path.startswith(API):
            return self._refused(request) or self._subject.api(request)
        if request.method not in ("GET", "HEAD"):
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is answered here.")
        match path:
            case "/metrics":
                return metrics_page(self._subject.families(), request)
            case "/health" | "/health/live" | "/health/ready" | "/health/startup":
                return health_page(self._subject.health(), path)
            case "/families" if not request.peer:
                return Response(HTTPStatus.OK, msgspec.msgpack.encode(self._subject.families()), "application/msgpack")
            case "/":
                return Response(HTTPStatus.OK, f"{self._subject.app}\n{INDEX}".encode(), "text/plain; charset=utf-8")
            case _:
                return problem(HTTPStatus.NOT_FOUND, f"There is nothing here. Try {' '.join(INDEX.split())}.")

    def _refused(self, request: Request) -> Response | None:
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
        if self._token is None:
            return problem(
                HTTPStatus.FORBIDDEN,
                "Nothing may be changed here because no token is set: start the app with HOLDFAST_CONTROL_TOKEN=….",
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


def metrics_page(families: list[Family], request: Request) -> Response:
    wants = wants_open_metrics(request.headers.get("accept", ""))
    return Response(HTTPStatus.OK, exposition(families, open_metrics=wants).encode(), OPEN_METRICS if wants else PLAIN)


def health_page(report: HealthReport, path: str) -> Response:
    """200 or 503, and the reasons; of what is well the answer is short."""
    well = {
        "/health": report.status != "failing",
        "/health/live": report.live,
        "/health/ready": report.ready,
        "/health/startup": report.started,
    }[path]
    return as_json(report, HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE)


B = TypeVar("B")


class OneApp(Subject):
    """The app of this process."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self.app = running.app

    def health(self) -> HealthReport:
        return health_of(self._running.seen())

    def families(self) -> list[Family]:
        return self._running.families()

    def api(self, request: Request) -> Response:
        try:
            return self._api(request)
        except Unanswered:
            return problem(
                HTTPStatus.GATEWAY_TIMEOUT, "The consumer's loop does not answer: it is stuck. See /health/live."
            )
        except msgspec.MsgspecError as error:
            return problem(HTTPStatus.BAD_REQUEST, f"The body does not fit: {error}.")

    def _api(self, request: Request) -> Response:
        looks = request.method in ("GET", "HEAD")
        match request.path.removeprefix(API).strip("/").split("/"):
            case ["state"] if looks:
                return as_json(self._running.state())
            case ["health"] if looks:
                return as_json(self.health())
            case ["log-level"] if not looks:
                return as_json(_set_level(_body(request, Level).level))
            case ["consumers", name]:
                return self._of(name, lambda thread: self._running.detail(thread) if looks else None)
            case ["consumers", name, ("pause" | "resume") as verb] if not looks:
                where = _body(request, Where)
                return self._of(name, lambda thread: self._ordered(thread, verb, where))
            case ["consumers", name, "release"] if not looks:
                hold = _body(request, Which).hold
                return self._of(name, lambda thread: self._running.order(thread, "release", hold=hold))
            case _:
                return problem(HTTPStatus.NOT_FOUND, f"There is no {request.method} {request.path}.")

    def _ordered(self, thread: LoopThread, verb: Verb, where: Where) -> object:
        return self._running.order(thread, verb, topic=where.topic, partition=where.partition)

    def _of(self, name: str, answer: Callable[[LoopThread], Any]) -> Response:
        thread = self._running.find(name)
        if thread is None:
            known = ", ".join(one.loop.plan.name for one in self._running.threads) or "none yet"
            return problem(HTTPStatus.NOT_FOUND, f"There is no consumer {name!r} here; there is {known}.")
        if thread.over.is_set():
            return problem(HTTPStatus.CONFLICT, f"The consumer {name!r} has ended.")
        found = answer(thread)
        if found is None:
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, "Use GET.")
        return as_json(found, HTTPStatus.CONFLICT if isinstance(found, Problem) else HTTPStatus.OK)


def _body(request: Request, shape: type[B]) -> B:
    return msgspec.json.decode(request.body or b"{}", type=shape)


def _set_level(level: str) -> Done | Problem:
    name = level.lower()
    if name not in logs.LEVELS:
        return Problem(error=f"There is no level {level!r}; there is {', '.join(logs.LEVELS)}.")
    logging.getLogger(logs.ROOT).setLevel(logs.LEVELS[name])
    log.warning("log_level_set", to=name, by="hand")
    return Done(text=f"The log level is {name} until the process ends.", changed=1)
