"""What guards the consumer of a seed, and what befalls the service that its handler calls."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from keepfast.core.guards import BreakerPolicy, RatePolicy, StormPolicy
from keepfast.core.policies import RetryPolicy
from simulation.setup import Setup

MOSTLY_GUARDS = (4, 8)
"""The remainders by sixteen of the seeds that are about guards before all else."""

OUTAGES = ("outage", "partial", "bad")
"""The service is down; or only for every second record; or it is there, and a bad deploy of the handler rejects all."""


def guarded(setup: Setup, seed: int) -> Setup:
    """The setup with guards in half of the seeds, and every eighth of them about guards before all else.

    Drawn apart from the rest of the setup, so that the other half of the seeds is what it was without guards.
    """
    rng = Random(seed * 11 + 5)
    if seed % 16 in MOSTLY_GUARDS:
        return _mostly_guards(setup, rng)
    if rng.random() < 0.5:
        return setup
    return replace(
        setup,
        breaker=_breaker(rng) if rng.random() < 0.6 else None,
        storm_guard=_storm(rng) if rng.random() < 0.5 else None,
        rate=_rate(rng) if rng.random() < 0.3 else None,
        outages=rng.choice((("outage",), ("outage", "partial"), ("bad",), OUTAGES)),
    )


def _mostly_guards(setup: Setup, rng: Random) -> Setup:
    """Little else goes wrong, several records run at once, and some of them for long. In half of these seeds
    outages come with many records that do well beside them.
    """
    mostly = replace(
        setup,
        faults=("sends",),
        churn=("join", "leave"),
        members=rng.choice((1, 2)),
        commit=replace(setup.commit, mode=rng.choice(("each", "interval", "interval"))),
        order=rng.choice(("partition", "partition", "key", "none")),
        threads=False,
        capacity=rng.choice((4, 16)),
        retry=RetryPolicy(max_retries=rng.choice((None, None, 1)), initial_delay_ms=20, max_delay_ms=100),
        pace=rng.choice(((0.0005, 0.002), (0.0005, 0.01), (0.005, 0.1))),
        slow=0.05,
        tiers=(),  # what is tried forever does not move
        trouble=rng.choice((0.1, 0.5)),
        troubles=("reject", "flaky"),
        chaos_s=rng.uniform(12.0, 18.0),
        records=500,
        breaker=replace(_breaker(rng), failures=2),
        storm_guard=_storm(rng) if rng.random() < 0.7 else None,
        rate=_rate(rng) if rng.random() < 0.2 else None,
        outages=OUTAGES,
    )
    if rng.random() < 0.5:
        return mostly
    return replace(
        mostly,
        order="none",
        capacity=16,
        retry=RetryPolicy(max_retries=None, initial_delay_ms=800, max_delay_ms=800),
        pace=(0.0005, 0.01),
        records=900,
        breaker=BreakerPolicy(failures=8, share=0.1, window_s=4.0, open_s=0.3, max_open_s=0.3),
        storm_guard=None,
        rate=None,
        outages=("partial", "partial", "outage"),
    )


def _breaker(rng: Random) -> BreakerPolicy:
    open_s = rng.choice((0.3, 1.0))
    return BreakerPolicy(
        failures=rng.choice((1, 2, 4)),
        share=rng.choice((0.3, 0.5, 0.9)),
        window_s=rng.choice((1.0, 4.0)),
        open_s=open_s,
        max_open_s=open_s * rng.choice((1, 3)),
    )


def _storm(rng: Random) -> StormPolicy:
    last = rng.choice((8, 30))
    return StormPolicy(
        last=last, dead_lettered=rng.choice((3, 6)), share=rng.choice((0.3, 0.5)), probe_every_s=rng.choice((0.4, 1.5))
    )


def _rate(rng: Random) -> RatePolicy | None:
    rate = RatePolicy(
        per_s=rng.choice((None, 20.0, 100.0)),
        partition_per_s=rng.choice((None, 10.0, 40.0)),
        min_delay_ms=rng.choice((0, 0, 10, 60)),
        burst=rng.choice((None, 1, 5)),
    )
    return rate if rate.limits else None
