"""The line between parent and child: the child tells what the parent must know, and notices when the parent is gone or
stops.

A socket pair, because only the parent holds its end: however the parent goes, the kernel closes it. A parent-death
signal would be Linux only, and comes when the *thread* that started the child ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import threading
from dataclasses import asdict, dataclass
from typing import Any, Final

SUPERVISOR_STOPS: Final = b"s"
"""From the parent, before its signal. A child that is stopped without it is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a child tells once its settings are known to be right."""

    shutdown_timeout_s: float | None = None
    log_level: str | None = None
    log_format: str | None = None
    app: str = ""
    health: tuple[str, int] | None = None
    """Where health and metrics of all children are to be served; None: nowhere."""
    health_required: bool = False

    @classmethod
    def parse(cls, line: bytes) -> Report | None:
        """None if the line is not a report."""
        try:
            told: Any = json.loads(line)
            timeout_s = told.get("shutdown_timeout_s")
            return cls(
                shutdown_timeout_s=None if timeout_s is None else float(timeout_s),
                log_level=told.get("log_level"),
                log_format=told.get("log_format"),
                app=str(told.get("app", "")),
                health=_address(told.get("health")),
                health_required=bool(told.get("health_required")),
            )
        except (ValueError, TypeError, AttributeError, IndexError, KeyError):
            return None

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def _address(told: Any) -> tuple[str, int] | None:
    return None if told is None else (str(told[0]), int(told[1]))


class Tether:
    """The child's end, from the file descriptor that the parent passed on. Any thread."""

    def __init__(self, fd: int) -> None:
        # The handler's own child processes must not inherit it.
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        self._lock = threading.Lock()  # guards reading, and the fields below
        self._gone = False
        self._stops = False

    def hold(self) -> None:
        """From now on the end of the parent is a SIGTERM here: the child drains and ends."""
        threading.Thread(target=self._watch, name="tether", daemon=True).start()

    def report(self, report: Report) -> None:
        """Tell the parent. If it is gone, `hold` acts on that."""
        try:
            self._socket.sendall(report.line())
        except OSError:
            return

    def supervisor_stops(self) -> bool:
        """Whether the parent stops, or is gone. Does not block; true at the latest when the parent's signal is here."""
        self._read()
        return self._stops or self._gone

    def _watch(self) -> None:
        while not self._gone:
            select.select([self._socket], [], [])
            self._read()
        os.kill(os.getpid(), signal.SIGTERM)

    def _read(self) -> None:
        with self._lock:
            try:
                came = self._socket.recv(1024, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                came = b""  # the line broke instead of being closed: gone either way
            self._gone = self._gone or not came
            self._stops = self._stops or SUPERVISOR_STOPS in came
