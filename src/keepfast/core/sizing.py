"""How many records a run should carry: many for handlers of microseconds, one for handlers that wait."""

from __future__ import annotations

FAST_S = 50e-6
"""A handler below this is dearer to hand over than to run: its records travel in bundles, on few workers."""

FAST_WORKERS = 4
"""Runs of a fast handler out at the same time: more threads would only fight over the interpreter."""

QUICK_S = 200e-6
"""A handler below this is worth waiting for, so that its commit can be shared; and worth a trial on the loop's own
thread, if it is this fast with all workers together.
"""

MAX_RUN = 4_000
CONSECUTIVE_S, BUNDLE_S, INLINE_S = 20e-3, 5e-3, 2e-3
"""How long a run should take: long enough to pay for the hand-over, short enough to be stopped and committed; on the
loop's own thread, short enough not to delay anything.
"""

LONG_INLINE_S, DISTRUST_RUNS = 10e-3, 100
"""After a run that took this long on the loop's own thread, so many others are given to workers."""

FIRST_TRIAL, NEXT_TRIAL, LAST_TRIAL = 1_000, 4, 1_000_000
"""Records on workers before a trial on the loop's own thread. Each one that fails makes it so many times more for the
next, up to the last number: a trial costs what all workers do in the time of one call.
"""

TRIAL_MARGIN = 1.25
"""A trial succeeds if a record took at most this many times what it takes with all workers together."""

CHANGED = 3
"""A handler that takes so many times what it took in its trial is a different one: it goes back to workers."""


class Sizer:
    """Keeps a running mean of the handler's time. Owner: the loop thread.

    `consecutive`: runs are stretches of one lane, which no other worker could run anyway; else they are bundles of
    lanes that could run side by side, so only a fast handler gets them. `one_by_one`: every record on its own.
    `may_inline`: the loop could walk runs on its own thread.

    Workers that compute wait for the interpreter, so their times do not say how long the handler takes. Whether it
    computes or waits for something else is found out by a trial: one run on the loop's own thread while no worker has
    one. A handler that computes is then as fast as all workers together; one that waits is slower.

    `size`: records per run. `workers`: runs that may be out at the same time. `inline`: whether the loop should walk
    runs on its own thread. `trial`: whether it should do so with the next one only, to see how long it takes. `quick`:
    whether a run that is out will be back in a moment.
    """

    __slots__ = (
        "_capacity",
        "_consecutive",
        "_distrust",
        "_inline_s",
        "_may_inline",
        "_mean_s",
        "_one_by_one",
        "_records_per_trial",
        "_shared_s",
        "_until_trial",
        "inline",
        "quick",
        "size",
        "trial",
        "workers",
    )

    def __init__(self, *, capacity: int, consecutive: bool, one_by_one: bool, may_inline: bool = False) -> None:
        self._capacity = capacity
        self._consecutive = consecutive
        self._one_by_one = one_by_one
        self._may_inline = may_inline
        self._distrust = 0
        self._mean_s: float | None = None
        self._shared_s: float | None = None  # a record, with all workers together
        self._inline_s: float | None = None  # a record in the trial that succeeded last
        self._records_per_trial = self._until_trial = FIRST_TRIAL
        self.size = 1
        self.workers = capacity
        self.inline = self.trial = self.quick = False

    def observe(self, elapsed_s: float, records: int, *, beside: int = 0, here: bool = False) -> None:
        """A run of so many finished records took so long. `beside`: runs that were out at the same time. `here`: it was
        walked on the loop's own thread.
        """
        if here and elapsed_s >= LONG_INLINE_S:
            self._distrust = DISTRUST_RUNS
        elif self._distrust:
            self._distrust -= 1
        if records:
            sample_s = elapsed_s / records
            if here and self.trial:
                self._judge(sample_s)
            elif beside and self._inline_s is None:
                self._compare(sample_s / (beside + 1), records)
            mean_s = self._mean_s
            if mean_s is None:
                mean_s = sample_s
            else:  # believe slowness sooner than speed
                mean_s += (0.5 if sample_s > mean_s else 0.2) * (sample_s - mean_s)
            self._mean_s = mean_s
        if self._mean_s is not None:
            self._decide(self._mean_s)

    def taken_over(self) -> None:
        """A run on the loop's own thread took so long that another thread has the loop now."""
        self._distrust = DISTRUST_RUNS
        if self.trial:
            self.end_trial()

    def end_trial(self) -> None:
        """Without a result, or with a bad one: the next one comes later."""
        self.trial = False
        self._until_trial = self._records_per_trial = min(LAST_TRIAL, NEXT_TRIAL * self._records_per_trial)
        if self._mean_s is not None:
            self._decide(self._mean_s)

    def _compare(self, sample_s: float, records: int) -> None:
        """A record took so long with all workers together: perhaps one thread would do as well."""
        shared_s = self._shared_s
        self._shared_s = sample_s if shared_s is None else shared_s + 0.2 * (sample_s - shared_s)
        if self._may_inline:
            self._until_trial -= records
            self.trial = self._until_trial <= 0 and self._shared_s < QUICK_S

    def _judge(self, sample_s: float) -> None:
        if self._shared_s is not None and sample_s <= min(QUICK_S, TRIAL_MARGIN * self._shared_s):
            self._inline_s = self._mean_s = sample_s
            self._records_per_trial = FIRST_TRIAL
            self.trial = False
        else:
            self.end_trial()

    def _decide(self, mean_s: float) -> None:
        if self._inline_s is not None and mean_s >= min(QUICK_S, max(FAST_S, CHANGED * self._inline_s)):
            self._inline_s, self._until_trial = None, self._records_per_trial
        fast = mean_s < FAST_S or self._inline_s is not None
        self.quick = mean_s < QUICK_S
        self.trial = self.trial and not fast
        self.inline = self.trial or (fast and self._may_inline and not self._distrust)
        self.workers = min(self._capacity, FAST_WORKERS) if fast and not self._one_by_one else self._capacity
        if self.trial:
            self.workers = 1
        if not self._one_by_one:
            self._measure(mean_s, fast=fast)

    def _measure(self, mean_s: float, *, fast: bool) -> None:
        if not (fast or self._consecutive):
            self.size = 1
            return
        target_s = INLINE_S if self.inline else CONSECUTIVE_S if self._consecutive else BUNDLE_S
        self.size = max(1, min(MAX_RUN, int(target_s / max(mean_s, 1e-9))))
