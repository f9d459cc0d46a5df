"""Signals read as values, instead of handlers that interrupt at any point."""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """While it is open, SIGTERM, SIGINT and SIGCHLD only wake up `wait`. Owner: the main thread.

    Every signal counts, even two of the same kind in a row: the interpreter writes each one to a socket.
    """

    def __init__(self) -> None:
        self._reader: socket.socket | None = None
        self._writer: socket.socket | None = None
        self._previous_fd = -1
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._previous_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, _ignore) for number in (*STOP_SIGNALS, signal.SIGCHLD)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_fd)
        for end in (self._reader, self._writer):
            if end is not None:
                end.close()

    def wait(self, timeout_s: float, also: Sequence[socket.socket] = ()) -> list[int]:
        """Block until a signal arrives, one of `also` is readable, or the timeout; returns the SIGTERMs and SIGINTs."""
        if self._reader is None:
            raise RuntimeError("Signals.wait needs the context manager to be entered first.")
        select.select([self._reader, *also], [], [], max(0.0, timeout_s))
        try:
            arrived = self._reader.recv(4096)
        except BlockingIOError:
            return []
        return [number for number in arrived if number in STOP_SIGNALS]


def _ignore(number: int, frame: FrameType | None) -> None:
    """The reader of the socket handles the signal."""
