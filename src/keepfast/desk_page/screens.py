"""The screens: what each shows and what its forms do. Handlers block; Starlette runs them on threads."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from keepfast.core.errors import KeepfastError, SourceError
from keepfast.deadletters.checked import iso
from keepfast.desk.audit import AuditEntry
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import CaseState
from keepfast.desk.cluster import GroupMember
from keepfast.desk.desk import Desk
from keepfast.desk.letters import StoredLetter, ValueReader
from keepfast.desk.masking import frames
from keepfast.desk.trials import Trier
from keepfast.desk_page import wording
from keepfast.desk_page.access import Access
from keepfast.desk_page.commands import Commands
from keepfast.desk_page.filters import MARKS, address, filter_of, frozen_at
from keepfast.desk_page.orders import InvalidOrder, give, read_order
from keepfast.desk_page.payloads import compare, frames_of
from keepfast.desk_page.processes import Processes, ProcessView
from keepfast.desk_page.pulse import Pulse
from keepfast.desk_page.replays import PlanRequest, ReplayService
from keepfast.desk_page.storage import Storage
from keepfast.desk_page.tokens import DeskUser
from keepfast.engine.control import OPERATOR
from keepfast.telemetry.state import HOLDS, TimelineEvent

PAGE: Final = 25
MAX_MARKED: Final = 100_000
SAMPLES: Final = 3
THEMES: Final = ("light", "dark")
NAV: Final = (
    ("failures", "/", "Failures"),
    ("runs", "/runs", "Replays"),
    ("discarded", "/discarded", "Discarded"),
    ("consumers", "/consumers", "Consumers"),
    ("timeline", "/timeline", "Timeline"),
    ("audit", "/audit", "Audit"),
    ("storage", "/storage", "Storage"),
)
DONE: Final[Mapping[str, str]] = {
    "discarded": "{n} marked as discarded. Nothing was deleted: they can be restored.",
    "permanently-failed": "{n} marked as permanently failed.",
    "restored": "{n} restored: they are waiting again.",
    "noted": "The note was saved.",
    "ordered": "Done.",
    "started": "The replay has started.",
    "edited": "The record was sent with its new value.",
    "archived": "{n} archived: `restore` brings them back, also after a purge.",
    "purged": "{n} deleted for good.",
    "order": "The order was given; the run follows it after the records that are under way.",
}
"""What an action says afterwards; {n} is a number of records."""


@dataclass(frozen=True, slots=True)
class DeskBackend:
    """What the screens read and act on."""

    desk: Desk
    processes: Processes
    replays: ReplayService
    access: Access
    storage: Storage
    trier: Trier | None = None
    """Tries today's handler on a letter; None: the desk was started without an app."""
    command_options: tuple[str, ...] = ()
    """With these, commands reach the same cluster."""
    reader: ValueReader | None = None
    """Reads values by their registered schema; None: the desk was started without a registry."""


