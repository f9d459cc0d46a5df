"""The supervisor's pages: what its children have, and why one does not answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import parser
from rich.console import Console

from keepfast.cli.control_client import REPLY_TIMEOUT_S
from keepfast.cli.live_view import view_of
from keepfast.desk_page.processes import TIMEOUT_S
from keepfast.http.local_app import REPLY_TIMEOUT_S as LOOP_TIMEOUT_S
from keepfast.http.local_app import LocalApp
from keepfast.http.pages import Pages
from keepfast.http.server import HttpRequest, Response, Server, as_json, problem
from keepfast.supervisor.liveness import Liveness
from keepfast.supervisor.shared_health import ORDER_TIMEOUT_S, Children, ChildSockets, SharedHealthServer, absence
from keepfast.supervisor.supervisor import ChildStatus
from keepfast.telemetry.state import AppState, CommandDone, ControlDone, HealthReport, Reason

read: Any = parser.text_string_to_metric_families


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Two children; the second has died and left its socket behind."""
    first, second = (Server(Pages(LocalApp("shop"))) for _ in range(2))
    first.start(f"unix:{tmp_path}/0.sock", 0)
    second.start(f"unix:{tmp_path}/1.sock", 0)
    second.stop()
    (tmp_path / "1.sock").touch()
    yield tmp_path
    first.stop()


def test_a_dead_child_has_no_series_but_that_it_is_down(folder: Path) -> None:
    pages = Pages(Children(ChildSockets(folder, 2), app="shop"))
    for _ in range(2):  # asking changes nothing
        found: dict[str, dict[str, float]] = {}
        for family in read(pages(HttpRequest("GET", "/metrics")).body.decode()):
            for sample in family.samples:
                found.setdefault(sample.name, {})[sample.labels["process"]] = sample.value
        assert found["keepfast_process_up"] == {"0": 1, "1": 0}
        assert set(found["keepfast_app_info"]) == {"0"}
        assert set(found["process_resident_memory_bytes"]) == {"0", "supervisor"}
        assert set(found["python_info"]) == {"0", "supervisor"}


def status(**more: Any) -> ChildStatus:
    return replace(ChildStatus(1, pid=42, since=100.0), **more)


SILENT = Liveness(
    up=True, answered_at=160.0, silent=True, failures=4, failing_since=165.0, asked_at=185.0, partitions=("orders[3]",)
)


@pytest.mark.parametrize(
    ("given", "code", "live", "text"),
    [
        (None, "process_away", True, "Process 1 is starting."),
        (status(pid=None), "process_away", True, "Process 1 is starting."),
        (
            status(pid=None, since=187.0, ending="SIGKILL", due_at=195.0),
            "process_away",
            True,
            "Process 1 ended 3 s ago (SIGKILL); it is started again in 5 s.",
        ),
        (
            status(since=186.0, ending="SIGSEGV"),
            "process_away",
            True,
            "Process 1 (pid 42) was started 4 s ago and does not answer yet; the last one ended: SIGSEGV.",
        ),
        (
            status(liveness=SILENT),
            "process_silent",
            True,
            "Process 1 (pid 42) has not answered for 25 s; it is restarted after 30 s. Its partitions: orders[3].",
        ),
        (
            status(liveness=replace(SILENT, asked_at=195.0)),
            "process_hangs",
            False,
            "Process 1 (pid 42) has not answered for 25 s and is being killed. Its partitions: orders[3].",
        ),
        (
            status(liveness=Liveness(up=True, answered_at=188.0), end_by=220.0),
            "process_away",
            True,
            "Process 1 (pid 42) was not live and is being restarted.",
        ),
    ],
)
def test_health_says_why_a_child_does_not_answer(given: ChildStatus | None, code: str, live: bool, text: str) -> None:
    reason = absence("1", given, 190.0, 30.0)
    assert (reason.code, not reason.fails_live, reason.text) == (code, live, text)
    assert reason.fails_ready


def test_many_partitions_of_a_silent_child_are_cut_short() -> None:
    many = replace(SILENT, partitions=tuple(f"orders[{number}]" for number in range(7)))
    assert absence("1", status(liveness=many), 190.0, 30.0).text.endswith("orders[3], orders[4] and 2 more.")


