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


COMPUTES_S = 200e-6
"""A handler below this that computes is walked on the loop's own thread: threads would take the interpreter from each
other.
"""

MIN_LOAD, MAX_LOAD = 0.2, 1.25
"""How many processors all workers together keep busy, if they wait for one interpreter. Below, the handler waits for
something else or there is little to do; above, it computes outside the interpreter, and threads do help.
"""

LOOK_S, TRUST_S = 0.05, 3.0
"""How long runs are observed before it is decided whether the handler computes, and how long that holds."""


class ComputeCheck:
    """Whether a handler computes, so that threads only take the interpreter from each other. Owner: the loop thread.

    The elapsed time of a run on a worker includes the wait for the interpreter, which looks like any other wait. What
    tells them apart is the processor time of the workers together, and then what a run takes that has the interpreter
    to itself: so `found` is a guess until runs on the loop's own thread have confirmed it.
    """

    __slots__ = ("_busy_s", "_elapsed_s", "_holds_until", "_records", "_since", "found")

    def __init__(self) -> None:
        self._busy_s = self._elapsed_s = self._since = self._holds_until = 0.0
        self._records = 0
        self.found = False

    def observe(self, elapsed_s: float, records: int, busy_s: float, now: float, *, inline: bool) -> None:
        """As `Sizer.observe`."""
        if inline is not self.found:  # of before the last decision
            return
        self._busy_s += busy_s
        self._elapsed_s += elapsed_s
        self._records += records
        if now - self._since >= LOOK_S:
            self._look(now)
            self._busy_s = self._elapsed_s = 0.0
            self._records = 0
            self._since = now

    def _look(self, now: float) -> None:
        if self.found:
            waits = self._busy_s < self._elapsed_s / 2
            self.found = not waits and now < self._holds_until
            self._holds_until = now + TRUST_S if waits else self._holds_until
        elif now >= self._holds_until:
            load = self._busy_s / (now - self._since)
            self.found = MIN_LOAD <= load <= MAX_LOAD and self._busy_s < COMPUTES_S * self._records
            self._holds_until = now + TRUST_S if self.found else now


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
        "_computing",
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
        self._computing = ComputeCheck()
        self._distrust = 0
        self._mean_s: float | None = None
        self.size = 1
        self.workers = capacity
        self.inline = self.quick = False

    def observe(
        self, elapsed_s: float, records: int, *, busy_s: float = 0.0, now: float = 0.0, inline: bool = False
    ) -> None:
        """A run of so many finished records took so long, of which its thread had the processor for `busy_s`; `inline`:
        on the loop's own thread.
        """
        if elapsed_s >= LONG_INLINE_S and inline:
            self._distrust = DISTRUST_RUNS
        elif self._distrust:
            self._distrust -= 1
        mean_s, computing = self._mean_s, self._computing
        if records:
            was_found = computing.found
            if self._may_inline:
                computing.observe(elapsed_s, records, busy_s, now, inline=inline)
            sample_s = (busy_s if computing.found else elapsed_s) / records
            if mean_s is None or computing.found > was_found:
                mean_s = sample_s
            else:  # believe slowness sooner than speed
                mean_s += (0.5 if sample_s > mean_s else 0.2) * (sample_s - mean_s)
            self._mean_s = mean_s
        if mean_s is not None:
            fast = mean_s < (COMPUTES_S if computing.found else FAST_S)
            self.quick = mean_s < QUICK_S
            self.inline = fast and self._may_inline and (computing.found or not self._distrust)
            if not self._one_by_one:
                self._measure(mean_s, fast=fast)

    def _measure(self, mean_s: float, *, fast: bool) -> None:
        self.workers = min(self._capacity, FAST_WORKERS) if fast else self._capacity
        if not (fast or self._consecutive):
            self.size = 1
            return
        target_s = INLINE_S if self.inline else CONSECUTIVE_S if self._consecutive else BUNDLE_S
        self.size = max(1, min(MAX_RUN, int(target_s / max(mean_s, 1e-9))))