def environment() -> Environment:
    """Every value is escaped; an unknown one is an error."""
    made = Environment(
        loader=PackageLoader("keepfast.desk_page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": wording.count,
        "plural": wording.plural,
        "duration": wording.duration,
        "when": wording.when,
        "iso": iso,
        "size": wording.size,
        "state_word": wording.state_word,
        "state_colour": wording.state_colour,
        "spark": wording.spark,
        "sentence": wording.sentence_of,
        "tojson_text": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    }
    made.globals |= {"nav": NAV, "holds": HOLDS, "kinds": wording.KINDS, "State": CaseState, "operator_hold": OPERATOR}
    made.globals["trial_frames"] = frames_of
    return made


class Screens:
    """Any thread may call it."""

    def __init__(self, backend: DeskBackend, pulse: Pulse) -> None:
        self._backend = backend
        self._pulse = pulse
        self._desk = backend.desk
        self._templates = environment()
        self.commands = Commands(backend.desk, backend.command_options)

    # -- frame

    def render(
        self, request: Request, template: str, *, user: DeskUser | None, status: int = 200, **values: Any
    ) -> Response:
        now_ms = self._desk.now_ms()
        theme = request.cookies.get("keepfast_theme", "")
        done = request.query_params.get("done", "")
        number = request.query_params.get("n", "0")
        frame = {
            "user": user,
            "csrf": self._backend.access.csrf(request),
            "theme": theme if theme in THEMES else "",
            "now_ms": now_ms,
            "params": defaultdict(str, request.query_params),
            "path": request.url.path,
            "ago": lambda at_ms: wording.ago(at_ms, now_ms),
            "link": lambda path, **changes: address(path, request.query_params, **changes),
            "may": user.may if user is not None else lambda _: False,
            "done_text": DONE[done].format(n=wording.plural(int(number), "record"))
            if done in DONE and number.isdecimal()
            else "",
            "refused": request.query_params.get("refused", "")[:300],
            "waiting": self._desk.summary().counts.get(CaseState.OPEN, 0) if user is not None else 0,
            "missing": (),
            "can_archive": bool(self._backend.storage.place),
            "live": "",
            "outage": self._pulse.outage,
        }
        body = self._templates.get_template(template).render(frame | values)
        return HTMLResponse(body, status)

    def problem(self, request: Request, user: DeskUser | None, status: int, text: str) -> Response:
        return self.render(request, "problem.html", user=user, status=status, active="", text=text, code=status)

    def login(self, request: Request, problem: str = "", status: int = 200) -> Response:
        return self.render(request, "login.html", user=None, status=status, problem=problem)

    # -- failures

    def failures(self, request: Request, user: DeskUser) -> Response:
        given = request.query_params
        show = given.get("show", "waiting")
        where = filter_of(given, self._desk.now_ms(), show="waiting")
        everything = filter_of({**given, "show": "all"}, self._desk.now_ms())
        causes = self._desk.causes(where)
        return self.render(
            request,
            "failures.html",
            user=user,
            active="failures",
            show=show,
            summary=self._desk.summary(everything),
            whole=self._desk.summary(),
            causes=causes,
            happening=sum(one.still_happens(self._desk.now_ms()) for one in causes),
            topics=sorted(self._desk.options.topics),
            groups=sorted({group for one in self._desk.causes() for group in one.groups if group}),
            command=self.commands.causes(where),
            live="/live",
        )

    def cause(self, request: Request, user: DeskUser) -> Response:
        fingerprint = request.path_params["fingerprint"]
        given = {**request.query_params, "cause": fingerprint}
        show = given.get("show", "waiting")
        where = filter_of(given, self._desk.now_ms(), show="waiting")
        whole = [
            one for one in self._desk.causes(filter_of({"cause": fingerprint}, 0)) if one.fingerprint == fingerprint
        ]
        if not whole:
            return self.problem(request, user, 404, "There is no such cause. Its letters may have been deleted.")
        samples = self._samples(filter_of({"cause": fingerprint}, 0))
        first = samples[0].letter if samples else None
        return self.render(
            request,
            "cause.html",
            user=user,
            active="failures",
            cause=whole[0],
            letter=first,
            frames=frames_of(frames(first.stack_trace)) if first is not None else [],
            samples=samples,
            rows=compare([one.letter.value for one in samples]),
            show=show,
            **self._list(where, request),
            command=self.commands.cases(where),
            live="/live",
        )

    def _samples(self, where: CaseFilter) -> list[StoredLetter]:
        """Letters of a cause: the newest and the oldest, and one between them."""
        page = self._desk.cases(where, size=1)
        picks = sorted({0, page.total // 2, max(0, page.total - 1)})[:SAMPLES]
        cases = [one for at in picks for one in self._desk.cases(where, first=at, size=1).cases]
        try:
            return [letter for one in cases if (letter := self._desk.letter(one.letter)) is not None]
        except SourceError:
            return []

    def _list(self, where: CaseFilter, request: Request) -> dict[str, Any]:
        first = _number(request.query_params.get("first")) or 0
        page = self._desk.cases(where, first=first, size=PAGE)
        return {
            "page": page,
            "first": first,
            "next": first + PAGE if first + PAGE < page.total else None,
            "before": max(0, first - PAGE) if first else None,
            "seen_ms": self._desk.now_ms(),
        }

    def cases(self, request: Request, user: DeskUser) -> Response:
        where = filter_of(request.query_params, self._desk.now_ms())
        return self.render(
            request,
            "cases.html",
            user=user,
            active="failures",
            show=request.query_params.get("show", "all"),
            **self._list(where, request),
            command=self.commands.cases(where),
            live="/live",
        )

    def discarded(self, request: Request, user: DeskUser) -> Response:
        given = {**request.query_params, "show": "put-aside"}
        where = filter_of(given, self._desk.now_ms())
        marks = {}
        listed = self._list(where, request)
        for one in listed["page"].cases:
            history = self._desk.case(one.id)
            marks[one.id] = history.mark if history is not None else None
        return self.render(
            request,
            "discarded.html",
            user=user,
            active="discarded",
            show="put-aside",
            marks=marks,
            **listed,
            command=self.commands.cases(where),
            live="/live",
        )

    # -- marks

    def mark(self, request: Request, user: DeskUser, form: FormData) -> Response:
        kind = MARKS.get(str(form.get("do", "")))
        back = local(str(form.get("back", "/")))
        if kind is None:
            return self.problem(request, user, 400, "There is no such action.")
        try:
            why, note = (str(form.get(name, ""))[:1_000] for name in ("why", "note"))
            number = self._desk.acting_as(user.name, "page").mark(self.chosen(form), kind, why=why, note=note)
        except KeepfastError as error:
            return redirect(back, refused=str(error))
        return redirect(back, done=kind, n=number)

    def chosen(self, form: FormData) -> list[str]:
        """The ids of the cases: those that were ticked, or all that match and were there when the page was made."""
        if form.get("everything"):
            given = {name: str(value) for name, value in form.items() if isinstance(value, str)}
            where = frozen_at(filter_of(given, self._desk.now_ms()), _number(given.get("seen_ms")) or 0)
            return [case.id for case in self._desk.index.selected(self._desk.own(where))][:MAX_MARKED]
        return [str(one) for one in form.getlist("case")][:MAX_MARKED]

    # -- consumers, timeline, audit

    def consumers(self, request: Request, user: DeskUser) -> Response:
        """From the processes alone. The brokers are asked for members only by a person who asks for them: a request for
        a group that a silent coordinator leaves open can crash the client (librdkafka #4605).
        """
        views = self._backend.processes.views()
        asked = bool(request.query_params.get("members")) and "x-desk-live" not in request.headers
        return self.render(
            request,
            "consumers.html",
            user=user,
            active="consumers",
            processes=views,
            groups=self._groups(views) if asked and self._pulse.outage is None else [],
            controllable=bool(self._backend.processes.token),
            command=self.commands.consumers(next((one.url for one in views if not one.problem), None)),
            live="/live?always=1",
        )

    def _groups(self, views: Any) -> list[tuple[str, list[GroupMember] | None]]:
        """Every group that has letters or a process here, with its members as the brokers know them."""
        known = {group for one in self._desk.causes() for group in one.groups if group}
        known |= {detail.state.group for view in views for _, detail in view.consumers}
        return [(group, self._desk.cluster.members(group)) for group in sorted(known)[:50]]

    def order_form(self, request: Request, user: DeskUser) -> Response:
        """The confirmation of an order to a consumer: it names what is meant, and asks why."""
        try:
            order = read_order(request.query_params)
        except InvalidOrder as error:
            return self.problem(request, user, HTTPStatus.BAD_REQUEST, str(error))
        return self.render(request, "order.html", user=user, active="consumers", order=order)

    def control(self, request: Request, user: DeskUser, form: FormData) -> Response:
        """An order to a consumer; its process writes the audit."""
        try:
            order = read_order({name: value for name, value in form.items() if name not in ("csrf", "why")})
        except InvalidOrder as error:
            return self.problem(request, user, HTTPStatus.BAD_REQUEST, str(error))
        try:
            give(self._backend.processes, order, by=user.name, why=str(form.get("why", "")), via="page")
        except KeepfastError as error:
            return redirect("/consumers", refused=str(error))
        return redirect("/consumers", done="ordered")

    def timeline(self, request: Request, user: DeskUser) -> Response:
        return self.render(
            request,
            "timeline.html",
            user=user,
            active="timeline",
            days=timeline_of(self._backend.processes.events(), self._actions(), request.query_params.get("q", "")),
            processes=self._backend.processes.addresses(),
            command=self.commands.audit(),
            live="/live?always=1",
        )

    def _actions(self) -> list[AuditEntry]:
        """None while the brokers are silent: the events of processes are there without them."""
        try:
            return self._desk.audit(200)
        except SourceError:
            return []

    def audit(self, request: Request, user: DeskUser) -> Response:
        found = self._desk.audit(500)
        wanted = request.query_params.get("q", "").lower()
        entries = [one for one in found if wanted in f"{one.by} {one.action} {one.what} {one.why}".lower()]
        return self.render(
            request,
            "audit.html",
            user=user,
            active="audit",
            entries=entries,
            total=len(found),
            command=self.commands.audit(),
            live="/live",
        )

    # -- replays

    def plan_form(self, request: Request, user: DeskUser) -> Response:
        chosen = request.query_params.getlist("case")
        where = (
            CaseFilter(cases=frozenset(chosen))
            if chosen
            else filter_of(request.query_params, self._desk.now_ms(), show="waiting")
        )
        return self.render(
            request,
            "plan.html",
            user=user,
            active="runs",
            plan=None,
            asked=PlanRequest(),
            transforms=self._backend.replays.transforms,
            total=len(chosen) or self._desk.cases(where, size=1).total,
            cases=chosen[:500],
            seen_ms=self._desk.now_ms(),
            problem="",
            command=self.commands.replay(where, PlanRequest()),
        )

    def make_plan(self, request: Request, user: DeskUser, form: FormData) -> Response:
        """The dry run: the selection is frozen, nothing is sent."""
        given = {name: str(value) for name, value in form.items() if isinstance(value, str)}
        asked, problem, plan = PlanRequest.of(given), "", None
        where = self._selection(form, given)
        try:
            plan = self._backend.replays.plan(where, asked, via="page")
        except KeepfastError as error:
            problem = str(error)
        return self.render(
            request,
            "plan.html",
            user=user,
            active="runs",
            plan=plan,
            asked=asked,
            transforms=self._backend.replays.transforms,
            total=self._desk.cases(where, size=1).total,
            cases=form.getlist("case")[:500],
            seen_ms=_number(given.get("seen_ms")) or 0,
            params=defaultdict(str, given),
            problem=problem,
            command=self.commands.replay(where, asked),
        )

    def _selection(self, form: FormData, given: Mapping[str, str]) -> CaseFilter:
        where = frozen_at(filter_of(given, self._desk.now_ms(), show="waiting"), _number(given.get("seen_ms")) or 0)
        cases = frozenset(str(one) for one in form.getlist("case"))
        return CaseFilter(cases=cases) if cases else where

    def start_run(self, request: Request, user: DeskUser, form: FormData) -> Response:  # noqa: ARG002 - as every action
        try:
            run = self._backend.replays.start(str(form.get("plan", "")), user.name)
        except KeepfastError as error:
            return redirect("/runs", refused=str(error))
        return redirect(f"/runs/{run}", done="started")

    def runs(self, request: Request, user: DeskUser) -> Response:
        return self.render(
            request,
            "runs.html",
            user=user,
            active="runs",
            runs=[self._backend.replays.view(one) for one in self._desk.runs()],
            command=self.commands.runs(),
            live="/live",
        )

    def run(self, request: Request, user: DeskUser) -> Response:
        found = self._desk.index.run(request.path_params["run"])
        if found is None:
            return self.problem(request, user, 404, "There is no such replay.")
        view = self._backend.replays.view(found)
        return self.render(
            request,
            "run.html",
            user=user,
            active="runs",
            run=view,
            command=self.commands.resume(view.fact) if view.orders else self.commands.runs(),
            live="/live",
        )

    def order_run(self, request: Request, user: DeskUser, form: FormData) -> Response:  # noqa: ARG002 - as every action
        run, verb = str(form.get("run", "")), str(form.get("verb", ""))
        try:
            self._backend.replays.order(run, verb, user.name)
        except KeepfastError as error:
            return redirect(f"/runs/{run}" if self._desk.index.run(run) else "/runs", refused=str(error))
        return redirect(f"/runs/{run}", done="order")


def redirect(path: str, **values: str | int) -> Response:
    joiner = "&" if "?" in path else "?"
    return RedirectResponse(f"{path}{joiner}{urlencode(values)}" if values else path, 303)


def local(path: str) -> str:
    """A path of this desk, or its start page: never another site."""
    ok = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()  # tabs would be left out
    if not ok:
        return "/"
    parts = urlsplit(path)
    left = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("done", "n", "refused")]
    return f"{parts.path}?{urlencode(left)}" if left else parts.path


def _number(value: object) -> int | None:
    """A number of a form or an address; None if it is none."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 16 else None


class StorageScreen:
    """The screen Storage: what dead-letter topics hold; archive and purge. Any thread may call it."""

    def __init__(self, backend: DeskBackend, screens: Screens) -> None:
        self._desk = backend.desk
        self._storage = backend.storage
        self._screens = screens

    def show(self, request: Request, user: DeskUser) -> Response:
        topics = self._storage.topics()
        return self._screens.render(
            request,
            "storage.html",
            user=user,
            active="storage",
            topics=topics,
            letters=sum(one.letters for one in topics),
            purgeable=sum(one.purgeable for one in topics),
            with_discarded=sum(one.with_discarded for one in topics),
            archive=self._storage.place,
            command=self._screens.commands.purge(),
            live="/live",
        )

    def purge(self, request: Request, user: DeskUser, form: FormData) -> Response:  # noqa: ARG002 - as every action
        acting, confirmed = self._desk.acting_as(user.name, "page"), _number(form.get("count")) or 0
        try:
            why = str(form.get("why", ""))[:1_000]
            number = self._storage.purge(acting, discarded=bool(form.get("discarded")), confirmed=confirmed, why=why)
        except KeepfastError as error:
            return redirect("/storage", refused=str(error))
        return redirect("/storage", done="purged", n=number)

    def archive(self, request: Request, user: DeskUser, form: FormData) -> Response:  # noqa: ARG002 - as every action
        back = local(str(form.get("back", "/")))
        acting, why = self._desk.acting_as(user.name, "page"), str(form.get("why", ""))[:1_000]
        try:
            number = self._storage.archive(acting, self._screens.chosen(form), why=why)
        except KeepfastError as error:
            return redirect(back, refused=str(error))
        return redirect(back, done="archived", n=number)


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """What happened, on the screen Timeline, in one sentence: an event of a process, or an action at the desk. `kind`:
    its name, for the search.
    """

    at_ms: int
    kind: str
    text: str
    colour: str
    where: tuple[str, ...]
    count: int = 1


def timeline_of(
    views: Sequence[ProcessView], audit: Sequence[AuditEntry], wanted: str = ""
) -> list[tuple[str, list[TimelineEntry]]]:
    """Days with their entries, the latest first. `wanted`: part of an entry's text."""
    entries = [_event(view.url, one) for view in views for one in view.events]
    entries += [_action(one) for one in audit]
    found = [one for one in entries if wanted.lower() in f"{one.kind} {one.text} {' '.join(one.where)}".lower()]
    days: dict[str, list[TimelineEntry]] = {}
    for one in sorted(found, key=lambda one: -one.at_ms):
        days.setdefault(datetime.fromtimestamp(one.at_ms / 1000, UTC).strftime("%A, %d %B %Y"), []).append(one)
    return list(days.items())


def _event(url: str, one: TimelineEvent) -> TimelineEntry:
    where = (one.consumer, one.group, url.removeprefix("http://"))
    return TimelineEntry(round(one.at * 1000), one.event, f"{one.text.rstrip('.')}.", one.level, where, one.count)


def _action(one: AuditEntry) -> TimelineEntry:
    sentence = wording.action_of(one)
    return TimelineEntry(one.at_ms, one.action, sentence, "accent", tuple(filter(None, ("desk", one.topic, one.via))))
