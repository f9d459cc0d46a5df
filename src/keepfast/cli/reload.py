"""`keepfast run --reload`: one child process, restarted when the code changes. For development."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import click

from keepfast.core.errors import ConfigError, StartError
from keepfast.supervisor import ChildProcess, ShutdownPolicy, Signals
from keepfast.supervisor.process import Command, describe_exit

TICK_MS = 200
"""How long signals and the end of the child wait at most. Files that are saved within this time are one change."""
DRAIN_NOTICE_AFTER_S = 3.0
"""If a child takes longer to end, a line explains the wait."""
SETTINGS_FILES = (".env", "keepfast.toml")
IGNORED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})
_MAX_NAMES = 3


def require_watchfiles() -> None:
    """Raises ConfigError if it is not installed."""
    if find_spec("watchfiles") is None:
        raise ConfigError("Restarting on changes needs watchfiles: pip install watchfiles.")


def is_watched(path: Path, root: Path) -> bool:
    """Whether it is a .py file below `root`, or a settings file in it.

    Hidden folders, virtual environments and build output do not count.
    """
    if path.parent == root and path.name in SETTINGS_FILES:
        return True
    folders = path.relative_to(root).parts[:-1]
    if path.suffix != ".py" or any(name.startswith(".") or name in IGNORED for name in folders):
        return False
    return not any((folder / "pyvenv.cfg").exists() for folder in (root, *path.parents) if folder.is_relative_to(root))


def file_changes(root: Path) -> Iterator[list[Path]]:
    """Without end: the files that were changed, added or removed since the last time; often none. Raises StartError."""
    from watchfiles import watch

    # Filtered here and not by the library, which would not come back while other files change all the time.
    ticks = watch(
        root, watch_filter=None, debounce=TICK_MS, rust_timeout=TICK_MS, yield_on_timeout=True, raise_interrupt=False
    )
    try:
        for events in ticks:
            yield sorted(path for path in {Path(name) for _, name in events} if is_watched(path, root))
    except (OSError, RuntimeError) as error:
        raise StartError(
            f"Changes below {root} cannot be watched: {error}. WATCHFILES_FORCE_POLLING=true polls instead."
        ) from error


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
        shutdown: ShutdownPolicy | None = None,
        died: Callable[[], str] = str,
    ) -> None:
        self._command = command
        self._root = root
        self._shutdown = shutdown or ShutdownPolicy()
        self._died = died
        self._child: ChildProcess | None = None
        self._changed: list[Path] = []
        self._kill_at: float | None = None
        self._notice_at: float | None = None
        self._signals: list[int] = []
        self._code = 0

    def run(self) -> int:
        """Run until a signal; blocks. Returns the exit code. Raises StartError, see `died`."""
        with Signals() as signals:
            try:
                click.echo(f"Watching {self._root} for changes; Ctrl-C stops.", err=True)
                self._start()
                for changed in file_changes(self._root):
                    for number in signals.wait(0.0):
                        self._on_signal(number)
                    self._check_child()
                    if not self._signals:
                        if why := self._died():
                            raise StartError(why)
                        self._on_changes(changed)
                    elif self._child is None:
                        break
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

    def _on_changes(self, changed: list[Path]) -> None:
        self._changed += [path for path in changed if path not in self._changed]
        if not self._changed:
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
