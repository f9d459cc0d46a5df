"""One function of the user's at a time; one that was given up after its time-out does not count any more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from keepfast.core.runs import NotBegun

LOOK_S = 0.1
"""How often somebody who waits looks whether the one that it waits for was given up, and whether to wait at all."""


class Holder(Protocol):
    """Whose turn it is: a run."""

    @property
    def abandoned(self) -> bool: ...

    @property
    def stop(self) -> bool: ...


class Turn:
    """A lock that is taken away from a holder that was abandoned: its thread may hang for ever. Any thread."""

    def __init__(self) -> None:
        self._changing = threading.Lock()  # guards replacing the two fields below
        self._lock = threading.Lock()
        self._holder: Holder | None = None

    @contextmanager
    def of(self, holder: Holder | None) -> Iterator[None]:
        """Wait for the turn, and have it until the block ends. Without a holder it is never taken away.

        Raises NotBegun if the holder is told to stop before its turn has come.
        """
        lock = self._acquired(holder)
        try:
            if holder is not None and holder.stop:
                raise NotBegun
            yield
        finally:
            with self._changing:
                if self._lock is lock:
                    self._holder = None
            lock.release()

    def _acquired(self, holder: Holder | None) -> threading.Lock:
        while True:
            lock = self._lock
            if lock.acquire(timeout=LOOK_S):
                with self._changing:
                    if self._lock is lock:
                        self._holder = holder
                        return lock
                lock.release()  # it was taken away meanwhile: the turn is another lock's
                continue
            if holder is not None and holder.stop:
                raise NotBegun
            with self._changing:
                if self._lock is lock and self._holder is not None and self._holder.abandoned:
                    self._lock, self._holder = threading.Lock(), None


class Anytime(Turn):
    """Any number at the same time."""

    @contextmanager
    def of(self, holder: Holder | None) -> Iterator[None]:  # noqa: ARG002 - as above
        yield
