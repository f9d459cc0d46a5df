"""What several processes of one app have to say, as one: each is asked through its own door when somebody asks.

One server for all children of a supervisor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

import msgspec

from keepfast.http.asking import ask
from keepfast.http.http import UNIX, HttpRequest, Response, Server, as_json, problem
from keepfast.http.pages import API, FAMILIES, Pages, ServedApp
from keepfast.http.serving import served
from keepfast.settings import HealthSettings
from keepfast.supervisor.process import ChildPlace
from keepfast.supervisor.tether import Report
from keepfast.telemetry import catalogue
from keepfast.telemetry.families import MetricFamily, Sample
from keepfast.telemetry.prometheus import REGISTERED, by_process, exposed, unpacked
from keepfast.telemetry.shapes import AppState, CommandDone, HealthReport, Problem, Reason

if TYPE_CHECKING:
    from prometheus_client.core import Metric

REPLY_TIMEOUT_S: Final = 2.5
MAX_AT_ONCE: Final = 16
SUPERVISOR: Final = "supervisor"

T = TypeVar("T")


class ChildSockets:
    """Where each child listens: a socket in a folder that nobody else may look into."""

    def __init__(self, folder: Path, processes: int) -> None:
        self._folder = folder
        self._processes = processes

    def of(self, index: int) -> Path:
        return self._folder / f"{index}.sock"

    def all(self) -> dict[str, str]:
        """Process → where to ask."""
        return {str(index): f"{UNIX}{self.of(index)}" for index in range(self._processes)}


class Children(ServedApp):
    """The children of a supervisor as the subject of its server. Whoever does not answer is named as such.

    Series get the label `process`. A consumer is named `charge@1` where one child's is meant; `charge` are all of them.
    """

    def __init__(self, doors: ChildSockets, *, app: str) -> None:
        self._doors = doors
        self.app = app

    def collect(self) -> list[Metric]:
        """Of a child that does not answer there is nothing but `keepfast_process_up` 0."""
        answers = self._ask_all(FAMILIES)
        up = [Sample((process,), int(process in answers)) for process in self._doors.all()]
        found = {process: _unpacked(answer) for process, answer in answers.items()}
        found[SUPERVISOR] = list(REGISTERED.registry().collect())
        return [exposed(MetricFamily.of(catalogue.PROCESS_UP, up)), *by_process(found)]

    def health(self) -> HealthReport:
        answers = {
            process: report
            for process, answer in self._ask_all("/health").items()
            if (report := _decoded(answer, HealthReport)) is not None
        }
        reasons = [
            msgspec.structs.replace(reason, consumer=f"{reason.consumer}@{process}")
            for process, report in answers.items()
            for reason in report.reasons
        ]
        missing = [process for process in self._doors.all() if process not in answers]
        if missing:
            text = f"Process {', '.join(missing)} does not answer: it starts, or starts anew."
            reasons.append(Reason(code="process_away", level="degraded", text=text, fails_ready=True))
        worst = {"ok": 0, "degraded": 1, "failing": 2}
        return HealthReport(
            status=max((reason.level for reason in reasons), key=worst.__getitem__, default="ok"),
            live=all(report.live for report in answers.values()),
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

    def api(self, request: HttpRequest) -> Response:
        """Looks are merged, or are about one child; what changes something goes to the children, which know the
        token.
        """
        parts = request.path.removeprefix(API).strip("/").split("/")
        if parts == ["state"]:
            return as_json(self._state())
        if parts == ["health"]:
            return as_json(self.health())
        doors = self._doors.all()
        if parts[0] == "consumers" and len(parts) > 1 and "@" in parts[1]:
            parts[1], _, process = parts[1].rpartition("@")
            doors = {number: door for number, door in doors.items() if number == process}
        answers = self._ask_all(API + "/".join(parts), request, doors)
        if not answers:
            return problem(HTTPStatus.BAD_GATEWAY, "No process answers.")
        if request.method == "POST":
            return _one_of(answers)
        good = [process for process, answer in answers.items() if answer.status == HTTPStatus.OK]
        if parts[0] == "consumers" and len(good) > 1:
            known = ", ".join(f"{parts[1]}@{process}" for process in good)
            return problem(HTTPStatus.CONFLICT, f"Each process has one; there is {known}.")
        return answers[good[0]] if good else next(iter(answers.values()))

    def _state(self) -> AppState:
        states = {
            process: state
            for process, answer in self._ask_all("/api/state").items()
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
        )

    def _ask_all(
        self, path: str, request: HttpRequest | None = None, doors: Mapping[str, str] | None = None
    ) -> dict[str, Response]:
        """Whoever answers, at the same time."""
        doors = self._doors.all() if doors is None else doors
        if not doors:
            return {}
        passed_on = {"authorization", "content-type"}
        headers = {name: value for name, value in request.headers.items() if name in passed_on} if request else {}

        def one(door: str) -> Response | None:
            try:
                return ask(
                    door,
                    path,
                    method=request.method if request else "GET",
                    body=request.body if request and request.body else None,
                    headers=headers,
                    timeout_s=REPLY_TIMEOUT_S,
                )
            except OSError:
                return None

        with ThreadPoolExecutor(min(MAX_AT_ONCE, len(doors))) as threads:
            answers = zip(doors, threads.map(one, doors.values()), strict=True)
            return {process: answer for process, answer in answers if answer is not None}


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


def _one_of(answers: Mapping[str, Response]) -> Response:
    """What the children said to a command: done where one did it, else why not."""
    done = {
        process: _decoded(answer, CommandDone) for process, answer in answers.items() if answer.status == HTTPStatus.OK
    }
    said = [f"Process {process}: {word.text}" for process, word in done.items() if word is not None]
    if said:
        return as_json(CommandDone(text=" ".join(said), changed=sum(word.changed for word in done.values() if word)))
    process, first = next(iter(answers.items()))
    refused = _decoded(first, Problem)
    return problem(first.status, f"Process {process}: {refused.error if refused else 'it failed.'}")


class SharedHealthServer:
    """Use it as a context manager around the supervisor's run. Owner: the main thread."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._folder: TemporaryDirectory[str] | None = None
        self._server: Server | None = None
        self._begun = False

    def __enter__(self) -> Self:
        self._folder = TemporaryDirectory(prefix="keepfast-", ignore_cleanup_errors=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.stop()
        if self._folder is not None:
            self._folder.cleanup()

    def health_socket(self, place: ChildPlace) -> Path:
        return self._doors.of(place.index)

    def begin(self, report: Report) -> None:
        """A child has told where to serve; the first word counts. Raises ConfigError if that cannot be and must."""
        if self._begun or report.health is None:
            return
        self._begun = True
        host, port = report.health
        pages = Pages(Children(self._doors, app=report.app), passes_on=True)
        settings = HealthSettings(enabled=True, host=host, port=port)
        self._server = served(pages, settings, required=report.health_required)

    @property
    def _doors(self) -> ChildSockets:
        if self._folder is None:
            raise RuntimeError("ForAll needs the context manager to be entered first.")
        return ChildSockets(Path(self._folder.name), self._processes)
