"""A child that does not answer, or says that it is not live, is ended and restarted; the others are left alone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.supervisor.children import Children
from tests.support.waiting import wait_until

QUICK = {"every_s": 0.1, "timeout_s": 1.0, "restart_after_s": 4.0, "grace_s": 0.5}
"""A child that answers has a second for it, several times."""
ANSWERS = {"every_s": 0.1, "timeout_s": 5.0, "restart_after_s": 1.0, "grace_s": 0.5}
"""For children that answer that they are not live: an answer that is late must not count as another failure."""


def pids(children: Children, index: int) -> list[int]:
    return [int(note.split()[-1]) for note in children.notes() if note.startswith(f"{index} pid ")]


def test_one_that_is_stopped_is_killed_and_restarted(tmp_path: Path) -> None:
    children = Children(tmp_path, "serve(); report(); note(f'pid {os.getpid()}'); stop_on_signal()")
    with children.supervised(processes=2, liveness=QUICK) as supervisor:
        children.wait_for("0 up", "1 up")
        [victim], [other] = pids(children, 1), pids(children, 0)
        os.kill(victim, signal.SIGSTOP)
        wait_until(lambda: children.notes().count("1 up") == 2, "the second start")
        assert supervisor.end() == 0
    assert pids(children, 0) == [other]
    [silent] = supervisor.events("child_silent")
    assert (silent["process"], silent["pid"]) == (1, victim)
    [noticed] = supervisor.events("child_not_live")
    assert (noticed["process"], noticed["pid"], noticed["why"]) == (1, victim, "it does not answer")
    assert noticed["kill_in_s"] == QUICK["grace_s"]
    [killed] = supervisor.events("child_killed")
    assert (killed["process"], killed["why"]) == (1, "it does not answer and did not end")
    [ended] = supervisor.events("child_ended")
    assert (ended["process"], ended["ending"]) == (1, "SIGKILL")


def test_one_that_says_that_it_is_not_live_drains_first(tmp_path: Path) -> None:
    body = "serve(lambda: index == 0 or again); report(5); stop_on_signal(code=5, after_s=0.2)"
    children = Children(tmp_path, body)
    with children.supervised(processes=2, liveness=ANSWERS) as supervisor:
        wait_until(lambda: children.notes().count("1 up") == 2, "the second start")
        supervisor.end()
    assert children.notes().count("0 up") == 1
    [noticed] = supervisor.events("child_not_live")
    assert (noticed["process"], noticed["why"]) == (1, "event_loop_blocked")
    [ended] = supervisor.events("child_ended")
    assert (ended["process"], ended["ending"]) == (1, "code 5")
    assert supervisor.events("child_killed") == []


def test_one_that_is_not_live_and_does_not_drain_is_killed_at_its_deadline(tmp_path: Path) -> None:
    body = "serve(lambda: again); report(0.3)\nif again: stop_on_signal()\nignore_signals()"
    children = Children(tmp_path, body)
    with children.supervised(liveness=ANSWERS, shutdown={"margin_s": 0.3}) as supervisor:
        children.wait_for("0 up")
        assert supervisor.end() == 0
    assert "0 ignored SIGTERM" in children.notes()
    [killed] = supervisor.events("child_killed")
    assert (killed["process"], killed["why"]) == (0, "it did not end in time")


def test_one_that_answers_again_in_time_goes_on(tmp_path: Path) -> None:
    children = Children(tmp_path, "serve(); report(); note(f'pid {os.getpid()}'); stop_on_signal()")
    calm = {"every_s": 0.1, "timeout_s": 0.2, "restart_after_s": 600.0}
    with children.supervised(liveness=calm) as supervisor:
        children.wait_for("0 up")
        [child] = pids(children, 0)
        os.kill(child, signal.SIGSTOP)
        wait_until(lambda: "child_silent" in supervisor.log(), "it is missed")
        os.kill(child, signal.SIGCONT)
        wait_until(lambda: "child_answers_again" in supervisor.log(), "it is back")
        assert supervisor.end() == 0
    assert pids(children, 0) == [child]
    assert supervisor.events("child_ended") == []


def test_one_that_drains_because_it_is_not_live_takes_a_stop_for_no_second_signal(tmp_path: Path) -> None:
    children = Children(tmp_path, "serve(lambda: index == 0); report(30); stop_on_signal(after_s=2.0 * index)")
    with children.supervised(processes=2, liveness=ANSWERS) as supervisor:
        children.wait_for("0 up", "1 stopping")
        assert supervisor.end() == 0
    assert "1 got SIGTERM" in children.notes()


def test_without_a_server_nothing_is_known_of_a_child(tmp_path: Path) -> None:
    children = Children(tmp_path, "report(); time.sleep(1); stop_on_signal()")
    with children.supervised(liveness={"every_s": 0.05, "restart_after_s": 0.1}) as supervisor:
        children.wait_for("0 up")
        assert supervisor.end() == 0
    assert len(supervisor.events("child_started")) == 1
