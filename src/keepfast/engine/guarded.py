"""What the guards of a consumer look at, and how they say that they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Literal, Protocol

from keepfast.core.breaker import BreakerState
from keepfast.core.records import Message
from keepfast.core.runs import Case


class Ready(Protocol):
    """Where cases wait for their next attempt."""

    @property
    def ready(self) -> Sized: ...
    def take_ready(self, limit: int) -> list[Case]: ...


class Tried(Protocol):
    """What is tried again and again: a case, or a batch, of which the first record stands for all."""

    message: Message
    begun_at: float
    still_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How the guards stand, for health and metrics. `breaker` and `storm` are None where there is no such guard."""

    breaker: BreakerState | None
    breaker_opened: int
    storm: Literal["watching", "tripped"] | None
    storm_tripped: int
    waits: int
    """How often a failed attempt was neither counted nor buried."""
    holds: Mapping[str, float]
    """What holds the whole consumer, and since when (monotonic)."""
