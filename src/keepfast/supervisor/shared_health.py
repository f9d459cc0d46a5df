"""One health server for all children of a supervisor: each request is answered from the children's own answers.

The supervisor connects to each child through a Unix socket.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

import msgspec

from keepfast.http.client import fetch
from keepfast.http.health import worst_level
from keepfast.http.local_app import REPLY_TIMEOUT_S as LOOP_TIMEOUT_S
from keepfast.http.local_app import SUPERVISED, order_done
from keepfast.http.pages import API, FAMILIES, Pages, ServedApp
from keepfast.http.server import UNIX, HttpRequest, Response, Server, as_json, problem, start_server
from keepfast.settings import HealthSettings
from keepfast.supervisor.parent_link import Report
from keepfast.supervisor.process import ChildSpec
from keepfast.supervisor.supervisor import ChildStatus
from keepfast.telemetry import catalogue
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.metrics import MetricFamily, Sample
from keepfast.telemetry.prometheus import REGISTERED, by_process, exposed, unpacked
from keepfast.telemetry.state import (
    AppState,
    CommandDone,
    ControlDone,
    HealthReport,
    Positions,
    Problem,
    ProcessState,
    Reason,
    TimelineEvent,
    TimelineEvents,
)

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = get_logger("keepfast.supervisor")

REPLY_TIMEOUT_S: Final = 2.5
ORDER_TIMEOUT_S: Final = LOOP_TIMEOUT_S + 1.5
"""A child waits for the reply of a loop, and then says that there is none."""
SEEK_TIMEOUT_S: Final = 300.0
"""A child answers a seek when the records in flight are finished; its own settings bound that."""
MAX_AT_ONCE: Final = 16
MAX_SOCKET_PATH: Final = 100
"""Bytes of the address of a Unix socket: 107 on Linux, 103 elsewhere."""
SHORT_FOLDER: Final = "/tmp"  # noqa: S108 - a folder of its own is made in it
SUPERVISOR: Final = "supervisor"

T = TypeVar("T")


class ChildSockets:
    """The Unix sockets of the children, in a folder that only this user can access."""

    def __init__(self, folder: Path, processes: int) -> None:
        self._folder = folder
        self._processes = processes

    def of(self, index: int) -> Path:
        return self._folder / f"{index}.sock"

    def all(self) -> dict[str, str]:
        """Process → address."""
        return {str(index): address for index, address in self.by_index().items()}

    def by_index(self) -> dict[int, str]:
        return {index: f"{UNIX}{self.of(index)}" for index in range(self._processes)}


class Children(ServedApp):
    """The children of a supervisor as one app. Health names the children that do not answer.

    Series get the label `process`. `charge@1` is the consumer of process 1, `charge` that of all processes. `statuses`:
    the children as the supervisor sees them; `restart_after_s`: how long one may be silent.
    """

    def __init__(
        self,
        sockets: ChildSockets,
        *,
        app: str,
        statuses: Callable[[], Sequence[ChildStatus]] = tuple,
        restart_after_s: float = math.inf,
    ) -> None:
        self._sockets = sockets
        self._statuses = statuses
        self._restart_after_s = restart_after_s
        self.app = app

    def collect(self) -> list[Metric]:
        """The metrics of all children; of one that does not answer, only `keepfast_process_up` 0."""
        answers = self._request_all(FAMILIES)
        up = [Sample((process,), int(process in answers)) for process in self._sockets.all()]
        found = {process: _unpacked(answer) for process, answer in answers.items()}
        found[SUPERVISOR] = list(REGISTERED.registry().collect())
        return [exposed(MetricFamily.of(catalogue.PROCESS_UP, up)), *by_process(found)]

    def health(self) -> HealthReport:
        answers = {
            process: report
            for process, answer in self._request_all("/health").items()
            if (report := _decoded(answer, HealthReport)) is not None
        }
        now, statuses = time.monotonic(), self._by_process()
        in_time = {process for process, one in statuses.items() if one.end_by is None or now < one.end_by}
        reasons = [
            msgspec.structs.replace(
                reason,
                consumer=f"{reason.consumer}@{process}",
                fails_live=reason.fails_live and process not in in_time,  # the supervisor restarts it
            )
            for process, report in answers.items()
            for reason in report.reasons
        ]
        missing = [process for process in self._sockets.all() if process not in answers]
        reasons += [absence(process, statuses.get(process), now, self._restart_after_s) for process in missing]
        return HealthReport(
            status=worst_level(reasons),
            live=not any(reason.fails_live for reason in reasons),
            ready=not missing and all(report.ready for report in answers.values()),
            started=not missing and all(report.started for report in answers.values()),
            app=self.app,
            uptime_s=max((report.uptime_s for report in answers.values()), default=0.0),
            reasons=tuple(reasons),
            consumers={
                f"{name}@{process}": one
                for process, report in answers.items()
                for name, one in report.consumers.items()
            },
        )

    def _by_process(self) -> dict[str, ChildStatus]:
        return {str(one.index): one for one in self._statuses()}

    def api(self, request: HttpRequest) -> Response:
        """Read requests are merged, or answered by one child; commands go to the children, which check the token."""
        parts = request.path.removeprefix(API).strip("/").split("/")
        if parts == ["state"]:
            return as_json(self._state())
        if parts == ["health"]:
            return as_json(self.health())
        if parts == ["events"]:
            return as_json(self._events())
        sockets = self._sockets.all()
        if parts[0] == "consumers" and len(parts) > 1 and "@" in parts[1]:
            parts[1], _, process = parts[1].rpartition("@")
            sockets = {number: address for number, address in sockets.items() if number == process}
        return self._by_children(request, parts, sockets)

    def _by_children(self, request: HttpRequest, parts: list[str], sockets: Mapping[str, str]) -> Response:
        seeks = parts[0] == "consumers" and parts[-1] == "seek"
        timeout_s = SEEK_TIMEOUT_S if seeks else ORDER_TIMEOUT_S
        answers = self._request_all(API + "/".join(parts), request, sockets, timeout_s)
        if request.method == "POST" and sockets:
            answer = _by_the_owner(answers) if seeks and answers else _one_of(answers, sockets)
            self._note(order_done(parts, request, answer), request, answers, sockets)
            return answer
        if not answers:
            return problem(HTTPStatus.BAD_GATEWAY, "No process answers.")
        if parts[0] == "consumers" and parts[-1] == "position":
            found = [one for answer in answers.values() if (one := _decoded(answer, Positions)) is not None]
            partitions = [partition for one in found for partition in one.partitions]
            return as_json(Positions.of(partitions)) if found else next(iter(answers.values()))
        good = [process for process, answer in answers.items() if answer.status == HTTPStatus.OK]
        if parts[0] == "consumers" and len(good) > 1:
            known = ", ".join(f"{parts[1]}@{process}" for process in good)
            return problem(HTTPStatus.CONFLICT, f"Several processes have this consumer: {known}. Name one of them.")
        return answers[good[0]] if good else next(iter(answers.values()))

    def _note(
        self,
        done: ControlDone | None,
        request: HttpRequest,
        answers: Mapping[str, Response],
        sockets: Mapping[str, str],
    ) -> None:
        """Have an order audited once that was carried out, or of which that is not known: by the first child that takes
        it, those first that carried it out. The log has it if none does.
        """
        if done is None or any(own.status == HTTPStatus.UNAUTHORIZED for own in answers.values()):
            return
        headers, body = {"content-type": "application/json"}, msgspec.json.encode(done)
        headers |= {name: value for name, value in request.headers.items() if name == "authorization"}
        for process in sorted(answers, key=lambda one: answers[one].status != HTTPStatus.OK):
            with suppress(OSError):
                taken = fetch(sockets[process], f"{API}audit", method="POST", body=body, headers=headers)
                if taken.status == HTTPStatus.OK:
                    return
        log.error("audit_not_written", what=done.what, by=done.by, why=done.why, result=done.result)

    def _events(self) -> TimelineEvents:
        answers = self._request_all("/api/events").values()
        lists = [one.events for answer in answers if (one := _decoded(answer, TimelineEvents)) is not None]
        return TimelineEvents(events=tuple(sorted(itertools.chain(*lists), key=_at)))

    def _state(self) -> AppState:
        states = {
            process: state
            for process, answer in self._request_all("/api/state").items()
            if (state := _decoded(answer, AppState)) is not None
        }
        first = next(iter(states.values()), None)
        return AppState(
            app=first.app if first else self.app,
            version=first.version if first else "",
            keepfast=first.keepfast if first else "",
            pid=0,
            uptime_s=max((state.uptime_s for state in states.values()), default=0.0),
            phase=first.phase if first else "starting",
            consumers=_keyed((process, state.consumers) for process, state in states.items()),
            spool=first.spool if first else None,
            counts=_keyed((process, state.counts) for process, state in states.items()),
            processes={process: self._process(process, states.get(process)) for process in self._sockets.all()},
        )

    def _process(self, process: str, state: AppState | None) -> ProcessState:
        status = self._by_process().get(process)
        if state is not None:
            return ProcessState(pid=state.pid, answers=True)
        return ProcessState(
            pid=None if status is None else status.pid,
            text=absence(process, status, time.monotonic(), self._restart_after_s).text,
            partitions=() if status is None else status.liveness.partitions,
        )

    def _request_all(
        self,
        path: str,
        request: HttpRequest | None = None,
        sockets: Mapping[str, str] | None = None,
        timeout_s: float = REPLY_TIMEOUT_S,
    ) -> dict[str, Response]:
        """The answers of all children that answer, requested in parallel."""
        sockets = self._sockets.all() if sockets is None else sockets
        if not sockets:
            return {}
        forwarded = {"authorization", "content-type"}
        headers = {name: value for name, value in request.headers.items() if name in forwarded} if request else {}
        headers |= {SUPERVISED: "1"}

        def one(address: str) -> Response | None:
            try:
                return fetch(
                    address,
                    path,
                    method=request.method if request else "GET",
                    body=request.body if request and request.body else None,
                    headers=headers,
                    timeout_s=timeout_s,
                )
            except OSError:
                return None

        with ThreadPoolExecutor(min(MAX_AT_ONCE, len(sockets))) as threads:
            answers = zip(sockets, threads.map(one, sockets.values()), strict=True)
            return {process: answer for process, answer in answers if answer is not None}


MAX_NAMED: Final = 5


def absence(process: str, status: ChildStatus | None, now: float, restart_after_s: float) -> Reason:
    """Why this process does not answer."""
    if status is None or (status.pid is None and not status.ending):
        text = f"Process {process} is starting."
        return Reason(code="process_away", level="degraded", text=text, fails_ready=True)
    if status.pid is None:
        soon = "" if status.due_at is None else f"; it is started again in {max(0.0, status.due_at - now):.0f} s"
        text = f"Process {process} ended {_ago(status.since, now)} ({status.ending}){soon}."
        return Reason(code="process_away", level="degraded", text=text, fails_ready=True)
    known, who = status.liveness, f"Process {process} (pid {status.pid})"
    if not known.up:
        before = f"; the last one ended: {status.ending}" if status.ending else ""
        text = f"{who} was started {_ago(status.since, now)} and does not answer yet{before}."
        return Reason(code="process_away", level="degraded", text=text, fails_ready=True)
    since = known.asked_at if known.failing_since is None else known.failing_since
    had = f" Its partitions: {', '.join(known.partitions[:MAX_NAMED])}" if known.partitions else ""
    had += f" and {len(known.partitions) - MAX_NAMED} more." if len(known.partitions) > MAX_NAMED else "." * bool(had)
    if known.failing_s < restart_after_s and status.end_by is None:
        text = f"{who} has not answered for {now - since:.0f} s; it is restarted after {restart_after_s:g} s.{had}"
        return Reason(code="process_silent", level="degraded", text=text, fails_ready=True)
    if known.failing_s < restart_after_s and status.end_by is not None and now < status.end_by:
        text = f"{who} was not live and is being restarted."
        return Reason(code="process_away", level="degraded", text=text, fails_ready=True)
    text = f"{who} has not answered for {now - since:.0f} s and is being killed.{had}"
    return Reason(code="process_hangs", level="failing", text=text, fails_live=True, fails_ready=True)


def _ago(at: float, now: float) -> str:
    return f"{max(0.0, now - at):.0f} s ago"


def _at(event: TimelineEvent) -> float:
    return event.at


def _keyed(found: Iterable[tuple[str, Mapping[str, T]]]) -> dict[str, T]:
    return {f"{name}@{process}": one for process, of in found for name, one in of.items()}


def _unpacked(answer: Response) -> list[Metric]:
    try:
        return unpacked(answer.body)
    except msgspec.MsgspecError:
        return []


def _decoded(answer: Response, shape: type[T]) -> T | None:
    try:
        return msgspec.json.decode(answer.body, type=shape)
    except msgspec.MsgspecError:
        return None


def _one_of(answers: Mapping[str, Response], processes: Iterable[str]) -> Response:
    """The children's answers to a command as one: done if at least one child did it, not known (504) if one has not
    replied in time or has not answered, otherwise the first problem.
    """
    late = [
        process
        for process in processes
        if (own := answers.get(process)) is None or own.status == HTTPStatus.GATEWAY_TIMEOUT
    ]
    unknown = f"process {', '.join(late)} did not reply in time."
    done = {
        process: _decoded(answer, CommandDone) for process, answer in answers.items() if answer.status == HTTPStatus.OK
    }
    texts = [f"Process {process}: {one.text}" for process, one in done.items() if one is not None]
    if texts:
        texts += [f"Not known: {unknown}"] * bool(late)
        return as_json(CommandDone(text=" ".join(texts), changed=sum(one.changed for one in done.values() if one)))
    if late:
        return problem(HTTPStatus.GATEWAY_TIMEOUT, unknown.capitalize())
    process, first = next(iter(answers.items()))
    refused = _decoded(first, Problem)
    return problem(first.status, f"Process {process}: {refused.error if refused else 'it failed.'}")


def _by_the_owner(answers: Mapping[str, Response]) -> Response:
    """The answer of the child that has the partition; if none has, the first problem."""
    refused = {process: _decoded(answer, Problem) for process, answer in answers.items()}
    for process, answer in answers.items():
        found = refused[process]
        if answer.status == HTTPStatus.OK or found is None or not found.elsewhere:
            return answer
    return next(iter(answers.values()))


class SharedHealthServer:
    """The health server of the supervisor; a context manager around its run. Owner: the main thread."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._folder: TemporaryDirectory[str] | None = None
        self._server: Server | None = None
        self._started = False

    def __enter__(self) -> Self:
        self._folder = TemporaryDirectory(prefix="keepfast-", ignore_cleanup_errors=True)
        longest = self._sockets.of(self._processes)
        if len(os.fsencode(longest)) > MAX_SOCKET_PATH:  # it could neither be bound nor asked
            self._folder.cleanup()
            self._folder = TemporaryDirectory(prefix="keepfast-", ignore_cleanup_errors=True, dir=SHORT_FOLDER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.stop()
        if self._folder is not None:
            self._folder.cleanup()

    def health_socket(self, spec: ChildSpec) -> Path:
        """The socket on which this child serves health to the supervisor."""
        return self._sockets.of(spec.index)

    def addresses(self) -> dict[int, str]:
        """Where the children answer, by their numbers."""
        return self._sockets.by_index()

    def start(
        self,
        report: Report,
        statuses: Callable[[], Sequence[ChildStatus]] = tuple,
        restart_after_s: float = math.inf,
    ) -> None:
        """Serve at the address of the first report. Raises ConfigError if that fails and health is required."""
        if self._started or report.health is None:
            return
        self._started = True
        host, port = report.health
        pages = Pages(
            Children(self._sockets, app=report.app, statuses=statuses, restart_after_s=restart_after_s), forwards=True
        )
        settings = HealthSettings(enabled=True, host=host, port=port)
        self._server = start_server(pages, settings, required=report.health_required)

    @property
    def _sockets(self) -> ChildSockets:
        if self._folder is None:
            raise RuntimeError("SharedHealthServer: enter the context manager first.")
        return ChildSockets(Path(self._folder.name), self._processes)
