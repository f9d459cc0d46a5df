"""Rate limits: how fast records may start. Pure: time is an argument. Owner: the loop thread."""

from __future__ import annotations

from dataclasses import dataclass

from keepfast.core import checks
from keepfast.core.errors import ConfigError
from keepfast.core.records import TopicPartition

SMOOTHED_S = 0.05
"""What a rate allows in this time may start at once, unless told: a loop that wakes up late catches up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePolicy:
    """At most `per_s` records start per second, and `partition_per_s` of each partition; `min_delay_ms` lies between
    any two starts. Retries are starts, too.

    Up to `burst` may start at once after a pause; None is what the rate allows in 50 ms, at least one. `min_delay_ms`
    knows no bursts, and no retry waits less.
    """

    per_s: float | None = None
    partition_per_s: float | None = None
    min_delay_ms: float = 0
    burst: int | None = None

    def __post_init__(self) -> None:
        found = {
            "per_s": None if self.per_s is None else checks.number(self.per_s, 0, above=True),
            "partition_per_s": None
            if self.partition_per_s is None
            else checks.number(self.partition_per_s, 0, above=True),
            "min_delay_ms": checks.number(self.min_delay_ms, 0),
            "burst": None if self.burst is None else checks.whole(self.burst, 1),
        }
        problems = [f"rate: {name} {problem}." for name, problem in found.items() if problem]
        if problems:
            raise ConfigError(*problems)

    @property
    def limits(self) -> bool:
        """Whether it limits anything."""
        return self.per_s is not None or self.partition_per_s is not None or self.min_delay_ms > 0

    def burst_at(self, per_s: float) -> int:
        return self.burst if self.burst is not None else max(1, int(per_s * SMOOTHED_S))


class _Bucket:
    """A start is allowed when `at` has come; unused time adds up to `burst` starts."""

    __slots__ = ("_burst", "_gap_s", "at")

    def __init__(self, gap_s: float, burst: int) -> None:
        self._gap_s = gap_s
        self._burst = burst
        self.at = float("-inf")

    def start(self, now: float) -> None:
        self.at = max(self.at, now - self._gap_s * (self._burst - 1)) + self._gap_s


class Pace:
    """Says when the next record may start: any, and one of a certain partition."""

    def __init__(self, policy: RatePolicy) -> None:
        self._policy = policy
        self._all = [_Bucket(1 / policy.per_s, policy.burst_at(policy.per_s))] if policy.per_s else []
        if policy.min_delay_ms:
            self._all.append(_Bucket(policy.min_delay_ms / 1000, 1))
        self._partitions: dict[TopicPartition, _Bucket] = {}

    def wait_s(self, now: float) -> float:
        """Seconds until a record may start at all; 0: now."""
        return max([0.0, *(bucket.at - now for bucket in self._all)])

    def partition_wait_s(self, place: TopicPartition, now: float) -> float:
        """Seconds until this partition's own rate lets one of its records start; 0: now."""
        bucket = self._partitions.get(place)
        return 0.0 if bucket is None else max(0.0, bucket.at - now)

    def started(self, place: TopicPartition, now: float) -> None:
        for bucket in self._all:
            bucket.start(now)
        per_s = self._policy.partition_per_s
        if per_s is None:
            return
        own = self._partitions.get(place)
        if own is None:
            own = self._partitions[place] = _Bucket(1 / per_s, self._policy.burst_at(per_s))
        own.start(now)

    def forget(self, place: TopicPartition) -> None:
        """The partition went; should it come back, it begins afresh."""
        self._partitions.pop(place, None)
