"""The circuit breaker: when a downstream is down, records wait instead of burning through their retries.

Only errors that say so count (`outage`). Pure: time is an argument. Owner: the loop thread.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from keepfast.core import checks
from keepfast.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """Opens after `failures` outages within `window_s` that are at least `share` of all attempts in it, for `open_s`;
    each failed probe doubles that, up to `longest_open_s`.
    """

    failures: int = 5
    share: float = 0.5
    window_s: float = 10.0
    open_s: float = 10.0
    longest_open_s: float = 60.0

    def __post_init__(self) -> None:
        found = {
            "failures": checks.whole(self.failures, 1),
            "share": checks.number(self.share, 0, 1, above=True),
            "window_s": checks.number(self.window_s, 0, above=True),
            "open_s": checks.number(self.open_s, 0, above=True),
            "longest_open_s": checks.number(self.longest_open_s, self.open_s),
        }
        problems = [f"breaker: {name} {problem}." for name, problem in found.items() if problem]
        if problems:
            raise ConfigError(*problems)


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """Closed: everything runs. Open: nothing does. Half-open: one probe is out, and its result decides.

    Results of what began before it opened decide nothing: whoever owns the breaker must not report them.
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
            self._open_s = min(self._policy.longest_open_s, self._open_s * 2)
            self._open(now)
        elif self.state is BreakerState.CLOSED:
            self._count(now, 1, 1)
            if self.outages >= self._policy.failures and self.outages >= self._policy.share * self.attempts:
                self._open(now)

    def force_open(self, now: float) -> None:
        """An outage on the last attempt of a record: it must not be buried for that."""
        if self.state is BreakerState.CLOSED:
            self._open(now)

    def serves_others(self, now: float) -> bool:
        """Whether something has gone well within the window: then an outage may be one record's own, however it looks,
        and enough of them would have opened it.
        """
        self._forget(now)
        return self.attempts > self.outages

    def may_probe(self, now: float) -> bool:
        """Whether it is time to try one record. Whoever gets True must try one, and report what came of it."""
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
        """Go on, and forget the past."""
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
