"""How a group gets on with a partition, judged by looks at it from outside. Pure: a look brings its own time.

As Burrow does it, no threshold of lag is needed: what counts is whether the group moves while there is something to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

LagState = Literal["ok", "stalled", "stopped", "rewinding", "unknown"]

LEAST_S: Final = 4.0
"""To say that nothing moves, it must have been looked at for so long."""
WINDOW_S: Final = 60.0
"""Looks that are older are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A partition at one moment. `committed` None: the group has no offset there; it would begin at `low` or `end`.
    `owned`: whether a member has it; None: nobody could tell.
    """

    at: float
    low: int
    end: int
    committed: int | None
    owned: bool | None = None

    @property
    def position(self) -> int:
        """Where the group goes on. What was deleted meanwhile is not before it any more."""
        return self.low if self.committed is None else max(self.low, self.committed)

    @property
    def lag(self) -> int:
        return max(0, self.end - self.position)


def state_of(looks: Sequence[Look]) -> LagState:
    """By the looks of the window, oldest first; there must be one.

    `rewinding`: its offset went back. `ok`: it moves, or there was a moment with nothing left to do. `stopped`: there
    is something to do, and no member has the partition. `stalled`: a member has it, and it does not move. `unknown`: it
    was not looked at for long enough.
    """
    offsets = [look.committed for look in looks if look.committed is not None]
    if any(after < before for before, after in pairwise(offsets)):
        return "rewinding"
    if any(look.lag == 0 for look in looks) or looks[-1].position > looks[0].position:
        return "ok"
    if looks[-1].owned is False:
        return "stopped"
    return "stalled" if looks[-1].at - looks[0].at >= LEAST_S else "unknown"


def within(looks: Sequence[Look], now: float) -> list[Look]:
    """Those of the window; at least the last."""
    return [look for look in looks if now - look.at <= WINDOW_S] or list(looks[-1:])
