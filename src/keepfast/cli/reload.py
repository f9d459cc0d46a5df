"""`keepfast run --reload`: one child, started anew whenever the code changes. For development."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from keepfast.core.errors import StartError
from keepfast.supervisor import ChildProcess, ShutdownPolicy, Signals
from keepfast.supervisor.process import Command, ending

POLL_S = 0.4
CONNECT_TIMEOUT_S = 3.0
"""A child that takes longer to end is worth a word about what one waits for."""
SETTINGS_FILES = (".env", "keepfast.toml")
IGNORED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})
_MAX_NAMES = 3

Snapshot = dict[Path, tuple[int, int]]


def snapshot(root: Path) -> Snapshot:
    """Every .py file below `root`, and the settings' files in it, with time of change and size.

    Hidden folders, virtual environments and what tools leave behind are not looked into.
    """
    found: Snapshot = {}
    for path in _watched(root):
        try:
            status = path.stat()
        except OSError:
            continue  # gone between the listing and now: the next look sees it
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
    """What was changed, added or removed."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


class Reloader:
    """Runs one child of `command`, ends and starts it anew on changes below `root`. Owner: the main thread.

    A child that ends by itself, such as over a syntax error, has said why: the next change starts it again. The first
    signal is passed on and ends the reloader with the child's exit code; a second one ends both now. As soon as `died`
    has something to say about what the child depends on, it is raised as StartError.
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
        self._say_at: float | None = None
        self._signals: list[int] = []
        self._code = 0

    def run(self) -> int:
        """Blocks until a signal has ended it; returns the exit code. Raises StartError, see `died`."""
        with Signals() as signals:
            try:
                self._seen = snapshot(self._root)
                click.echo(f"Watching {self._root} for changes; Ctrl-C ends it.", err=True)
                self._start()
                while self._child is not None or not self._signals:
                    for number in signals.wait(self._poll_s):
                        self._signalled(number)
                    self._look_at_child()
                    if not self._signals:
                        if why := self._died():
                            raise StartError(why)
                        self._look_at_files()
                return 128 + self._signals[1] if len(self._signals) > 1 else self._code
            finally:
                if self._child is not None:
                    self._child.kill_and_wait()

    def _start(self) -> None:
        # Compiled files are told apart by the second: a change within the same one would not be seen.
        environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        self._child = ChildProcess.start(self._command, index=0, now=time.monotonic(), environ=environ)
        self._kill_at = None
        self._code = 0

    def _signalled(self, number: int) -> None:
        self._signals.append(number)
        if len(self._signals) == 1:
            if self._kill_at is None:  # else it drains already, because of a change: a signal more would cut that short
                self._end_child(number)
        elif self._child is not None:
            self._child.send(number)
            self._kill_at = time.monotonic() + self._shutdown.hurry_s

    def _end_child(self, number: int) -> None:
        if self._child is None:
            return
        report = self._child.report
        told_s = report.shutdown_timeout_s if report else None
        timeout_s = self._shutdown.unknown_timeout_s if told_s is None else told_s
        self._kill_at = time.monotonic() + timeout_s + self._shutdown.margin_s
        self._say_at = time.monotonic() + CONNECT_TIMEOUT_S
        self._child.send(number)

    def _look_at_child(self) -> None:
        if self._child is None:
            return
        self._child.listen()
        code = self._child.ended()
        if code is None:
            self._say_what_one_waits_for()
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                click.echo("It did not end in time and is killed.", err=True)
                self._child.kill()
            return
        asked = self._kill_at is not None
        self._child, self._kill_at = None, None
        if self._signals:
            self._code = code if code >= 0 else 128 - code
        elif not asked:
            click.echo(f"Ended with {ending(code)}; waiting for the next change.", err=True)

    def _say_what_one_waits_for(self) -> None:
        now = time.monotonic()
        if self._say_at is None or self._kill_at is None or now < self._say_at:
            return
        self._say_at = None
        how = "once more" if self._signals else "twice"
        left_s = max(1, round(self._kill_at - self._shutdown.margin_s - now))
        click.echo(f"It finishes what it has in hand, for {left_s} s at most; Ctrl-C {how} ends it at once.", err=True)

    def _look_at_files(self) -> None:
        now = snapshot(self._root)
        fresh = changes(self._seen, now)
        self._seen = now
        self._changed += [path for path in fresh if path not in self._changed]
        # Several files that are saved one after the other are one change: act when a look finds nothing new.
        if not self._changed or fresh:
            return
        if self._child is not None:
            if self._kill_at is None:
                click.echo(f"Changed: {self._names()}; ending it to start anew.", err=True)
                self._end_child(signal.SIGTERM)
            return
        click.echo(f"Starting anew: {self._names()} changed.", err=True)
        self._changed = []
        self._start()

    def _names(self) -> str:
        names = [str(path.relative_to(self._root)) for path in self._changed]
        more = len(names) - _MAX_NAMES
        return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
