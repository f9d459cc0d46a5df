"""The circuit breaker: when a downstream is down, records wait instead of burning through their retries.

Only errors that say so count (`outage`). Pure: time is an argument. Owner: the loop thread.

The storm guard: a flood of dead letters stops the consumer instead of draining the topic into the DLQ.

Pure: time is an argument. Owner: the loop thread.

Rate limits: how fast records may start. Pure: time is an argument. Owner: the loop thread.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from keepfast.core.fields import Doc, Findings, NoneWord, Policy, Range
from keepfast.core.records import TopicPartition

DAY_S: Final = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy(Policy):
    """Opens after `failures` outages within `window_s` that are at least `share` of all attempts in it, for `open_s`;
    each failed probe doubles that, up to `max_open_s`.
    """

    section: ClassVar[str] = "breaker"

    failures: Annotated[int, Range(1), Doc("It opens after this many outages within window_s.")] = 5
    share: Annotated[float, Range(0, 1, above=True), Doc("If they are at least this share of all attempts.")] = 0.5
    window_s: Annotated[float, Range(0, DAY_S, above=True), Doc("How far back it looks.")] = 10.0
    open_s: Annotated[float, Range(0, DAY_S, above=True), Doc("How long it stays open before a probe.")] = 10.0
    max_open_s: Annotated[
        float, Range(0, DAY_S, above=True), Doc("Each failed probe doubles that time, up to this.")
    ] = 60.0

    def _check_together(self, findings: Findings) -> None:
        if findings.fine("open_s", "max_open_s") and self.max_open_s < self.open_s:
            findings.add(f"max_open_s ({self.max_open_s:g}) must not be below open_s ({self.open_s:g}); raise it.")


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """Closed: everything runs. Open: nothing does. Half-open: one probe is out, and its result decides.

    Results of what began before it opened decide nothing: the owner of the breaker must not report them.
    """

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self._window: deque[tuple[float, int, int]] = deque()  # when, attempts, outages
        self._open_s = policy.open_s
        self._until = 0.0
        self.attempts = 0
        self.outages = 0
        self.state = BreakerState.CLOSED
        self.opened = 0

    def succeeded(self, now: float, count: int = 1) -> None:
        """Attempts that found the downstream well. While it is closed, those too that failed for other reasons."""
        if self.state is BreakerState.CLOSED:
            self._count(now, count, 0)
        elif self.state is BreakerState.HALF_OPEN:
            self.close()
            self._count(now, count, 0)

    def failed(self, now: float) -> None:
        """An attempt met an outage."""
        if self.state is BreakerState.HALF_OPEN:
            self._open_s = min(self._policy.max_open_s, self._open_s * 2)
            self._open(now)
        elif self.state is BreakerState.CLOSED:
            self._count(now, 1, 1)
            if self.outages >= self._policy.failures and self.outages >= self._policy.share * self.attempts:
                self._open(now)

    def force_open(self, now: float) -> None:
        """An outage on the last attempt of a record: it must not be dead-lettered for that."""
        if self.state is BreakerState.CLOSED:
            self._open(now)

    def serves_others(self, now: float) -> bool:
        """Whether something has gone well within the window: then an outage may be one record's own, however it looks,
        and enough of them would have opened it.
        """
        self._forget(now)
        return self.attempts > self.outages

    def may_probe(self, now: float) -> bool:
        """Whether it is time to try one record. A caller that gets True must try one and report its outcome."""
        if self.state is BreakerState.OPEN and now >= self._until:
            self.state = BreakerState.HALF_OPEN
            return True
        return False

    def probe_vanished(self, now: float) -> None:
        """The probe came to nothing (its partition went) or says nothing (it failed by itself): try another one."""
        if self.state is BreakerState.HALF_OPEN:
            self.state = BreakerState.OPEN
            self._until = now

    def probes_in(self, now: float) -> float:
        """Seconds until a probe is due."""
        return max(0.0, self._until - now) if self.state is BreakerState.OPEN else float("inf")

    def close(self) -> None:
        """Continue, and forget the past."""
        self.state = BreakerState.CLOSED
        self._open_s = self._policy.open_s
        self._window.clear()
        self.attempts = self.outages = 0

    def _open(self, now: float) -> None:
        self.state = BreakerState.OPEN
        self.opened += 1
        self._until = now + self._open_s

    def _count(self, now: float, attempts: int, outages: int) -> None:
        self._forget(now)
        grain_s = self._policy.window_s / 20
        if self._window and now - self._window[-1][0] < grain_s:
            at, had, had_outages = self._window[-1]
            self._window[-1] = (at, had + attempts, had_outages + outages)
        else:
            self._window.append((now, attempts, outages))
        self.attempts += attempts
        self.outages += outages

    def _forget(self, now: float) -> None:
        while self._window and self._window[0][0] <= now - self._policy.window_s:
            _, attempts, outages = self._window.popleft()
            self.attempts -= attempts
            self.outages -= outages


@dataclass(frozen=True, slots=True, kw_only=True)
class StormPolicy(Policy):
    """Trips when at least `dead_lettered` of the `last` finished records, and at least `share` of them, were that.

    Then one record is tried every `probe_every_s`; when one goes through, the consumer continues.
    """

    section: ClassVar[str] = "storm_guard"

    last: Annotated[int, Range(1, 1_000_000), Doc("How many of the last finished records it looks at.")] = 250
    dead_lettered: Annotated[int, Range(1, 1_000_000), Doc("It trips if this many of them were dead-lettered.")] = 200
    share: Annotated[float, Range(0, 1, above=True), Doc("And if these are at least this share of them.")] = 0.8
    probe_every_s: Annotated[
        float,
        Range(0, DAY_S, above=True),
        Doc("How often a record is tried then; the first that goes through releases it."),
    ] = 60.0

    def _check_together(self, findings: Findings) -> None:
        if findings.fine("last", "dead_lettered") and self.dead_lettered > self.last:
            findings.add(f"dead_lettered ({self.dead_lettered:,}) must not be above last ({self.last:,}); lower it.")


class StormGuard:
    """`tripped` stays until a probe goes through or `release` is called; a failed probe must not be dead-lettered.

    What began before it tripped and goes through afterwards does not release it. Counting records that go through is
    one addition: only the numbers of those that were dead-lettered are kept.
    """

    def __init__(self, policy: StormPolicy) -> None:
        self._policy = policy
        self._finished = 0
        self._dead: deque[int] = deque()  # which of the finished records were dead-lettered, among the last ones
        self._probe_at = 0.0
        self.tripped = False
        self.probing = False
        self.trips = 0

    @property
    def seen(self) -> int:
        """How many records `dead_lettered` is counted among."""
        return min(self._finished, self._policy.last)

    @property
    def dead_lettered(self) -> int:
        """How many of the last records were dead-lettered."""
        while self._dead and self._dead[0] <= self._finished - self._policy.last:
            self._dead.popleft()
        return len(self._dead)

    def finished(self, count: int = 1) -> None:
        """Records went through."""
        if not self.tripped:
            self._finished += count

    def may_dead_letter(self, now: float) -> bool:
        """Whether this record may be dead-lettered; it counts then. False: the guard has tripped, and it must wait."""
        if self.tripped:
            return False
        self._finished += 1
        self._dead.append(self._finished)
        if self.dead_lettered >= self._policy.dead_lettered and self.dead_lettered >= self._policy.share * self.seen:
            self.tripped = True
            self.trips += 1
            self._probe_at = now + self._policy.probe_every_s
        return True

    def may_probe(self, now: float) -> bool:
        """Whether it is time to try one record. A caller that gets True must try one and report its outcome."""
        if self.tripped and not self.probing and now >= self._probe_at:
            self.probing = True
            return True
        return False

    def probe_failed(self, now: float) -> None:
        """It would have been dead-lettered, or has to be retried: the next one is tried when its time has come."""
        self.probing = False
        self._probe_at = now + self._policy.probe_every_s

    def probe_vanished(self, now: float) -> None:
        """The probe came to nothing: try another one."""
        self.probing = False
        self._probe_at = now

    def probes_in(self, now: float) -> float:
        """Seconds until a probe is due."""
        return max(0.0, self._probe_at - now) if self.tripped and not self.probing else float("inf")

    def release(self) -> None:
        """Continue, with an empty window: a probe went through, or an operator released it."""
        self.tripped = self.probing = False
        self._dead.clear()
        self._finished = 0


SMOOTHED_S = 0.05
"""What a rate allows in this time may start at once by default: a loop that wakes up late catches up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePolicy(Policy):
    """At most `per_s` records start per second, and `partition_per_s` of each partition; `min_delay_ms` lies between
    any two starts. Retries are starts, too.

    Up to `burst` may start at once after a pause; None is what the rate allows in 50 ms, at least one. `min_delay_ms`
    knows no bursts, and no retry waits less.
    """

    section: ClassVar[str] = "rate"

    per_s: Annotated[
        float | None, Range(0, above=True), NoneWord("none"), Doc("Starts per second of the consumer.")
    ] = None
    partition_per_s: Annotated[
        float | None, Range(0, above=True), NoneWord("none"), Doc("Starts per second of each partition.")
    ] = None
    min_delay_ms: Annotated[
        float,
        Range(0, 1000 * DAY_S),
        Doc("The least time between any two starts of the consumer; no retry waits less."),
    ] = 0
    burst: Annotated[
        int | None,
        Range(1),
        NoneWord("none"),
        Doc("Starts at once after a pause; `none` is what the rate allows in 50 ms."),
    ] = None

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


