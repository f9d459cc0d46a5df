"""The desk's API: the same policy as the page, in JSON, with an OpenAPI description made from the same types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from keepfast.core.errors import ControlRefused, KeepfastError, SinkError, SourceError
from keepfast.desk.audit import AuditEntry
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import Case, CaseHistory, CasePage, Summary
from keepfast.desk.causes import Cause
from keepfast.desk.cluster import SILENT_CODES, TIMEOUT_S
from keepfast.desk.trials import TrialReport, try_handler
from keepfast.desk_page.filters import MARKS, NAMES, VIEWS, filter_of
from keepfast.desk_page.orders import give, read_order
from keepfast.desk_page.payloads import HeaderView, Payload, headers_of, payload_of
from keepfast.desk_page.pulse import Pulse, refuse_in_outage
from keepfast.desk_page.replays import PlanRequest, PlanView, RunView
from keepfast.desk_page.screens import DeskBackend
from keepfast.desk_page.storage import StoredTopic
from keepfast.desk_page.tokens import DeskUser, Right
from keepfast.http.local_app import keepfast_version
from keepfast.telemetry.state import Problem

MAX_PAGE: Final = 500


class ApiRefused(Exception):
    """The request cannot be answered."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class FilterBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which cases: ids, or the parameters that a view has in its address."""

    cases: tuple[str, ...] = ()
    dlq: str = ""
    topic: str = ""
    group: str = ""
    cause: str = ""
    error: str = ""
    code: str = ""
    key: str = ""
    q: str = ""
    since: str = ""
    until: str = ""
    show: str = "waiting"


