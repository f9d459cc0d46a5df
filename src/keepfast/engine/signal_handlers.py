"""Signal handlers that a forked child does not inherit.

`multiprocessing` forks by default on Linux up to Python 3.13, also when a user's handler calls it. A child with our
signal handlers would ignore the SIGTERM of `Process.terminate()` or of a pool that ends: it has no loop to drain.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Mapping
from types import FrameType

SignalHandler = signal.Handlers | Callable[[int, FrameType | None], object] | int | None

_replaced: dict[int, SignalHandler] = {}
"""What was in place before the first handler of ours. Owner: the main thread, the only one that may set handlers."""


def install(numbers: Iterable[int], handler: Callable[[int, FrameType | None], object]) -> dict[int, SignalHandler]:
    """Set the handler in this process only; returns the handlers before it, for `restore`. Main thread only."""
    previous: dict[int, SignalHandler] = {number: signal.signal(number, handler) for number in numbers}
    for number, before in previous.items():
        _replaced.setdefault(number, before)
    return previous


def restore(previous: Mapping[int, SignalHandler]) -> None:
    """Undo an `install`. Main thread only."""
    for number, before in previous.items():
        signal.signal(number, before)
        if _replaced.get(number) == before:
            del _replaced[number]


def _restore_in_child() -> None:
    restore(dict(_replaced))


os.register_at_fork(after_in_child=_restore_in_child)
