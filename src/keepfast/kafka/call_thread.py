"""Calls of a client that may never return, watched by the thread that needs their results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

GRACE_S = 1.0
"""A process that was stopped finds both at its end: the call that returns, and the time that has passed."""


class Hangs(Exception):
    """A call did not return in time. Its thread keeps the client, which cannot be destroyed and must not be used."""


class CallThread:
    """Makes calls on a daemon thread, one at a time. Owner: one thread."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._hangs = False

    @property
    def busy(self) -> bool:
        """Whether a call that was given up has not returned yet."""
        return self._hangs and self._results.empty()

    def call(self, function: Callable[[], T], within_s: float) -> T:
        """Call `function` and return its result; raises what it raises. Raises Hangs if it does not return within
        `within_s`: then this thread takes no more calls.
        """
        if self._hangs:
            raise Hangs
        if self._thread.ident is None:
            self._thread.start()
        self._calls.put(function)
        try:
            result, error = self._results.get(timeout=within_s)
        except Empty:
            result, error = self._late_result(within_s)
        if error is not None:
            raise error
        found: T = result
        return found

    def close(self) -> None:
        """Let the thread end. Never blocks."""
        self._calls.put(None)

    def _late_result(self, within_s: float) -> tuple[Any, BaseException | None]:
        try:
            return self._results.get(timeout=GRACE_S)
        except Empty:
            self._hangs = True
            self.close()
            raise Hangs(f"A call has not returned for {within_s:g} s.") from None

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._results.put((call(), None))
            except BaseException as error:  # noqa: BLE001 - the thread's edge: raised where the result is awaited
                self._results.put((None, error))
