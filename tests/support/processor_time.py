"""Processor time of one call, without what else the process does."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


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
