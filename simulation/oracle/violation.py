"""A broken promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """`rule` names the promise (P1 … P11, or a rule of the oracle's own), `what` describes the violation."""

    rule: str
    at: float
    what: str


Blame = Callable[[str, str], None]
"""Called with rule and what."""
