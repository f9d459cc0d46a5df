"""The desk as an ASGI application: routes, sessions, errors, and the events that let an open page read itself again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from keepfast.core.errors import KeepfastError
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.desk import Desk
from keepfast.desk_page.access import API, COOKIE, SESSION_S, AccessGate, Denied, plain_refusal
from keepfast.desk_page.api import DeskApi
from keepfast.desk_page.filters import VIEWS
from keepfast.desk_page.pulse import Pulse, refuse_in_outage
from keepfast.desk_page.record_screen import RecordScreen
from keepfast.desk_page.screens import DeskBackend, Screens, StorageScreen
from keepfast.desk_page.tokens import DeskUser, Right
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.desk_page")

DISCOVER_S: Final = 10.0
"""How often dead-letter topics are looked for."""
STATIC: Final = Path(__file__).parent / "static"
View = Callable[[Request, DeskUser], Response]
Act = Callable[[Request, DeskUser, FormData], Response]


MAX_STREAMS: Final = 200
PAGE_TIMEOUT_S: Final = 4.0
"""A page waits this long for what only the brokers have, such as the value of a record."""
ACTION_TIMEOUT_S: Final = 15.0


def export_lines(desk: Desk) -> Iterator[bytes]:
    """All cases that were put aside. Noted in the audit first."""
    where = desk.own(CaseFilter(states=VIEWS["put-aside"]))
    desk.note_action("export", count=desk.cases(where, size=1).total, what="discarded")
    return (msgspec.json.encode(asdict(case)) + b"\n" for case in desk.index.selected(where))


class DeskApplication:
    """`asgi` is the application, with these `routes`. Closing the backend is left to its maker."""

    def __init__(self, backend: DeskBackend, discover: Callable[[], Sequence[str]] | None = None) -> None:
        self._discover = discover
        self._discovered_at = float("-inf")
        self._access = backend.access
        self._desk = backend.desk
        self._pulse = Pulse(self._read_kafka, backend.desk.cluster)
        self._screens = Screens(backend, self._pulse)
        self._record = RecordScreen(backend, self._screens)
        self._storage = StorageScreen(backend, self._screens)
        self._changes = 0
        starlette = self._starlette(backend)
        self.routes = starlette.routes
        self.asgi = AccessGate(starlette, self._access)

    def _starlette(self, backend: DeskBackend) -> Starlette:
        screens = self._screens
        gets: list[tuple[str, View]] = [
            ("/", screens.failures),
            ("/causes/{fingerprint}", screens.cause),
            ("/records", screens.cases),
            ("/message", self._record.show),
            ("/discarded", screens.discarded),
            ("/replay", screens.plan_form),
            ("/runs", screens.runs),
            ("/runs/{run}", screens.run),
            ("/consumers", screens.consumers),
            ("/timeline", screens.timeline),
            ("/audit", screens.audit),
            ("/storage", self._storage.show),
        ]
        posts: list[tuple[str, Right, Act]] = [
            ("/mark", "mark", screens.mark),
            ("/archive", "archive", self._storage.archive),
            ("/note", "note", self._record.note),
            ("/message/reveal", "reveal", self._record.reveal),
            ("/message/try", "try", self._record.attempt),
            ("/message/edit", "reveal", self._record.edit),
            ("/storage/purge", "purge", self._storage.purge),
            ("/replay", "replay", screens.make_plan),
            ("/runs", "replay", screens.start_run),
            ("/runs/order", "replay", screens.order_run),
            ("/consumers", "control", screens.control),
        ]
        routes = [
            Route("/login", self._login_page, methods=["GET"]),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/logout", self._log_out, methods=["POST"]),
            Route("/live", self._live, methods=["GET"]),
            *(Route(path, self._post(right, act), methods=["POST"]) for path, right, act in posts),
            *(Route(path, self._get(view), methods=["GET"]) for path, view in gets),
            Route("/consumers/order", self._get(screens.order_form, "control"), methods=["GET"]),
            Route("/discarded.jsonl", self._get(self._export, "export"), methods=["GET"]),
            Mount("/static", StaticFiles(directory=STATIC)),
            Mount("/api/v1", routes=DeskApi(backend, self._pulse).routes()),
        ]
        handlers: dict[Any, Any] = {
            Denied: self._denied,
            HTTPException: self._http_error,
            KeepfastError: self._failed,
            Exception: self._broken,
        }
        return Starlette(routes=routes, exception_handlers=handlers)

    def _read_kafka(self) -> object:
        """Read what is new in Kafka; returns the number of readings that have found something."""
        if self._discover is not None and time.monotonic() - self._discovered_at >= DISCOVER_S:
            self._desk.read_topics(self._discover())
            self._discovered_at = time.monotonic()
        found = self._desk.refresh()
        self._changes += bool(found.letters or found.facts)
        return self._changes

    # -- pages

    def _get(self, view: View, right: Right = "read") -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            user = self._access.authorize(request, right)
            await self._pulse.now()
            return await run_in_threadpool(self._within, PAGE_TIMEOUT_S, view, request, user)

        return endpoint

    def _post(self, right: Right, act: Act) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            self._access.authorize(request, "read")  # before the body is read
            form = await request.form(max_files=0, max_fields=20_000)
            user = self._access.authorize_change(request, right, str(form.get("csrf", "")))
            if right != "control":  # a running consumer is controlled without the brokers
                await self._pulse.now()
                refuse_in_outage(self._pulse.outage)
            try:
                return await run_in_threadpool(self._within, ACTION_TIMEOUT_S, act, request, user, form)
            finally:
                self._pulse.expire()

        return endpoint

    def _within(self, timeout_s: float, call: Callable[..., Response], *arguments: Any) -> Response:
        with self._desk.cluster.waiting_at_most(timeout_s):
            return call(*arguments)

    def _export(self, _: Request, user: DeskUser) -> Response:
        lines = export_lines(self._desk.acting_as(user.name, "page"))
        headers = {"content-disposition": 'attachment; filename="discarded.jsonl"'}
        return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)

    async def _live(self, request: Request) -> Response:
        self._access.authorize(request, "read")
        if self._pulse.streams >= MAX_STREAMS:
            raise Denied(HTTPStatus.TOO_MANY_REQUESTS, "Too many pages are open.", retry_after_s=30)
        always = request.query_params.get("always") == "1"
        return StreamingResponse(self._pulse.stream(request, always=always), media_type="text/event-stream")

    # -- sessions

    async def _login_page(self, request: Request) -> Response:
        return self._screens.login(request)

    async def _log_in(self, request: Request) -> Response:
        form = await request.form(max_files=0, max_fields=10)
        try:
            cookie = self._access.log_in(request, str(form.get("token", "")).strip())
        except Denied as denied:
            return self._screens.login(request, str(denied), denied.status)
        response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=int(SESSION_S),
            httponly=True,
            samesite="strict",
            secure=self._access.policy.https or request.url.scheme == "https",
        )
        return response

    async def _log_out(self, request: Request) -> Response:
        form = await request.form(max_files=0, max_fields=10)
        self._access.authorize_change(request, "read", str(form.get("csrf", "")))
        self._access.log_out(request)
        response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        response.delete_cookie(COOKIE)
        return response

    # -- errors

    async def _denied(self, request: Request, error: Exception) -> Response:
        denied = cast(Denied, error)
        wants_page = request.method == "GET" and not request.url.path.startswith((API, "/live"))
        if denied.status == HTTPStatus.UNAUTHORIZED and wants_page and "x-desk-live" not in request.headers:
            return RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        return plain_refusal(request, denied)

    async def _http_error(self, request: Request, error: Exception) -> Response:
        found = cast(HTTPException, error)
        return await self._problem(
            request, found.status_code, "There is no such page." if found.status_code == 404 else found.detail
        )

    async def _failed(self, request: Request, error: Exception) -> Response:
        return await self._problem(request, HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    async def _broken(self, request: Request, error: Exception) -> Response:
        log.error("desk_request_failed", method=request.method, path=request.url.path, exc=error)
        return await self._problem(
            request, HTTPStatus.INTERNAL_SERVER_ERROR, "The request failed; see the log of the desk."
        )

    async def _problem(self, request: Request, status: int, text: str) -> Response:
        if request.url.path.startswith(API):
            return JSONResponse({"error": text}, status)
        try:
            user = self._access.identify(request)
        except Denied:
            return plain_refusal(request, Denied(status, text))
        return await run_in_threadpool(self._screens.problem, request, user, status, text)
