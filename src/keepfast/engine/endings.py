"""What a loop is told from outside, and how it says that it has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DRAIN: Final = "drain"
"""The hold on a consumer that is about to go."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Word to the loop: start nothing new, finish what runs, be gone by `deadline` (monotonic).

    `leave`: give up the place in the group also if it is a static member's, for it does not come back.
    """

    deadline: float
    leave: bool = False


@dataclass(frozen=True, slots=True)
class HaltApp:
    """Word to the loop: the app is to stop, as by a verdict, although no record is to blame."""

    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """Word to the loop: a person says that this hold ("breaker", "storm") is to go, whatever its guard thinks."""

    hold: str


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a loop ended. `unfinished` is how much was still being handled, buried or committed."""

    kind: str  # "stopped" | "halted" | "fenced" | "failed"
    reason: str = ""
    unfinished: int = 0
