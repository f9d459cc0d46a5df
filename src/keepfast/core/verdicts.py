"""What may become of a record after an attempt: a closed set, decided by the judge and carried out by the loop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Done:
    """The handler succeeded."""


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Run it again, not before `delay_s` has passed; the lane waits meanwhile."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Bury:
    """Send a dead letter; the record is finished when the letter is acknowledged."""

    reason: str
    code: str


@dataclass(frozen=True, slots=True)
class Move:
    """Publish it to a retry topic, the one of step `step`, and run it again `delay_s` later; here it is finished when
    that is acknowledged. `asked`: because the handler or a downstream asked for a longer wait than a lane should take.
    """

    step: int
    delay_s: float
    reason: str
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Discard:
    """Drop it on purpose; counted and logged."""

    reason: str


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop the app; the record stays unfinished."""

    reason: str


Verdict = Done | RetryAfter | Bury | Move | Discard | Halt
