"""However the parent goes, its children notice and drain."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.supervisor.children import Children, alive
from tests.support.waiting import wait_until

BODY = """
from keepfast.supervisor import Report, ParentLink
parent_link = ParentLink(fd)
parent_link.watch()
parent_link.report(Report(shutdown_timeout_s=5))
note(f"pid {os.getpid()}")
stop_on_signal(after_s=0.1)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_by_a_sigterm_of_their_own(tmp_path: Path, number: signal.Signals) -> None:
    children = Children(tmp_path, BODY)
    with children.supervised(processes=2) as supervisor:
        children.wait_for("0 up", "1 up")
        supervisor.process.send_signal(number)
        children.wait_for("0 got SIGTERM", "1 got SIGTERM")
    pids = [int(note.split()[-1]) for note in children.notes() if "pid" in note]
    wait_until(lambda: not any(alive(pid) for pid in pids), f"the end of {pids}")


def test_also_when_a_sibling_that_was_started_later_lives_on(tmp_path: Path) -> None:
    """It would keep the line open if it had inherited the parent's end."""
    stubborn = "\nif index == 1:\n    report(); ignore_signals()\n"
    children = Children(tmp_path, stubborn + BODY)
    with children.supervised(processes=2) as supervisor:
        wait_until(lambda: len(children.notes()) == 3, "both are up")
        supervisor.process.kill()
        children.wait_for("0 got SIGTERM")
    (pid,) = [int(note.split()[-1]) for note in children.notes() if note.startswith("1 up")]
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)
