"""The connection between parent and child: the child reports its settings, and notices when the parent stops or dies.

It is a socket pair of which only the parent holds one end: however the parent ends, the kernel closes it. A
parent-death signal is Linux-only, and is sent when the *thread* that started the child ends.
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
"""Sent by the parent before its signal. A child that is stopped without it is restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a child reports once its settings are validated."""

    shutdown_timeout_s: float | None = None
    log_level: str | None = None
    log_format: str | None = None
    app: str = ""
    health: tuple[str, int] | None = None
    """The address of the health server for all children; None: no server."""
    health_required: bool = False
    restart_after_s: float | None = None
    """`health.restart_after_s`; None: it is not known."""

    @classmethod
    def parse(cls, line: bytes) -> Report | None:
        """The report, or None if the line is not one."""
        try:
            fields: Any = json.loads(line)
            timeout_s, restart_s = fields.get("shutdown_timeout_s"), fields.get("restart_after_s")
            return cls(
                shutdown_timeout_s=None if timeout_s is None else float(timeout_s),
                log_level=fields.get("log_level"),
                log_format=fields.get("log_format"),
                app=str(fields.get("app", "")),
                health=_address(fields.get("health")),
                health_required=bool(fields.get("health_required")),
                restart_after_s=None if restart_s is None else float(restart_s),
            )
        except (ValueError, TypeError, AttributeError, IndexError, KeyError):
            return None

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def _address(value: Any) -> tuple[str, int] | None:
    return None if value is None else (str(value[0]), int(value[1]))


class ParentLink:
    """The child's end, on the file descriptor that the parent passed. Thread-safe."""

    def __init__(self, fd: int) -> None:
        # Processes started by handlers must not inherit it.
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        self._lock = threading.Lock()  # guards reading, and the fields below
        self._gone = False
        self._stops = False

    def watch(self) -> None:
        """From now on, send SIGTERM to this process when the parent is gone, so that it drains and ends."""
        threading.Thread(target=self._watch, name="parent-link", daemon=True).start()

    def report(self, report: Report) -> None:
        """Send the report to the parent. Does nothing if the parent is gone; `watch` handles that."""
        try:
            self._socket.sendall(report.line())
        except OSError:
            return

    def supervisor_stops(self) -> bool:
        """Whether the parent stops or is gone. Does not block; true at the latest when the parent's signal arrives."""
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
                received = self._socket.recv(1024, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                received = b""  # the connection broke instead of being closed: gone either way
            self._gone = self._gone or not received
            self._stops = self._stops or SUPERVISOR_STOPS in received
