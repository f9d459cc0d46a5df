"""What an error means by the rules, and what may become of a record after an attempt.

Verdicts are a closed set: the judge decides, the loop carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["retryable", "non-retryable", "discard", "halt"]
"""What becomes of the record: retried, dead-lettered, discarded, or left as it is while the app stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """What one failure means, and who says so."""

    kind: Kind
    code: str
    rule: str
    """The name of the rule that decided; `unknown` if none did."""
    outage: bool = False
    """It says that a downstream is down. False unless retryable, but for a handler that timed out."""
    retry_after_s: float | None = None
    """How long the downstream, or the handler by RetryLater, asks to wait. None unless retryable."""
    standard: str = ""
    """The part of the consumer standard that asks for it, as in "§1.1.1 Network Errors"."""
    matched: str = ""
    """The key by which the rule was found: "http:503", "builtins.ConnectionError"."""


@dataclass(frozen=True, slots=True)
class Done:
    """The handler succeeded."""


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Run it again, not before `delay_s` has passed; the lane waits meanwhile."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
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
class DiscardRecord:
    """Drop it on purpose; counted and logged."""

    reason: str


@dataclass(frozen=True, slots=True)
class HaltConsumer:
    """Stop the app; the record stays unfinished."""

    reason: str


Verdict = Done | RetryAfter | DeadLetter | Move | DiscardRecord | HaltConsumer
