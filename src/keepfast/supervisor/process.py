"""One child process, as its parent sees it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from keepfast.supervisor.tether import SUPERVISOR_STOPS, Report

_MAX_REPORT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ChildPlace:
    """Where a child stands: its number, the file descriptor of its tether, and whether it stood here before."""

    index: int
    tether_fd: int
    again: bool


Command = Callable[[ChildPlace], Sequence[str]]
"""The command line of the child in that place."""


class ChildProcess:
    """A running child; `start` makes one. Owner: the parent's main thread.

    It has a process group of its own, so that Ctrl-C in a terminal reaches the parent alone, which passes it on once.
    """

    def __init__(self, process: subprocess.Popen[bytes], tether: socket.socket, started_at: float) -> None:
        self._process = process
        self.tether = tether
        self.started_at = started_at
        self.report: Report | None = None
        self.listening = True
        """A report may still come."""
        self._received = b""

    @classmethod
    def start(
        cls, command: Command, *, index: int, now: float, again: bool = False, environ: Mapping[str, str] | None = None
    ) -> ChildProcess:
        """Raises OSError if the program cannot be started."""
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            fd = theirs.fileno()
            try:
                process = subprocess.Popen(
                    command(ChildPlace(index, fd, again)),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(fd,),
                    process_group=0,
                    env=environ,
                )
            except BaseException:
                ours.close()
                raise
        return cls(process, ours, now)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> int | None:
        """Its exit code, minus the signal's number if one ended it, or None as long as it lives."""
        code = self._process.poll()
        if code is not None:
            self.listening = False
            self.tether.close()
        return code

    def listen(self) -> Report | None:
        """The report, if it came just now. Does not block."""
        if not self.listening:
            return None
        try:
            came = self.tether.recv(_MAX_REPORT_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            came = b""
        self._received += came
        line, complete, _ = self._received.partition(b"\n")
        if complete:
            self.report = Report.parse(line) or Report()
        # A line that was closed, or that is no report, stays silent: it must not wake the parent up for ever.
        self.listening = bool(came) and not complete and len(line) < _MAX_REPORT_BYTES
        return self.report

    def end(self, number: int) -> None:
        """This signal, and word that the supervisor itself stops: nobody starts the child again."""
        with suppress(OSError):
            self.tether.send(SUPERVISOR_STOPS)  # before the signal, so that it is there when the child looks
        self.send(number)

    def send(self, number: int) -> None:
        """To the child alone: what it has started itself is its own affair."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL to its whole process group; `ended` tells when it is over."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill_and_wait(self) -> None:
        self.kill()
        self._process.wait()
        self.tether.close()


def ending(code: int) -> str:
    """For people: `code 4`, or the name of the signal."""
    if code >= 0:
        return f"code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
