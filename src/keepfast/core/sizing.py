"""How many records a run should carry: many for handlers of microseconds, one for handlers that wait."""

from __future__ import annotations

FAST_S = 50e-6
"""A handler below this is dearer to hand over than to run: its records travel in bundles, on few workers."""

FAST_WORKERS = 4
"""Runs of a fast handler out at the same time: more threads would only fight over the interpreter."""

QUICK_S = 200e-6
"""A handler below this is worth waiting for, so that its commit can be shared."""

MAX_RUN = 4_000
CONSECUTIVE_S, BUNDLE_S, INLINE_S = 20e-3, 5e-3, 2e-3
"""How long a run should take: long enough to pay for the hand-over, short enough to be stopped and committed; on the
loop's own thread, short enough not to delay anything.
"""

LONG_INLINE_S, DISTRUST_RUNS = 10e-3, 100
"""After a run that took this long on the loop's own thread, so many others are given to workers."""


class Sizer:
    """Keeps a running mean of the handler's time. Owner: the loop thread.

    `consecutive`: runs are stretches of one lane, which no other worker could run anyway; else they are bundles of
    lanes that could run side by side, so only a fast handler gets them. `one_by_one`: every record on its own.
    `may_inline`: the loop could walk runs on its own thread.

    `size`: records per run. `workers`: runs that may be out at the same time. `inline`: whether the loop should walk
    runs on its own thread. `quick`: whether a run that is out will be back in a moment.
    """

    __slots__ = (
        "_capacity",
        "_consecutive",
        "_distrust",
        "_may_inline",
        "_mean_s",
        "_one_by_one",
        "inline",
        "quick",
        "size",
        "workers",
    )

    def __init__(self, *, capacity: int, consecutive: bool, one_by_one: bool, may_inline: bool = False) -> None:
        self._capacity = capacity
        self._consecutive = consecutive
        self._one_by_one = one_by_one
        self._may_inline = may_inline
        self._distrust = 0
        self._mean_s: float | None = None
        self.size = 1
        self.workers = capacity
        self.inline = self.quick = False

    def observe(self, elapsed_s: float, records: int) -> None:
        """A run of so many finished records took so long."""
        if elapsed_s >= LONG_INLINE_S and self.inline:
            self._distrust = DISTRUST_RUNS
        elif self._distrust:
            self._distrust -= 1
        mean_s = self._mean_s
        if records:
            sample_s = elapsed_s / records
            if mean_s is None:
                mean_s = sample_s
            else:  # believe slowness sooner than speed
                mean_s += (0.5 if sample_s > mean_s else 0.2) * (sample_s - mean_s)
            self._mean_s = mean_s
        if mean_s is not None:
            fast = mean_s < FAST_S
            self.quick = mean_s < QUICK_S
            self.inline = fast and self._may_inline and not self._distrust
            if not self._one_by_one:
                self._measure(mean_s, fast=fast)

    def _measure(self, mean_s: float, *, fast: bool) -> None:
        self.workers = min(self._capacity, FAST_WORKERS) if fast else self._capacity
        if not (fast or self._consecutive):
            self.size = 1
            return
        target_s = INLINE_S if self.inline else CONSECUTIVE_S if self._consecutive else BUNDLE_S
        self.size = max(1, min(MAX_RUN, int(target_s / max(mean_s, 1e-9))))
