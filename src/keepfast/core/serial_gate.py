"""One call of the user's functions at a time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from keepfast.core.runs import NotBegun

POLL_INTERVAL_S = 0.1
"""How often a worker that waits for its turn checks whether the holder was abandoned, and whether to wait at all."""


class Waiting(Protocol):
    """What waits for its turn, and then has it: a run."""

    waits: bool

    @property
    def abandoned(self) -> bool: ...

    @property
    def stop(self) -> bool: ...


class SerialGate:
    """A lock that is taken away from a holder that was abandoned: its thread may hang forever. Any thread."""

    def __init__(self) -> None:
        self._changing = threading.Lock()  # guards replacing the two fields below
        self._lock = threading.Lock()
        self._holder: Waiting | None = None

    @contextmanager
    def of(self, holder: Waiting | None, *, until_stopped: bool = True, timeout_s: float = math.inf) -> Iterator[None]:
        """Wait for the turn, and have it until the block ends. Without a holder it is never taken away.

        `holder.waits` meanwhile, so its time-out does not count. Raises NotBegun if the holder is stopped before its
        turn has come, unless `until_stopped` is False; TimeoutError if it has not come in time.
        """
        stops = holder if until_stopped else None
        if holder is not None:
            holder.waits = True
        try:
            lock = self._acquired(holder, stops, time.monotonic() + timeout_s)
        finally:
            if holder is not None:
                holder.waits = False
        try:
            if stops is not None and stops.stop:
                raise NotBegun
            yield
        finally:
            with self._changing:
                if self._lock is lock:
                    self._holder = None
            lock.release()

    def _acquired(self, holder: Waiting | None, stops: Waiting | None, deadline: float) -> threading.Lock:
        while time.monotonic() < deadline:
            lock = self._lock
            if lock.acquire(timeout=POLL_INTERVAL_S):
                with self._changing:
                    if self._lock is lock:
                        self._holder = holder
                        return lock
                lock.release()  # it was taken away meanwhile: the turn is another lock's
                continue
            if stops is not None and stops.stop:
                raise NotBegun
            with self._changing:
                if self._lock is lock and self._holder is not None and self._holder.abandoned:
                    self._lock, self._holder = threading.Lock(), None
        raise TimeoutError("another call holds the turn")
