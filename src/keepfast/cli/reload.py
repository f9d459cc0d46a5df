"""`keepfast run --reload`: one child process, restarted when the code changes. For development."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from keepfast.core.errors import StartError
from keepfast.supervisor import ChildProcess, ShutdownPolicy, Signals
from keepfast.supervisor.process import Command, describe_exit

POLL_S = 0.4
DRAIN_NOTICE_AFTER_S = 3.0
"""If a child takes longer to end, a line explains the wait."""
SETTINGS_FILES = (".env", "keepfast.toml")
IGNORED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})
_MAX_NAMES = 3

Snapshot = dict[Path, tuple[int, int]]


def snapshot(root: Path) -> Snapshot:
    """Every .py file below `root`, and the settings files in it, with modification time and size.

    Skips hidden folders, virtual environments and build output.
    """
    found: Snapshot = {}
    for path in _watched(root):
        try:
            status = path.stat()
        except OSError:
            continue  # deleted since the listing; the next snapshot shows it
        found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _watched(root: Path) -> Iterator[Path]:
    yield from (root / name for name in SETTINGS_FILES)
    for folder, folders, files in os.walk(root):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".") and name not in IGNORED]
        yield from (Path(folder, name) for name in files if name.endswith(".py"))


def changes(before: Snapshot, after: Snapshot) -> list[Path]:
    """The files that were changed, added or removed."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


class Reloader:
    """Runs one child process of `command` and restarts it on changes below `root`. Owner: the main thread.

    A child that ends by itself, for example because of a syntax error, has printed why; the next change starts it
    again. The first signal is forwarded and ends the reloader with the child's exit code; a second one ends both at
    once. `died` returns why something that the child depends on has failed, or an empty string; a failure is raised as
    StartError.
    """

    def __init__(
        self,
        command: Command,
        *,
        root: Path,
        poll_s: float = POLL_S,
        shutdown: ShutdownPolicy | None = None,
        died: Callable[[], str] = str,
    ) -> None:
        self._command = command
        self._root = root
        self._poll_s = poll_s
        self._shutdown = shutdown or ShutdownPolicy()
        self._died = died
        self._child: ChildProcess | None = None
        self._seen: Snapshot = {}
        self._changed: list[Path] = []
        self._kill_at: float | None = None
        self._notice_at: float | None = None
        self._signals: list[int] = []
        self._code = 0

    def run(self) -> int:
        """Run until a signal; blocks. Returns the exit code. Raises StartError, see `died`."""
        with Signals() as signals:
            try:
                self._seen = snapshot(self._root)
                click.echo(f"Watching {self._root} for changes; Ctrl-C stops.", err=True)
                self._start()
                while self._child is not None or not self._signals:
                    for number in signals.wait(self._poll_s):
                        self._on_signal(number)
                    self._check_child()
                    if not self._signals:
                        if why := self._died():
                            raise StartError(why)
                        self._check_files()
                return 128 + self._signals[1] if len(self._signals) > 1 else self._code
            finally:
                if self._child is not None:
                    self._child.kill_and_wait()

    def _start(self) -> None:
        # Compiled files are compared by modification time in seconds: a second change within one would be missed.
        environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        self._child = ChildProcess.start(self._command, index=0, now=time.monotonic(), environ=environ)
        self._kill_at = None
        self._code = 0

    def _on_signal(self, number: int) -> None:
        self._signals.append(number)
        if len(self._signals) == 1:
            if self._kill_at is None:  # otherwise it drains already, and another signal would abort that
                self._end_child(number)
        elif self._child is not None:
            self._child.send(number)
            self._kill_at = time.monotonic() + self._shutdown.second_signal_timeout_s

    def _end_child(self, number: int) -> None:
        if self._child is None:
            return
        report = self._child.report
        reported_s = report.shutdown_timeout_s if report else None
        timeout_s = self._shutdown.unknown_timeout_s if reported_s is None else reported_s
        self._kill_at = time.monotonic() + timeout_s + self._shutdown.margin_s
        self._notice_at = time.monotonic() + DRAIN_NOTICE_AFTER_S
        self._child.send(number)

    def _check_child(self) -> None:
        if self._child is None:
            return
        self._child.listen()
        code = self._child.ended()
        if code is None:
            self._explain_wait()
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                click.echo("The app did not stop in time; killing it.", err=True)
                self._child.kill()
            return
        requested = self._kill_at is not None
        self._child, self._kill_at = None, None
        if self._signals:
            self._code = code if code >= 0 else 128 - code
        elif not requested:
            click.echo(f"The app ended with {describe_exit(code)}; waiting for a change.", err=True)

    def _explain_wait(self) -> None:
        now = time.monotonic()
        if self._notice_at is None or self._kill_at is None or now < self._notice_at:
            return
        self._notice_at = None
        how = "once more" if self._signals else "twice"
        left_s = max(1, round(self._kill_at - self._shutdown.margin_s - now))
        click.echo(f"Finishing records in flight, for at most {left_s} s; Ctrl-C {how} stops at once.", err=True)

    def _check_files(self) -> None:
        now = snapshot(self._root)
        fresh = changes(self._seen, now)
        self._seen = now
        self._changed += [path for path in fresh if path not in self._changed]
        # Files saved in quick succession are one change: act once a check finds nothing new.
        if not self._changed or fresh:
            return
        if self._child is not None:
            if self._kill_at is None:
                click.echo(f"Changed: {self._names()}; stopping the app to restart it.", err=True)
                self._end_child(signal.SIGTERM)
            return
        click.echo(f"Restarting: {self._names()} changed.", err=True)
        self._changed = []
        self._start()

    def _names(self) -> str:
        names = [str(path.relative_to(self._root)) for path in self._changed]
        more = len(names) - _MAX_NAMES
        return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
