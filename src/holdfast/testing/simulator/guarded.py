"""What guards the consumer of a seed, and what befalls the service that its handler calls."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from holdfast.core.breaker import BreakerPolicy
from holdfast.core.pace import RatePolicy
from holdfast.core.storm import StormPolicy
from holdfast.testing.simulator.setup import Setup

SPELLS = ("outage", "bad")
"""The service is away; or it answers, and a bad deploy of the handler rejects whatever comes."""


def guarded(setup: Setup, seed: int) -> Setup:
    """The setup with guards in half of the seeds, and with spells in those and some others.

    Drawn apart from the rest of the setup, so that the other half of the seeds is what it was without guards.
    """
    rng = Random(seed * 11 + 5)
    if rng.random() < 0.5:
        return setup
    return replace(
        setup,
        breaker=_breaker(rng) if rng.random() < 0.6 else None,
        storm_guard=_storm(rng) if rng.random() < 0.5 else None,
        rate=_rate(rng) if rng.random() < 0.3 else None,
        spells=rng.choice((("outage",), ("outage",), ("bad",), SPELLS)),
    )


def _breaker(rng: Random) -> BreakerPolicy:
    open_s = rng.choice((0.3, 1.0))
    return BreakerPolicy(
        failures=rng.choice((1, 2, 4)),
        share=rng.choice((0.3, 0.5, 0.9)),
        window_s=rng.choice((1.0, 4.0)),
        open_s=open_s,
        longest_open_s=open_s * rng.choice((1, 3)),
    )


def _storm(rng: Random) -> StormPolicy:
    last = rng.choice((8, 30))
    return StormPolicy(
        last=last, buried=rng.choice((3, 6)), share=rng.choice((0.3, 0.5)), probe_every_s=rng.choice((0.4, 1.5))
    )


def _rate(rng: Random) -> RatePolicy | None:
    rate = RatePolicy(
        per_s=rng.choice((None, 20.0, 100.0)),
        partition_per_s=rng.choice((None, 10.0, 40.0)),
        min_delay_ms=rng.choice((0, 0, 10, 60)),
        burst=rng.choice((None, 1, 5)),
    )
    return rate if rate.limits else None