@dataclass(slots=True)
class CallSpacing:
    """The least time from the end of one call of a downstream to the next attempt. Workers write it, the loop reads."""

    overlapping: bool = False
    """Attempts run side by side: then it is the time between their starts, too."""
    min_delay_s: float = 0.0
    calls: int = 0
    """Attempts that may have called it. One that ended before, such as a record that cannot be read, takes no time."""


class Pace:
    """Says when the next record may start: any, and one of a certain partition."""

    def __init__(self, policy: RatePolicy, spacing: CallSpacing | None = None) -> None:
        self._policy = policy
        self._spacing = spacing
        self._calls = 0
        self._called_at = float("-inf")
        self._all = [_Bucket(1 / policy.per_s, policy.burst_at(policy.per_s))] if policy.per_s else []
        if policy.min_delay_ms:
            self._all.append(_Bucket(policy.min_delay_ms / 1000, 1))
        self._partitions: dict[TopicPartition, _Bucket] = {}

    def wait_s(self, now: float) -> float:
        """Seconds until a record may start at all; 0: now."""
        wait_s = max([0.0, *(bucket.at - now for bucket in self._all)])
        return wait_s if self._spacing is None else max(wait_s, self._called_at + self._spacing.min_delay_s - now)

    def partition_wait_s(self, place: TopicPartition, now: float) -> float:
        """Seconds until this partition's own rate lets one of its records start; 0: now."""
        bucket = self._partitions.get(place)
        return 0.0 if bucket is None else max(0.0, bucket.at - now)

    def started(self, place: TopicPartition, now: float) -> None:
        for bucket in self._all:
            bucket.start(now)
        if self._spacing is not None and self._spacing.overlapping:
            self._called_at = now
        per_s = self._policy.partition_per_s
        if per_s is None:
            return
        own = self._partitions.get(place)
        if own is None:
            own = self._partitions[place] = _Bucket(1 / per_s, self._policy.burst_at(per_s))
        own.start(now)

    def ended(self, now: float) -> None:
        """Attempts have ended."""
        if self._spacing is not None and self._spacing.calls != self._calls:
            self._calls, self._called_at = self._spacing.calls, now

    def forget(self, place: TopicPartition) -> None:
        """The partition was revoked; if it is assigned again, it starts over."""
        self._partitions.pop(place, None)
