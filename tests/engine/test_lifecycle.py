"""Loops are started, watched and stopped in steps of their own; signals belong to `run` alone."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from keepfast.core.exit_codes import EXIT_DEADLINE, EXIT_HALTED, EXIT_OK
from keepfast.engine.lifecycle import Lifecycle
from keepfast.engine.mailbox import Ending, Stop
from tests.support.log_capture import LogCapture
from tests.support.waiting import wait_until


class StandIn:
    """A loop's thread: it ends when it is asked to stop, unless it is stuck."""

    def __init__(self, *, stuck: bool = False, begins: bool = True) -> None:
        self.loop = SimpleNamespace(ending=None, halted=None, plan=SimpleNamespace(named_by_supervisor=False))
        self.mailbox = SimpleNamespace(post=self._post)
        self.over = threading.Event()
        self.ending: Ending | None = None
        self.state = SimpleNamespace(in_flight=2)
        self.started = self.begun = False
        self.stops: list[Stop] = []
        self._stuck = stuck
        self._begins = begins

    def start(self) -> None:
        if not self._begins:
            raise RuntimeError("can't start new thread")
        self.started = self.begun = True

    def _post(self, stop: Stop) -> None:
        self.stops.append(stop)
        if not self._stuck:
            self.ending = Ending("stopped")
            self.over.set()


def lifecycle_of(*threads: StandIn, timeout_s: float = 30.0, left: list[int] | None = None) -> Lifecycle:
    made: Any = threads
    return Lifecycle(made, shutdown_timeout_s=timeout_s, leave=(left if left is not None else []).append)


def test_start_returns_at_once_and_wait_returns_when_all_have_ended() -> None:
    one, other = StandIn(), StandIn()
    lifecycle = lifecycle_of(one, other)
    before = signal.getsignal(signal.SIGTERM)
    lifecycle.start()
    assert one.started
    assert other.started
    assert lifecycle.left_s() == float("inf")
    codes: list[int] = []
    waiting = threading.Thread(target=lambda: codes.append(lifecycle.wait()), daemon=True)
    waiting.start()
    assert signal.getsignal(signal.SIGTERM) is before
    lifecycle.stop()
    waiting.join(60)
    assert codes == [EXIT_OK]
    assert [len(one.stops), len(other.stops)] == [1, 1]
    assert 0 < lifecycle.left_s() <= 30


def test_a_drain_that_passes_its_deadline_returns_where_the_process_goes_on() -> None:
    stuck, fine, left = StandIn(stuck=True), StandIn(), list[int]()
    lifecycle = lifecycle_of(stuck, fine, timeout_s=0.05, left=left)
    lifecycle.start()
    lifecycle.stop()
    assert lifecycle.wait() == EXIT_DEADLINE
    assert left == [EXIT_DEADLINE]
    assert not stuck.over.is_set()
    assert lifecycle.left_s() == 0


@pytest.mark.parametrize("unfinished", [0, 1])
def test_a_client_that_does_not_close_in_time_is_no_missed_deadline_if_nothing_is_unfinished(
    unfinished: int, log: LogCapture
) -> None:
    closing, left = StandIn(stuck=True), list[int]()
    closing.loop.ending = Ending("stopped", unfinished=unfinished)
    lifecycle = lifecycle_of(closing, timeout_s=0.05, left=left)
    lifecycle.start()
    lifecycle.stop()
    assert lifecycle.wait() == (EXIT_DEADLINE if unfinished else EXIT_OK)
    assert left == [EXIT_DEADLINE] * unfinished
    assert [bool(log.fields(event)) for event in ("deadline_passed", "group_not_left")] == [unfinished, not unfinished]


@pytest.mark.parametrize("state", [SimpleNamespace(in_flight=2), None])
def test_a_second_signal_reports_what_is_in_flight_and_leaves_whatever_becomes_of_the_report(
    log: LogCapture, state: SimpleNamespace | None
) -> None:
    stuck, left = StandIn(stuck=True), list[int]()
    if state is None:
        del stuck.state
    lifecycle = lifecycle_of(stuck, StandIn(), left=left)
    for _ in range(2):
        lifecycle._on_signal(signal.SIGINT, None)
    assert left == [130]
    reports = log.fields("ended_at_once")
    assert [(one["signal"], one["in_flight"]) for one in reports] == ([("SIGINT", 4)] if state else [])
    assert all("will be delivered again" in one["consequence"] for one in reports)


def test_one_that_halts_ends_all_while_another_waits() -> None:
    one, other = StandIn(), StandIn()
    lifecycle = lifecycle_of(one, other)
    lifecycle.start()
    codes: list[int] = []
    threading.Thread(target=lambda: codes.append(lifecycle.wait()), daemon=True).start()
    one.loop.halted = "a verdict"
    wait_until(lambda: codes, "all have ended")
    assert codes == [EXIT_HALTED]
    assert other.stops


@pytest.mark.parametrize(
    ("named", "supervisor_stops", "halted", "leaves"),
    [(False, False, None, False), (False, True, None, False), (True, False, None, False), (True, True, None, True)]
    + [(named, stops, "a verdict", True) for named in (False, True) for stops in (False, True)],
)
def test_a_member_leaves_its_group_if_its_name_does_not_come_back(
    named: bool, supervisor_stops: bool, halted: str | None, leaves: bool
) -> None:
    one = StandIn()
    one.loop.plan.named_by_supervisor, one.loop.halted = named, halted
    threads: Any = [one]
    lifecycle = Lifecycle(threads, shutdown_timeout_s=30.0, supervisor_stops=lambda: supervisor_stops)
    lifecycle.start()
    lifecycle.stop()
    lifecycle.wait()
    assert [stop.leave for stop in one.stops] == [leaves]


def test_one_that_cannot_begin_ends_those_that_have_begun() -> None:
    one, other, last = StandIn(), StandIn(begins=False), StandIn()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        lifecycle_of(one, other, last).start()
    assert one.over.is_set()
    assert one.ending == Ending("stopped")
    assert not last.started
