"""Processor time: that of one call, without what else the process does, and what a process has to wait for it."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Stopwatch:
    """What the slowest of the measured calls took."""

    def __init__(self) -> None:
        self.slowest_cpu_s = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """This thread only, and no collection of garbage that others left: either can take half a second of its own."""
        collects = gc.isenabled()
        gc.disable()
        begun = time.thread_time()
        try:
            yield
        finally:
            self.slowest_cpu_s = max(self.slowest_cpu_s, time.thread_time() - begun)
            if collects:
                gc.enable()


def delays_s(process: int | str = "self") -> dict[str, float]:
    """How long each thread of a process has been ready to run and had no processor, as the kernel counts it."""
    found = {}
    for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with suppress(OSError):  # it has ended meanwhile
            found[path.parent.name] = int(path.read_text().split()[1]) / 1e9
    return found


def longest_delay_s(before: dict[str, float], after: dict[str, float]) -> float:
    """Of one thread, between the two."""
    return max((delay_s - before.get(thread, 0.0) for thread, delay_s in after.items()), default=0.0)
