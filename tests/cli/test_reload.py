"""`--reload`: what is seen, and what happens then."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from keepfast.cli import main, reload
from keepfast.cli.reload import file_changes, is_watched
from tests.support.command import running
from tests.support.waiting import DEADLINE_S, wait_until

APP = """
import os, pathlib, signal, time
from keepfast import App

VERSION = "one"

class Noting(App):
    def run(self, *, only=(), settings=None, wait=False, **more):
        came = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: came.append(signal.Signals(number).name))
        with open("journal", "a") as file:
            file.write(f"up {VERSION}\\n")
        while not came:
            time.sleep(0.02)
        time.sleep(0.2)
        with open("journal", "a") as file:
            file.write(f"down {VERSION} {'+'.join(came)}\\n")
        return 0

app = Noting("payments")

@app.consumer("orders.payment.v1")
def charge(payment: dict) -> None: ...
"""


def notes(folder: Path) -> list[str]:
    journal = folder / "journal"
    return journal.read_text().splitlines() if journal.exists() else []


def test_a_change_ends_the_child_cleanly_and_starts_the_new_code(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    printed = tmp_path / "printed"
    with running("run", "app:app", "--reload", cwd=tmp_path, printed=printed) as parent:
        wait_until(lambda: "up one" in notes(tmp_path), "the first start")
        (tmp_path / "app.py").write_text(APP.replace('"one"', '"two"'))
        wait_until(lambda: "up two" in notes(tmp_path), "the second start")
        parent.send_signal(signal.SIGINT)
        assert parent.wait(DEADLINE_S) == 0
    assert notes(tmp_path) == ["up one", "down one SIGTERM", "up two", "down two SIGINT"]
    assert "Changed: app.py; stopping the app to restart it." in printed.read_text()


def test_a_syntax_error_is_reported_and_the_next_change_continues(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def f(:\n")
    printed = tmp_path / "printed"
    with running("run", "app:app", "--reload", cwd=tmp_path, printed=printed) as parent:
        wait_until(lambda: "waiting for a change" in printed.read_text(), "the error")
        assert "Importing 'app' failed at app.py:1: SyntaxError" in printed.read_text()
        assert "The app ended with code 2" in printed.read_text()
        (tmp_path / "app.py").write_text(APP)
        wait_until(lambda: "up one" in notes(tmp_path), "the start after the correction")
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(DEADLINE_S) == 0
    assert "Traceback" not in printed.read_text()


def test_a_wait_for_a_handler_is_reported_with_how_to_end_it(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP.replace("sleep(0.2)", "sleep(60)"))
    printed = tmp_path / "printed"
    with running("run", "app:app", "--reload", cwd=tmp_path, printed=printed) as parent:
        wait_until(lambda: "up one" in notes(tmp_path), "the start")
        parent.send_signal(signal.SIGINT)
        wait_until(lambda: "s; Ctrl-C once more stops at once." in printed.read_text(), "the word")
        parent.send_signal(signal.SIGINT)
        assert parent.wait(DEADLINE_S) == 130


def test_a_signal_while_nothing_runs_ends_it(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("raise RuntimeError('not yet')\n")
    printed = tmp_path / "printed"
    with running("run", "app:app", "--reload", cwd=tmp_path, printed=printed) as parent:
        wait_until(lambda: "waiting for a change" in printed.read_text(), "the error")
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(DEADLINE_S) == 0


def test_the_child_ends_with_the_reloader(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with running("run", "app:app", "--reload", cwd=tmp_path, printed=tmp_path / "printed") as parent:
        wait_until(lambda: "up one" in notes(tmp_path), "the start")
        parent.kill()
        wait_until(lambda: "down one SIGTERM" in notes(tmp_path), "the end of the child")


@pytest.mark.parametrize("name", ["a.py", "deep/er/b.py", "keepfast.toml", ".env"])
def test_code_and_settings_are_watched(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    seen = file_changes(tmp_path)
    next(seen)  # it watches from now on

    def is_seen(what: str) -> None:
        wait_until(lambda: next(seen) == [path], what)
        wait_until(lambda: next(seen) == [], "nothing more of it")

    def write(text: str) -> None:
        (tmp_path / "other.log").write_text(text)
        path.write_text(text)

    write("1")
    is_seen("it was added")
    write("2")
    is_seen("it was changed")
    path.unlink()
    is_seen("it was removed")


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        ".git/a.py",
        ".venv/a.py",
        "__pycache__/a.py",
        "node_modules/x/a.py",
        "env/lib/a.py",
        "a.pyc",
        "x/.env",
    ],
)
def test_the_rest_is_not(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.startswith("env/"):
        (tmp_path / "env" / "pyvenv.cfg").touch()
    assert not is_watched(path, tmp_path)


def test_a_signal_ends_it_also_while_other_files_change_all_the_time(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP.replace("time.sleep(0.02)", "open('busy.log', 'a').write('x')"))
    with running("run", "app:app", "--reload", cwd=tmp_path, printed=tmp_path / "printed") as parent:
        wait_until(lambda: "up one" in notes(tmp_path), "the start")
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(60) == 0
    assert notes(tmp_path) == ["up one", "down one SIGTERM"]


@pytest.mark.parametrize("command", [("dev", "app:app"), ("run", "app:app", "--reload")])
def test_without_watchfiles_the_package_to_install_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reload, "find_spec", lambda name: None)
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, "pip install watchfiles" in done.output) == (2, True), done.output
