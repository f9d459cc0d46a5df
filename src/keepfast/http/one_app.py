"""An app with its server around it: health answers from before the brokers are found until the process ends."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from keepfast.core.errors import ConfigError
from keepfast.engine.control import Verb
from keepfast.engine.lifecycle import LoopThread
from keepfast.http.health import health_of
from keepfast.http.http import HttpRequest, Response, Server, as_json, problem
from keepfast.http.pages import API, Pages, ServedApp
from keepfast.http.running import Parts, Running, Unanswered
from keepfast.http.serving import is_required, served
from keepfast.settings import Settings
from keepfast.telemetry import logs
from keepfast.telemetry.metrics import Collision
from keepfast.telemetry.otel import MetricsExport, exporter_from
from keepfast.telemetry.prometheus import REGISTERED, all_process_families
from keepfast.telemetry.state import CommandDone, HealthReport, Problem

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = logs.get_logger("keepfast.http")


class Where(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to pause or resume; without a topic, the whole consumer."""

    topic: str | None = None
    partition: int | None = None


class Which(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to release."""

    hold: str


class Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: str


B = TypeVar("B")


class OneApp(ServedApp):
    """The app of this process."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self.app = running.app

    def health(self) -> HealthReport:
        return health_of(self._running.seen())

    def collect(self) -> list[Metric]:
        return self._running.collect()

    def api(self, request: HttpRequest) -> Response:
        try:
            return self._api(request)
        except Unanswered:
            return problem(
                HTTPStatus.GATEWAY_TIMEOUT, "The consumer's loop does not answer: it is stuck. See /health/live."
            )
        except msgspec.MsgspecError as error:
            return problem(HTTPStatus.BAD_REQUEST, f"The body does not fit: {error}.")

    def _api(self, request: HttpRequest) -> Response:
        looks = request.method in ("GET", "HEAD")
        match request.path.removeprefix(API).strip("/").split("/"):
            case ["state"] if looks:
                return as_json(self._running.state())
            case ["health"] if looks:
                return as_json(self.health())
            case ["log-level"] if not looks:
                answer = _set_level(_body(request, Level).level)
                return as_json(answer, HTTPStatus.BAD_REQUEST if isinstance(answer, Problem) else HTTPStatus.OK)
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


def _body(request: HttpRequest, shape: type[B]) -> B:
    return msgspec.json.decode(request.body or b"{}", type=shape)


def _set_level(level: str) -> CommandDone | Problem:
    name = level.lower()
    if name not in logs.LEVELS:
        return Problem(error=f"There is no level {level!r}; there is {', '.join(logs.LEVELS)}.")
    logging.getLogger(logs.ROOT).setLevel(logs.LEVELS[name])
    log.warning("log_level_set", to=name, by="operator")
    return CommandDone(text=f"The log level is {name} until the process ends.", changed=1)


class Serving:
    """Use it as a context manager around the assembly and the run of an app; off by `health.enabled`. Metrics are
    exported as well, if `metrics.otel` says so.

    Entering raises ConfigError if the port is taken and that matters (`health.required`).
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._server: Server | None = None
        self._open = ExitStack()
        self.running = Running(
            app=settings.app.name,
            version=settings.app.version,
            shutdown_timeout_s=settings.shutdown.timeout_s,
        )

    @property
    def url(self) -> str:
        """Where it is served; empty if it is not."""
        return self._server.url if self._server else ""

    def __enter__(self) -> Self:
        token = self._settings.control.token
        pages = Pages(OneApp(self.running), token=token.reveal() if token else None)
        with ExitStack() as opened, _collisions_are_config_errors():
            REGISTERED.add(self.running)
            opened.callback(REGISTERED.remove, self.running)
            if self._settings.metrics.otel:
                exporting = self._exported()
                exporting.start()
                opened.callback(exporting.stop)
            self._server = served(pages, self._settings.health, required=is_required(self._settings))
            if self._server is not None:
                opened.callback(self._server.stop)
            self._open = opened.pop_all()
        return self

    def _exported(self) -> MetricsExport:
        return MetricsExport(
            lambda: [*self.running.families(), *all_process_families()],
            app=self.running.app,
            version=self.running.version,
            interval_s=self._settings.metrics.interval_s,
            exporter=exporter_from(dict(os.environ)),
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def show(self, parts: Parts) -> None:
        """The app is put together. Raises ConfigError if two metrics would have one name."""
        with _collisions_are_config_errors():
            self.running.show(parts)
            REGISTERED.renew()


@contextmanager
def _collisions_are_config_errors() -> Iterator[None]:
    try:
        yield
    except Collision as error:
        raise ConfigError(f"Metrics: {error}.") from error
