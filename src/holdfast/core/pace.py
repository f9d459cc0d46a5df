"""Rate limits: how fast records may start. Pure: time is an argument. Owner: the loop thread."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core import checks
from holdfast.core.errors import ConfigError
from holdfast.core.records import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePolicy:
    """At most `per_s` records start per second, and `partition_per_s` of each partition; `min_delay_ms` lies between
    any two starts. Up to `burst` may start at once after a pause.
    """

    per_s: float | None = None
    partition_per_s: float | None = None
    min_delay_ms: float = 0
    burst: int = 1

    def __post_init__(self) -> None:
        found = {
            "per_s": None if self.per_s is None else checks.number(self.per_s, 0, above=True),
            "partition_per_s": None
            if self.partition_per_s is None
            else checks.number(self.partition_per_s, 0, above=True),
            "min_delay_ms": checks.number(self.min_delay_ms, 0),
            "burst": checks.whole(self.burst, 1),
        }
        problems = [f"rate: {name} {problem}." for name, problem in found.items() if problem]
        if problems:
            raise ConfigError(*problems)


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
    """Says whether a record of a partition may start now, and when it may if not."""

    def __init__(self, policy: RatePolicy) -> None:
        self._policy = policy
        self._all = [_Bucket(1 / policy.per_s, policy.burst)] if policy.per_s else []
        if policy.min_delay_ms:
            self._all.append(_Bucket(policy.min_delay_ms / 1000, 1))
        self._partitions: dict[TopicPartition, _Bucket] = {}

    def wait_s(self, place: TopicPartition, now: float) -> float:
        """Seconds until a record of this partition may start; 0: now."""
        return max(0.0, *(bucket.at - now for bucket in self._buckets(place)), 0.0)

    def started(self, place: TopicPartition, now: float) -> None:
        for bucket in self._buckets(place):
            bucket.start(now)

    def forget(self, place: TopicPartition) -> None:
        """The partition went; should it come back, it begins afresh."""
        self._partitions.pop(place, None)

    def _buckets(self, place: TopicPartition) -> list[_Bucket]:
        if not self._policy.partition_per_s:
            return self._all
        bucket = self._partitions.get(place)
        if bucket is None:
            bucket = self._partitions[place] = _Bucket(1 / self._policy.partition_per_s, self._policy.burst)
        return [*self._all, bucket]
