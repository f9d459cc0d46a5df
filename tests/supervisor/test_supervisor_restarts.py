"""What ended unasked comes back, later each time; what ended for good ends everything."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import pytest

from tests.supervisor.children import Children
from tests.support.waiting import wait_until


def test_with_delays_that_double_up_to_the_most(tmp_path: Path) -> None:
    children = Children(
        tmp_path,
        """
report()
note(f"began {time.monotonic()}")
if len(open(journal).readlines()) < 6: sys.exit(1)
stop_on_signal()
""",
    )
    with children.supervised(restart={"first_delay_s": 0.1, "max_delay_s": 0.4}) as supervisor:
        children.wait_for("0 up")
        assert supervisor.end() == 0
    delays = [event["restart_in_s"] for event in supervisor.events("child_ended")]
    assert delays == [0.1, 0.2, 0.4, 0.4, 0.4]
    starts = [float(note.split()[-1]) for note in children.notes() if "began" in note]
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert all(gap >= delay for gap, delay in zip(gaps, [0.1, 0.2, 0.4, 0.4, 0.4], strict=True))


def test_from_the_first_delay_after_a_healthy_life(tmp_path: Path) -> None:
    children = Children(tmp_path, "report(); note('up'); time.sleep(0.3); sys.exit(1)")
    with children.supervised(restart={"first_delay_s": 0.05, "healthy_s": 0.3}) as supervisor:
        wait_until(lambda: len(children.notes()) >= 4, "four starts")
        supervisor.end()
    assert {event["restart_in_s"] for event in supervisor.events("child_ended")} == {0.05}


@pytest.mark.parametrize("end", ["sys.exit(1)", "os.kill(os.getpid(), signal.SIGSEGV)", "os._exit(77)", "sys.exit(5)"])
def test_and_only_that_one(tmp_path: Path, end: str) -> None:
    children = Children(tmp_path, f"report()\nif index == 1 and not again: {end}\nstop_on_signal()")
    with children.supervised(processes=2) as supervisor:
        children.wait_for("0 up", "1 up")
        assert supervisor.end() == 0
    assert sorted(children.notes()) == [
        "0 got SIGTERM",
        "0 stopping",
        "0 up",
        "1 got SIGTERM",
        "1 stopping",
        "1 up",
    ]
    assert [event["process"] for event in supervisor.events("child_ended")] == [1]


def test_also_when_that_child_alone_was_stopped(tmp_path: Path) -> None:
    children = Children(tmp_path, "report(); note(f'pid {os.getpid()}'); stop_on_signal()")
    with children.supervised() as supervisor:
        children.wait_for("0 up")
        os.kill(int(children.notes()[0].split()[-1]), signal.SIGTERM)
        wait_until(lambda: children.notes().count("0 up") == 2, "the second start")
        assert supervisor.end() == 0
    assert supervisor.events("child_ended")[0]["ending"] == "code 0"


@pytest.mark.parametrize("code", [2, 3, 4, 6])
def test_never_after_a_final_end_which_ends_the_others_too(tmp_path: Path, code: int) -> None:
    children = Children(
        tmp_path,
        f"""
report()
if index == 1:
    while not os.path.exists(journal + ".go"): time.sleep(0.02)
    sys.exit({code})
stop_on_signal()
""",
    )
    with children.supervised(processes=3) as supervisor:
        children.wait_for("0 up", "2 up")
        Path(f"{children.journal}.go").touch()
        assert supervisor.wait() == code
    assert sorted(note for note in children.notes() if "got" in note) == ["0 got SIGTERM", "2 got SIGTERM"]
    assert len(supervisor.events("child_started")) == 3


def test_a_problem_of_all_is_reported_by_the_first_alone(tmp_path: Path) -> None:
    children = Children(tmp_path, "note('up'); sys.exit(2)")
    with children.supervised(processes=4) as supervisor:
        assert supervisor.wait() == 2
    assert children.notes() == ["0 up"]


def test_a_crash_before_the_first_report_keeps_the_others_waiting(tmp_path: Path) -> None:
    children = Children(tmp_path, "note('begun')\nif index == 0 and not again: sys.exit(1)\nreport(); stop_on_signal()")
    with children.supervised(processes=2) as supervisor:
        children.wait_for("0 up", "1 up")
        assert supervisor.end() == 0
    assert [note for note in children.notes() if "begun" in note] == ["0 begun", "0 begun", "1 begun"]
