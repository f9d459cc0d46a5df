"""Counting without objects or locks: plain integers that one thread owns and others only read."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (
    5e-6, 25e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0,
)  # fmt: skip
"""Upper bounds of the buckets for handling times, in seconds; one more bucket takes what is longer."""

DELAY_BOUNDS_S = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 21_600.0, 86_400.0)
"""The same for the delays of retries: from retries in place to the longest retry topic."""


class Tally:
    """Times by bucket. Owner: one thread, of a worker or of a loop; anybody may read, a little late."""

    __slots__ = ("counts", "total_s")

    def __init__(self, bounds_s: tuple[float, ...] = BOUNDS_S) -> None:
        self.counts = [0] * (len(bounds_s) + 1)
        self.total_s = 0.0

    def add(self, value_s: float, bounds_s: tuple[float, ...]) -> None:
        """One more. The bounds are told anew: whoever counts often writes into `counts` instead."""
        self.counts[bisect_left(bounds_s, value_s)] += 1
        self.total_s += value_s


class Tallies(dict[str, Tally]):
    """One worker's, by topic. Copy the values in one go to read them from elsewhere: the worker may add a topic."""

    __slots__ = ()

    def __missing__(self, topic: str) -> Tally:
        tally = self[topic] = Tally()
        return tally
