"""Counting without objects or locks: plain integers that one thread owns and others only read."""

from __future__ import annotations

BOUNDS_S = (
    5e-6, 25e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0,
)  # fmt: skip
"""Upper bounds of the buckets for handling times, in seconds; one more bucket takes what is longer."""


class Tally:
    """Handling times of one worker. Owner: that worker; anybody may read, a little late."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0
