"""One child process, seen from its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from keepfast.supervisor.parent_link import SUPERVISOR_STOPS, Report

_MAX_REPORT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What the command line of a child depends on: its number, the file descriptor of its parent link, and whether it
    is a restart.
    """

    index: int
    parent_fd: int
    restarted: bool


Command = Callable[[ChildSpec], Sequence[str]]
"""Returns the command line of a child."""


class ChildProcess:
    """A running child, created by `start`. Owner: the parent's main thread.

    It has its own process group, so that Ctrl-C in a terminal reaches only the parent, which forwards it once.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], parent_link: socket.socket, *, index: int, started_at: float
    ) -> None:
        self._process = process
        self.index = index
        self.parent_link = parent_link
        self.started_at = started_at
        self.report: Report | None = None
        self.listening = True
        """Whether a report may still arrive."""
        self._received = b""

    @classmethod
    def start(
        cls,
        command: Command,
        *,
        index: int,
        now: float,
        restarted: bool = False,
        environ: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> ChildProcess:
        """Start a child, which inherits `pass_fds`. Raises OSError if the program cannot be started."""
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            fd = theirs.fileno()
            try:
                process = subprocess.Popen(
                    command(ChildSpec(index, fd, restarted)),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(fd, *pass_fds),
                    process_group=0,
                    env=environ,
                )
            except BaseException:
                ours.close()
                raise
        return cls(process, ours, index=index, started_at=now)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        code = self._process.poll()
        if code is not None:
            self.listening = False
            self.parent_link.close()
        return code

    def listen(self) -> Report | None:
        """Read from the child; returns its report once it has arrived. Does not block."""
        if not self.listening:
            return None
        try:
            received = self.parent_link.recv(_MAX_REPORT_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            received = b""
        self._received += received
        line, complete, _ = self._received.partition(b"\n")
        if complete:
            self.report = Report.parse(line) or Report()
        # A closed connection, or one that sent no report, is read no more: it would wake the parent all the time.
        self.listening = bool(received) and not complete and len(line) < _MAX_REPORT_BYTES
        return self.report

    def end(self, number: int | None) -> None:
        """Send that the supervisor itself stops, so that the child is not restarted, and this signal; None: it has had
        one.
        """
        with suppress(OSError):
            self.parent_link.send(SUPERVISOR_STOPS)  # before the signal, so that the child can read it in its handler
        if number is not None:
            self.send(number)

    def send(self, number: int) -> None:
        """Send a signal to the child only, not to processes that it has started."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL to its whole process group; `ended` returns the code once it has ended."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill_and_wait(self) -> None:
        self.kill()
        self._process.wait()
        self.parent_link.close()


def describe_exit(code: int) -> str:
    """An exit code as text: `code 4`, or the name of the signal."""
    if code >= 0:
        return f"code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
