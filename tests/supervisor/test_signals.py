"""One signal drains, a second one ends, a deadline ends what does not listen."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.supervisor.children import Children, alive
from tests.support.waiting import wait_until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_once_to_every_child(tmp_path: Path, number: signal.Signals) -> None:
    children = Children(tmp_path, "report(5); stop_on_signal(after_s=0.3)")
    with children.supervised(processes=2) as supervisor:
        children.wait_for("0 up", "1 up")
        assert supervisor.end(number) == 0
    got = sorted(note for note in children.notes() if "got" in note)
    assert got == [f"0 got {number.name}", f"1 got {number.name}"]


def test_once_also_when_a_terminal_sends_it_to_the_whole_group(tmp_path: Path) -> None:
    children = Children(
        tmp_path, "report(5); note(f'leads {os.getpgid(0) == os.getpid()}'); stop_on_signal(after_s=0.3)"
    )
    with children.supervised(processes=2) as supervisor:
        children.wait_for("0 up", "1 up")
        os.killpg(supervisor.process.pid, signal.SIGINT)
        assert supervisor.wait() == 0
    assert sorted(note for note in children.notes() if "got" in note) == ["0 got SIGINT", "1 got SIGINT"]
    # Two of a kind that arrive together are one to the receiver: see that the terminal's could not have come at all.
    assert sorted(note for note in children.notes() if "leads" in note) == ["0 leads True", "1 leads True"]


def test_the_exit_code_is_that_of_the_worst_child(tmp_path: Path) -> None:
    children = Children(tmp_path, "report(); stop_on_signal(code=5 if index else 0)")
    with children.supervised(processes=2) as supervisor:
        children.wait_for("0 up", "1 up")
        assert supervisor.end() == 5


@pytest.mark.timing
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_one_too_and_it_ends_at_once(tmp_path: Path, number: signal.Signals, code: int) -> None:
    children = Children(
        tmp_path,
        """
report(60)
came = []
def on_signal(number, frame):
    came.append(number)
    note(f"signal {len(came)}")
    if len(came) == 2: os._exit(128 + number)
for number in (signal.SIGTERM, signal.SIGINT): signal.signal(number, on_signal)
note("up")
sleep_long()
""",
    )
    with children.supervised(processes=2, shutdown={"second_signal_timeout_s": 20.0}) as supervisor:
        children.wait_for("0 up", "1 up")
        supervisor.process.send_signal(number)
        children.wait_for("0 signal 1", "1 signal 1")
        begun = time.monotonic()
        assert supervisor.end(number) == code
        assert time.monotonic() - begun < 15  # it did not wait for the deadline, nor kill
    children.wait_for("0 signal 2", "1 signal 2")


def test_a_second_one_kills_who_does_not_listen(tmp_path: Path) -> None:
    children = Children(tmp_path, "report(60); ignore_signals()")
    with children.supervised(shutdown={"second_signal_timeout_s": 0.3}) as supervisor:
        wait_until(children.notes, "the child is up")
        supervisor.process.send_signal(signal.SIGTERM)
        children.wait_for("0 ignored SIGTERM")
        assert supervisor.end() == 143
    assert not alive(int(children.notes()[0].split()[-1]))


def test_who_misses_the_deadline_is_killed_with_what_it_started(tmp_path: Path) -> None:
    children = Children(
        tmp_path,
        """
import subprocess
note(f"grandchild {subprocess.Popen(['sleep', '60']).pid}")
report(0.2); ignore_signals()
""",
    )
    with children.supervised(shutdown={"margin_s": 0.3}) as supervisor:
        wait_until(lambda: len(children.notes()) == 2, "the child is up")
        assert supervisor.end() == 5
    pids = [int(note.split()[-1]) for note in children.notes()[:2]]
    wait_until(lambda: not any(alive(pid) for pid in pids), f"the end of {pids}")
    assert len(supervisor.events("child_killed")) == 1


def test_a_first_one_while_the_children_drain_already_does_not_cut_that_short(tmp_path: Path) -> None:
    children = Children(
        tmp_path,
        """
report(20)
if index == 1:
    while not os.path.exists(journal + ".go"): time.sleep(0.02)
    sys.exit(4)
stop_on_signal(after_s=0.6)
""",
    )
    with children.supervised(processes=2) as supervisor:
        children.wait_for("0 up")
        Path(f"{children.journal}.go").touch()
        children.wait_for("0 stopping")
        assert supervisor.end() == 4
    assert "0 got SIGTERM" in children.notes()


@pytest.mark.timing
def test_a_signal_cancels_the_restart_that_is_due(tmp_path: Path) -> None:
    children = Children(tmp_path, "report(); note('up'); sys.exit(1)")
    with children.supervised(restart={"first_delay_s": 20.0, "max_delay_s": 20.0}) as supervisor:
        children.wait_for("0 up")
        begun = time.monotonic()
        assert supervisor.end() in {0, 1}  # 1 if the child was about to end when the signal came
        assert time.monotonic() - begun < 15
    assert children.notes() == ["0 up"]
