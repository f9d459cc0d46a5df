"""A lock that runs take in the order in which they asked for it."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from keepfast.core.runs import NotBegun, Run

POLL_INTERVAL_S = 0.1
"""How often a worker that waits for its turn checks whether the holder was abandoned, and whether to wait at all."""


class _Entry:
    """Of the queue. `granted`, a lock, is released when it has the turn."""

    __slots__ = ("granted", "has_turn", "run")

    def __init__(self, run: Run | None) -> None:
        self.run = run
        self.has_turn = False
        self.granted = threading.Lock()
        self.granted.acquire()


class SerialGate:
    """It is taken away from a run that was abandoned: its thread may hang forever. Any thread."""

    def __init__(self) -> None:
        self._changing = threading.Lock()  # guards the queue
        self._queue: deque[_Entry] = deque()  # the first one has the turn

    @contextmanager
    def of(self, run: Run | None, *, timeout_s: float = math.inf) -> Iterator[None]:
        """Wait for the turn, and have it until the block ends. Without a run it is never taken away.

        `run.waits` meanwhile, so its time-out does not count. Raises NotBegun if the run is asked to stop before its
        turn has come; TimeoutError if it has not come in time.
        """
        entry = _Entry(run)
        with self._changing:
            self._queue.append(entry)
            self._grant()
        try:
            self._wait(entry, timeout_s)
            yield
        finally:
            with self._changing:
                with suppress(ValueError):  # it was taken away
                    self._queue.remove(entry)
                self._grant()

    def _wait(self, entry: _Entry, timeout_s: float) -> None:
        run = entry.run
        if run is None:
            self._wait_granted(entry, time.monotonic() + timeout_s)
            return
        run.waits = True
        try:
            self._wait_granted(entry, time.monotonic() + timeout_s)
        finally:
            run.waits = False
        if run.stopped:
            raise NotBegun

    def _wait_granted(self, entry: _Entry, deadline: float) -> None:
        while not entry.granted.acquire(timeout=POLL_INTERVAL_S):
            if entry.run is not None and entry.run.stopped:
                raise NotBegun
            if time.monotonic() >= deadline:
                raise TimeoutError("another call holds the turn")
            with self._changing:
                holder = self._queue[0]
                if holder.run is not None and holder.run.abandoned:
                    self._queue.popleft()
                    self._grant()

    def _grant(self) -> None:
        if self._queue and not self._queue[0].has_turn:
            self._queue[0].has_turn = True
            self._queue[0].granted.release()
