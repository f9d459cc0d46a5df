"""`--processes N`: what each child is told, and what the parent stays clear of.

The App of these tests does not consume: it writes down how it was started, and waits. What the children do with a
broker is told by the scenarios.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

from tests.support.command import running
from tests.support.waiting import DEADLINE_S, wait_until

APP = """
import json, os, pathlib, signal, sys, time
from keepfast import App

class Noting(App):
    def run(self, *, only=(), settings=None, wait=False, **more):
        came = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: came.append(number))
        ids = {name: own.group_instance_id for name, own in settings.consumers.items()}
        told = {"pid": os.getpid(), "ids": ids, "only": list(only), "wait": wait, "path": sys.path[0]}
        name = f"{os.getpid()}.started"
        pathlib.Path(name + ".part").write_text(json.dumps(told))
        pathlib.Path(name + ".part").rename(name)
        while not came:
            time.sleep(0.02)
        return 0 if came == [signal.SIGTERM] else 5

app = Noting("payments")

@app.consumer("orders.payment.v1")
def charge(payment: dict) -> None: ...
"""


def started(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in folder.glob("*.started")]


def test_each_child_has_its_own_lasting_identity_and_the_parent_loads_no_client(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    printed = tmp_path / "printed"
    options = ["--processes", "2", "--consumer", "charge", "--log-format", "json"]
    with running("run", "app:app", *options, cwd=tmp_path, printed=printed) as parent:
        wait_until(lambda: len(started(tmp_path)) == 2, "both children")
        first = {reported["pid"]: reported for reported in started(tmp_path)}
        assert "librdkafka" not in Path(f"/proc/{parent.pid}/maps").read_text()
        assert {pid: os.getpgid(pid) for pid in first} == {pid: pid for pid in first}

        victim = min(first)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(started(tmp_path)) == 3, "the child that takes the place of the dead one")
        (fresh,) = [reported for reported in started(tmp_path) if reported["pid"] not in first]
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(DEADLINE_S) == 0

    host = socket.gethostname()
    assert {reported["ids"]["charge"] for reported in first.values()} == {f"payments-{host}-0", f"payments-{host}-1"}
    assert fresh["ids"] == first[victim]["ids"]
    assert [reported["wait"] for reported in first.values()] == [False, False]
    assert fresh["wait"]  # it saw the broker before, so it is patient
    assert all(
        reported["only"] == ["charge"] and reported["path"] == str(tmp_path) for reported in (*first.values(), fresh)
    )
    events = [json.loads(line)["event"] for line in printed.read_text().splitlines()]
    assert events.count("child_started") == 3
    assert events.count("child_ended") == 1


def test_two_supervisors_of_an_app_in_one_folder_give_their_children_different_names(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    state, printed = {"KEEPFAST_STATE_DIR": str(tmp_path / "state")}, tmp_path / "printed"
    with running("run", "app:app", "--processes", "1", cwd=tmp_path, printed=printed, **state) as first:
        wait_until(lambda: len(started(tmp_path)) == 1, "the child of the first")
        with running("run", "app:app", "--processes", "1", cwd=tmp_path, printed=printed, **state) as second:
            wait_until(lambda: len(started(tmp_path)) == 2, "the child of the second")
            second.send_signal(signal.SIGTERM)
            assert second.wait(DEADLINE_S) == 0
        first.send_signal(signal.SIGTERM)
        assert first.wait(DEADLINE_S) == 0
    host = socket.gethostname()
    assert {reported["ids"]["charge"] for reported in started(tmp_path)} == {
        f"payments-{host}-0",
        f"payments-{host}-s1-0",
    }


def test_a_wrong_module_is_reported_once_and_is_the_exit_code(tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    with running("run", "nope:app", "--processes", "4", cwd=tmp_path, printed=printed) as parent:
        assert parent.wait(DEADLINE_S) == 2
    errors = [line for line in printed.read_text().splitlines() if line.startswith("Error:")]
    assert len(errors) == 1
    assert "There is no module 'nope'" in errors[0]
    assert "Traceback" not in printed.read_text()
