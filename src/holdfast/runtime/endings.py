"""How a loop is asked to end, and how it says that it has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stop:
    """Word to the loop: start nothing new, finish what runs, be gone by `deadline` (monotonic)."""

    deadline: float


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a loop ended. `unfinished` is how much was still being handled, buried or committed."""

    kind: str  # "stopped" | "halted" | "fenced" | "failed"
    reason: str = ""
    unfinished: int = 0
