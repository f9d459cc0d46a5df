"""The storm guard: a flood of dead letters stops the consumer instead of draining the topic into the DLQ.

Pure: time is an argument. Owner: the loop thread.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from keepfast.core import checks
from keepfast.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class StormPolicy:
    """Trips when of the `last` finished records at least `buried`, and at least `share` of them, were buried.

    Then one record is tried every `probe_every_s`; when one goes through, the consumer goes on.
    """

    last: int = 200
    buried: int = 50
    share: float = 0.5
    probe_every_s: float = 60.0

    def __post_init__(self) -> None:
        found = {
            "last": checks.whole(self.last, 1, 1_000_000),
            "buried": checks.whole(self.buried, 1, self.last),
            "share": checks.number(self.share, 0, 1, above=True),
            "probe_every_s": checks.number(self.probe_every_s, 0, above=True),
        }
        problems = [f"storm_guard: {name} {problem}." for name, problem in found.items() if problem]
        if problems:
            raise ConfigError(*problems)


class StormGuard:
    """`tripped` stays until a probe goes through or `release` is called; a failed probe must not be buried.

    What began before it tripped and goes through afterwards does not release it.
    """

    def __init__(self, policy: StormPolicy) -> None:
        self._policy = policy
        self._last: deque[bool] = deque(maxlen=policy.last)
        self._probe_at = 0.0
        self.buried = 0
        self.tripped = False
        self.probing = False
        self.trips = 0

    @property
    def seen(self) -> int:
        """How many records `buried` is counted among."""
        return len(self._last)

    def finished(self, count: int = 1) -> None:
        """Records went through."""
        if self.tripped:
            return
        if not self.buried:
            self._last.extend([False] * min(count, self._policy.last))
        else:
            for _ in range(min(count, self._policy.last)):
                self._note(buried=False)

    def about_to_bury(self, now: float) -> bool:
        """Whether this record may be buried. False: the guard has tripped, and it has to wait."""
        if self.tripped:
            return False
        self._note(buried=True)
        if self.buried >= self._policy.buried and self.buried >= self._policy.share * len(self._last):
            self.tripped = True
            self.trips += 1
            self._probe_at = now + self._policy.probe_every_s
        return True

    def may_probe(self, now: float) -> bool:
        """Whether it is time to try one record. Whoever gets True must try one, and report what came of it."""
        if self.tripped and not self.probing and now >= self._probe_at:
            self.probing = True
            return True
        return False

    def probe_failed(self, now: float) -> None:
        """It would have been buried, or has to be retried: the next one is tried when its time has come."""
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
        """Go on, with a clean window: a probe went through, or somebody says so."""
        self.tripped = self.probing = False
        self._last.clear()
        self.buried = 0

    def _note(self, *, buried: bool) -> None:
        if len(self._last) == self._policy.last and self._last[0]:
            self.buried -= 1
        self._last.append(buried)
        self.buried += buried