class MarkBody(FilterBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to do with these cases; `why` is needed for `fail`."""

    do: str
    why: str = ""


class NoteBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    case: str
    note: str


class CaseBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    case: str


class EditBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Send the record of a case with this value, a text."""

    case: str
    value: str
    why: str = ""


class ArchiveBody(FilterBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Archive these cases, of which only open ones can be."""

    why: str = ""


class PurgeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Delete letters that are not needed any more: at most `count`, or nothing."""

    count: int
    discarded: bool = False
    why: str = ""


class PlanBody(FilterBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A dry run."""

    rate: int = 0
    canary: int = 0
    stop: int = 0
    to: str = ""
    again: bool = False
    transform: str = ""


class StartBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    plan: str


class OrderBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`verb`: pause, resume or cancel."""

    verb: str


class ControlBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An order to a running consumer; `verb`: pause, resume, release or dead-letter. All but resume need `why`.
    `running`: also dead-letter a record whose handler runs and is not stuck.
    """

    process: str
    consumer: str
    verb: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    hold: str | None = None
    running: bool = False
    why: str = ""


class ActionResult(msgspec.Struct, frozen=True, kw_only=True):
    """How many cases changed, or what was done."""

    changed: int = 0
    text: str = ""


class Revealed(msgspec.Struct, frozen=True, kw_only=True):
    key: Payload
    value: Payload
    headers: list[HeaderView]


class StartedRun(msgspec.Struct, frozen=True, kw_only=True):
    run: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: how it is reached, what it takes and gives, and who may."""

    method: str
    path: str
    summary: str
    right: Right
    answer: Any
    call: Callable[[Request, DeskUser, Any], Any]
    body: Any = None
    query: tuple[str, ...] = ()
    needs_brokers: bool = True


class DeskApi:
    """Any thread may call its operations."""

    def __init__(self, backend: DeskBackend, pulse: Pulse) -> None:
        self._backend = backend
        self._pulse = pulse
        self._desk = backend.desk
        self.operations = self._operations()

    def _operations(self) -> tuple[Operation, ...]:
        view = NAMES
        return (
            Operation(
                "GET", "/summary", "How many cases are in each state", "read", Summary, self._summary, query=view
            ),
            Operation("GET", "/causes", "Causes, most unresolved first", "read", list[Cause], self._causes, query=view),
            Operation(
                "GET",
                "/cases",
                "Cases, last failure first",
                "read",
                CasePage,
                self._cases,
                query=(*view, "first", "size"),
            ),
            Operation("GET", "/case", "One case with its history", "read", CaseHistory, self._case, query=("id",)),
            Operation(
                "POST", "/case/reveal", "Values of one letter; audited", "reveal", Revealed, self._reveal, CaseBody
            ),
            Operation(
                "POST", "/cases/mark", "Discard, fail or restore cases", "mark", ActionResult, self._mark, MarkBody
            ),
            Operation("POST", "/case/note", "Leave a note at a case", "note", ActionResult, self._note, NoteBody),
            Operation("POST", "/plans", "Dry run of a replay", "replay", PlanView, self._plan, PlanBody),
            Operation("GET", "/runs", "Replays, latest first", "read", list[RunView], self._runs),
            Operation("POST", "/runs", "Start a planned replay", "replay", StartedRun, self._start, StartBody),
            Operation("GET", "/runs/{run}", "One replay", "read", RunView, self._run),
            Operation(
                "POST", "/runs/{run}/order", "Pause, resume or cancel", "replay", ActionResult, self._order, OrderBody
            ),
            Operation("POST", "/case/try", "Run today's handler; audited", "try", TrialReport, self._try, CaseBody),
            Operation(
                "POST", "/case/edit", "Send with another value; audited", "reveal", StartedRun, self._edit, EditBody
            ),
            Operation("GET", "/storage", "What dead-letter topics hold", "read", list[StoredTopic], self._stored),
            Operation(
                "POST", "/storage/purge", "Delete letters for good", "purge", ActionResult, self._purge, PurgeBody
            ),
            Operation("POST", "/cases/archive", "Archive cases", "archive", ActionResult, self._archive, ArchiveBody),
            Operation("GET", "/audit", "Who did what, latest first", "read", list[AuditEntry], self._audit),
            Operation(
                "POST",
                "/control",
                "Order a running consumer",
                "control",
                ActionResult,
                self._control,
                ControlBody,
                needs_brokers=False,
            ),
        )

    def routes(self) -> list[BaseRoute]:
        made: list[BaseRoute] = [Route("/openapi.json", self._description, methods=["GET"])]
        made += [Route(one.path, self._endpoint(one), methods=[one.method]) for one in self.operations]
        return made

    def _endpoint(self, operation: Operation) -> Callable[[Request], Any]:
        access = self._backend.access

        async def endpoint(request: Request) -> Response:
            if operation.method == "GET":
                user, body = access.authorize(request, operation.right), None
            else:
                user = access.authorize_change(request, operation.right, "")
                try:
                    body = msgspec.json.decode(await request.body(), type=operation.body)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    return answer(Problem(error=f"The body is invalid: {error}."), HTTPStatus.BAD_REQUEST)
            if operation.needs_brokers:
                await self._pulse.now()
                try:
                    refuse_in_outage(self._pulse.outage)
                except SourceError as error:
                    return answer(Problem(error=str(error)), HTTPStatus.SERVICE_UNAVAILABLE)
            return await run_in_threadpool(self._answered, operation, request, user, body)

        return endpoint

    def _answered(self, operation: Operation, request: Request, user: DeskUser, body: Any) -> Response:
        try:
            with self._desk.cluster.waiting_at_most(TIMEOUT_S):
                return answer(operation.call(request, user, body))
        except ApiRefused as error:
            return answer(Problem(error=str(error)), error.status)
        except ControlRefused as error:
            return answer(Problem(error=str(error)), HTTPStatus.CONFLICT)
        except KeepfastError as error:
            silent = isinstance(error, SourceError | SinkError) and error.code in SILENT_CODES
            status = HTTPStatus.SERVICE_UNAVAILABLE if silent else HTTPStatus.BAD_REQUEST
            return answer(Problem(error=str(error)), status)

    async def _description(self, request: Request) -> Response:
        self._backend.access.authorize(request, "read")
        return answer(description(self.operations))

    # -- reading

    def _where(self, request: Request) -> Any:
        return filter_of(request.query_params, self._desk.now_ms())

    def _summary(self, request: Request, _: DeskUser, __: None) -> Summary:
        self._desk.refresh()
        return self._desk.summary(self._where(request))

    def _causes(self, request: Request, _: DeskUser, __: None) -> list[Cause]:
        self._desk.refresh()
        return self._desk.causes(self._where(request))

    def _cases(self, request: Request, _: DeskUser, __: None) -> CasePage:
        self._desk.refresh()
        first, size = number(request, "first", 0, 10**9), number(request, "size", 100, MAX_PAGE)
        return self._desk.cases(self._where(request), first=first, size=size)

    def _case(self, request: Request, _: DeskUser, __: None) -> CaseHistory:
        self._desk.refresh()
        return self._found(request.query_params.get("id", ""))

    def _found(self, case: str) -> CaseHistory:
        found = self._desk.case(case)
        if found is None:
            raise ApiRefused(HTTPStatus.NOT_FOUND, "There is no such case.")
        return found

    def _reveal(self, _: Request, user: DeskUser, body: CaseBody) -> Revealed:
        case: Case = self._found(body.case).case
        stored = self._desk.acting_as(user.name, "api").reveal(case.letter)
        if stored is None:
            raise ApiRefused(HTTPStatus.GONE, "The letter is not there any more.")
        letter = stored.letter
        reading = None if self._backend.reader is None else self._backend.reader(letter)
        key, value = payload_of(letter.key, reveal=True), payload_of(letter.value, reveal=True, reading=reading)
        return Revealed(key=key, value=value, headers=headers_of(letter.headers, reveal=True))

    def _runs(self, _: Request, __: DeskUser, ___: None) -> list[RunView]:
        self._desk.refresh()
        return [self._backend.replays.view(one) for one in self._desk.runs()]

    def _run(self, request: Request, _: DeskUser, __: None) -> RunView:
        self._desk.refresh()
        found = self._desk.index.run(request.path_params["run"])
        if found is None:
            raise ApiRefused(HTTPStatus.NOT_FOUND, "There is no such replay.")
        return self._backend.replays.view(found)

    def _audit(self, _: Request, __: DeskUser, ___: None) -> list[AuditEntry]:
        return self._desk.audit(500)

    # -- acting

    def _selected(self, body: FilterBody) -> Any:
        given = {name: getattr(body, name) for name in NAMES}
        if body.show not in VIEWS:
            raise ApiRefused(HTTPStatus.BAD_REQUEST, f"`show` is one of {', '.join(VIEWS)}.")
        where = filter_of(given, self._desk.now_ms())
        return CaseFilter(cases=frozenset(body.cases)) if body.cases else where

    def _mark(self, _: Request, user: DeskUser, body: MarkBody) -> ActionResult:
        kind = MARKS.get(body.do)
        if kind is None:
            raise ApiRefused(HTTPStatus.BAD_REQUEST, "`do` is discard, fail or restore.")
        self._desk.refresh()
        cases = [case.id for case in self._desk.index.selected(self._desk.own(self._selected(body)))]
        desk = self._desk.acting_as(user.name, "api")
        return ActionResult(changed=desk.mark(cases, kind, why=body.why[:1_000]))

    def _note(self, _: Request, user: DeskUser, body: NoteBody) -> ActionResult:
        self._found(body.case)
        self._desk.acting_as(user.name, "api").note(body.case, body.note[:1_000])
        return ActionResult(changed=1)

    def _plan(self, _: Request, _user: DeskUser, body: PlanBody) -> PlanView:
        self._desk.refresh()
        fields = ("rate", "canary", "stop", "to", "transform")
        asked = PlanRequest.of(
            {name: str(getattr(body, name)) for name in fields} | ({"again": "1"} if body.again else {})
        )
        return self._backend.replays.plan(self._selected(body), asked, via="api")

    def _start(self, _: Request, user: DeskUser, body: StartBody) -> StartedRun:
        return StartedRun(run=self._backend.replays.start(body.plan, user.name))

    def _order(self, request: Request, user: DeskUser, body: OrderBody) -> ActionResult:
        self._backend.replays.order(request.path_params["run"], body.verb, user.name)
        return ActionResult(changed=1)

    def _try(self, _: Request, user: DeskUser, body: CaseBody) -> TrialReport:
        trier = self._backend.trier
        if trier is None:
            raise ApiRefused(HTTPStatus.NOT_FOUND, "The desk was started without an app.")
        return try_handler(self._desk.acting_as(user.name, "api"), trier, self._found(body.case).case.letter)

    def _edit(self, _: Request, user: DeskUser, body: EditBody) -> StartedRun:
        self._desk.refresh()
        case = self._found(body.case).case
        value = body.value.encode("utf-8", "surrogatepass")
        return StartedRun(run=self._backend.replays.edit(case, value, user.name, why=body.why[:1_000]))

    def _stored(self, _: Request, __: DeskUser, ___: None) -> list[StoredTopic]:
        self._desk.refresh()
        return self._backend.storage.topics()

    def _purge(self, _: Request, user: DeskUser, body: PurgeBody) -> ActionResult:
        acting = self._desk.acting_as(user.name, "api")
        number = self._backend.storage.purge(
            acting, discarded=body.discarded, confirmed=body.count, why=body.why[:1_000]
        )
        return ActionResult(changed=number)

    def _archive(self, _: Request, user: DeskUser, body: ArchiveBody) -> ActionResult:
        self._desk.refresh()
        cases = [case.id for case in self._desk.index.selected(self._desk.own(self._selected(body)))]
        acting = self._desk.acting_as(user.name, "api")
        return ActionResult(changed=self._backend.storage.archive(acting, cases, why=body.why[:1_000]))

    def _control(self, _: Request, user: DeskUser, body: ControlBody) -> ActionResult:
        names = ("process", "consumer", "verb", "topic", "partition", "offset", "hold")
        given = ((name, getattr(body, name)) for name in names)
        order = read_order({name: value for name, value in given if value is not None})
        text = give(self._backend.processes, order, by=user.name, why=body.why, via="api", running=body.running)
        return ActionResult(changed=1, text=text)


def answer(value: object, status: int = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def number(request: Request, name: str, default: int, most: int) -> int:
    """Raises ApiRefused."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 12:
        raise ApiRefused(HTTPStatus.BAD_REQUEST, f"`{name}` is a number of 0 or more.")
    return min(int(text), most)


# -- the description


def description(operations: tuple[Operation, ...]) -> dict[str, Any]:
    """OpenAPI 3.1, from the types of the operations."""
    types = [Problem, *(one.answer for one in operations), *(one.body for one in operations if one.body is not None)]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = dict(zip(map(str, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(f"/api/v1{one.path}", {})[one.method.lower()] = _operation(one, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "keepfast desk", "version": keepfast_version()},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(one: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    def content(kind: Any) -> dict[str, Any]:
        return {"application/json": {"schema": schemas[str(kind)]}}

    text = {"type": "string", "maxLength": 500}
    parameters = [{"name": name, "in": "query", "schema": text} for name in one.query]
    if "{run}" in one.path:
        parameters.append({"name": "run", "in": "path", "required": True, "schema": {"type": "string"}})  # type: ignore[dict-item]
    refusals = {code: {"description": why, "content": content(Problem)} for code, why in REFUSALS.items()}
    described: dict[str, Any] = {
        "summary": one.summary,
        "description": f"Needs the right `{one.right}`.",
        "operationId": f"{one.method.lower()}{one.path.replace('/', '_').replace('{', '').replace('}', '')}",
        "parameters": parameters,
        "responses": {"200": {"description": "Done", "content": content(one.answer)}, **refusals},
    }
    if one.body is not None:
        described["requestBody"] = {"required": True, "content": content(one.body)}
    return described


REFUSALS: Final = {
    "400": "The request is invalid, or cannot be carried out",
    "401": "No token, or an invalid one",
    "403": "The role may not do this",
    "404": "There is no such case or replay",
    "405": "The method is not allowed",
    "409": "A running process refused it",
    "410": "The letter is not there any more",
    "413": "The body is too large",
    "429": "Too many requests; see Retry-After",
    "503": "Kafka does not answer",
}