def test_a_silent_child_is_listed_and_fails_live_once_its_time_is_over(folder: Path) -> None:
    late = status(liveness=replace(SILENT, asked_at=195.0))
    children = Children(ChildSockets(folder, 2), app="shop", statuses=lambda: (late,), restart_after_s=30.0)
    report = children.health()
    assert (report.status, report.live, report.ready) == ("failing", False, False)
    assert [reason.code for reason in report.reasons if reason.fails_live] == ["process_hangs"]
    state = msgspec.json.decode(Pages(children)(HttpRequest("GET", "/api/state")).body, type=AppState)
    assert {process: one.answers for process, one in state.processes.items()} == {"0": True, "1": False}
    assert (state.processes["1"].pid, state.processes["1"].partitions) == (42, ("orders[3]",))
    shown = StringIO()
    Console(file=shown, width=200).print(view_of(state))
    assert "Process 1 (pid 42) has not answered for" in shown.getvalue()


def test_a_child_that_the_supervisor_restarts_does_not_fail_live_meanwhile(tmp_path: Path) -> None:
    blocked = Reason(code="event_loop_blocked", level="failing", text="…", fails_live=True, fails_ready=True)
    answer = HealthReport(status="failing", live=False, ready=False, started=True, reasons=(blocked,))
    server = Server(lambda _: as_json(answer))
    server.start(f"unix:{tmp_path}/0.sock", 0)
    try:
        known = [status(index=0), status(index=0, end_by=time.monotonic() + 60), status(index=0, end_by=0.0)]
        live = []
        for one in known:
            children = Children(ChildSockets(tmp_path, 1), app="shop", statuses=lambda one=one: (one,))  # type: ignore[misc]
            live.append(children.health().live)
    finally:
        server.stop()
    assert live == [True, True, False], "until it is asked to end; while it ends; past its deadline"


def test_a_long_temporary_folder_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket could be made in it."""
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with SharedHealthServer(2) as server:
        for address in server.addresses().values():
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(address.removeprefix("unix:"))
    assert list(long.iterdir()) == []


class Child:
    """A child that answers an order like this, and keeps what it is to audit; `audits`: how it answers that."""

    def __init__(self, folder: Path, number: int, answer: Response, audits: int = 200) -> None:
        self.noted: list[ControlDone] = []
        self._answer, self._audits = answer, audits
        self.server = Server(self._serve)
        self.server.start(f"unix:{folder}/{number}.sock", 0)

    def _serve(self, request: HttpRequest) -> Response:
        if request.path != "/api/audit":
            return self._answer
        if self._audits == 200:
            self.noted.append(msgspec.json.decode(request.body or b"", type=ControlDone))
        return Response(self._audits, b"{}", "application/json")


DONE = as_json(CommandDone(text="Paused.", changed=1))
LATE = problem(504, "The consumer's loop does not reply.")
REFUSED = problem(409, "There is no such partition.")
UNKNOWN = "process 1 did not reply in time."
PAUSE = HttpRequest("POST", "/api/consumers/charge/pause", body=b'{"by": "anna", "why": "INC-1"}')


@pytest.mark.parametrize(
    ("answers", "status", "result"),
    [
        ((DONE, LATE), 200, f"Process 0: Paused. Not known: {UNKNOWN}"),
        ((DONE, None), 200, f"Process 0: Paused. Not known: {UNKNOWN}"),
        ((REFUSED, LATE), 504, f"not known: {UNKNOWN.capitalize()}"),
        ((REFUSED, None), 504, f"not known: {UNKNOWN.capitalize()}"),
        ((REFUSED, REFUSED), 409, None),
    ],
)
def test_an_order_without_a_reply_is_audited_as_not_known(
    tmp_path: Path, answers: tuple[Response | None, ...], status: int, result: str | None
) -> None:
    children = [Child(tmp_path, number, one) for number, one in enumerate(answers) if one is not None]
    try:
        answer = Children(ChildSockets(tmp_path, 2), app="shop").api(PAUSE)
    finally:
        for child in children:
            child.server.stop()
    assert answer.status == status
    noted = [(one.what, one.by, one.why, one.result) for child in children for one in child.noted]
    assert noted == ([] if result is None else [("pause charge", "anna", "INC-1", result)])


def test_the_next_child_writes_the_audit_if_one_refuses(tmp_path: Path) -> None:
    first, second = Child(tmp_path, 0, DONE, audits=500), Child(tmp_path, 1, DONE)
    try:
        assert Children(ChildSockets(tmp_path, 2), app="shop").api(PAUSE).status == 200
    finally:
        first.server.stop()
        second.server.stop()
    assert [one.result for one in second.noted] == ["Process 0: Paused. Process 1: Paused."]


def test_the_supervisor_waits_longer_than_its_children_do() -> None:
    assert ORDER_TIMEOUT_S > LOOP_TIMEOUT_S
    assert ORDER_TIMEOUT_S < TIMEOUT_S < REPLY_TIMEOUT_S, "the desk's page, the command line"
