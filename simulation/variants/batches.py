"""Whether the handler of a seed takes lists, and what it does when one of its records is bad."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from keepfast.core.policies import BatchPolicy, RetryPolicy
from keepfast.core.timeouts import TimeoutPolicy
from simulation.setup import Setup
from simulation.variants.guards import MOSTLY_GUARDS
from simulation.variants.timeouts import ALONE_S

BESIDE = 0.3
"""The share of the seeds with guards, retry topics or a spool that have batches, too."""

LIMITED = range(1100, 1300)
"""The remainders by two thousand of the seeds with batches and a time limit."""


def batched(setup: Setup, seed: int) -> Setup:
    """The setup with batches, in every sixth seed that has no breaker, and in most of those others that have neither
    guards nor a time limit, nor retry topics, nor a spool.

    Drawn apart from the rest of the setup, so that the other seeds are what they were without.
    """
    rng = Random(seed * 13 + 6)
    if seed % 6 == 0 and setup.breaker is None:
        faults = tuple(fault for fault in setup.faults if fault != "forge")
        setup = replace(setup, storm_guard=None, rate=None, outages=(), tiers=(), faults=faults)
    elif setup.outages or setup.tiers or setup.spool:
        about_guards = seed % 16 in MOSTLY_GUARDS
        if setup.timeout.timeout_s is not None or about_guards or Random(seed * 37 + 21).random() >= BESIDE:
            return setup
    elif setup.timeout.timeout_s is not None or rng.random() < 0.3:
        return setup
    return with_batches(setup, rng)


def limited(setup: Setup, seed: int) -> Setup:
    """Two hundred of every two thousand seeds have batches together with a time limit. Chosen apart, and late: the
    other seeds stay what they are.
    """
    if seed % 2000 not in LIMITED or setup.stuck or setup.cancels:
        return setup
    rng = Random(seed * 43 + 27)
    made = setup if setup.batch is not None else with_batches(setup, rng)
    timeout = TimeoutPolicy(
        timeout_s=rng.choice((0.12, 0.4, 1.0)),
        on_timeout=rng.choice(("dead-letter", "dead-letter", "retry", "retry", "hold")),
        max_abandoned=rng.choice((1, 2, 10)),
    )
    return replace(
        made,
        timeout=timeout,
        hang=rng.choice((0.02, 0.06)),
        manners=rng.choice((("polite",), ("polite", "swallows"), ("refuses",), ("polite", "blocks"))),
        alone_s=min(setup.alone_s, ALONE_S),
        filters=False,
    )


def with_batches(setup: Setup, rng: Random) -> Setup:
    brief = RetryPolicy(max_retries=rng.choice((0, 1)), initial_delay_ms=20, max_delay_ms=100)
    return replace(
        setup,
        order=rng.choice((setup.order, "partition", "key")),
        keys=rng.choice((setup.keys, "few")),
        retry=rng.choice((setup.retry, brief)),
        batch=BatchPolicy(size=rng.choice((1, 3, 5, 5, 12, 40)), wait_s=rng.choice((0.0, 0.01, 0.05, 0.3))),
        atomic=rng.random() < 0.6,
        names=rng.random() < 0.3,
        pace=rng.choice((setup.pace, (0.005, 0.1))),
        trouble=rng.choice((0.05, 0.1, 0.2, 0.3)),
        troubles=(*setup.troubles, rng.choice(("flaky", "decode")), rng.choice(("reject", "doomed", "decode"))),
        churn=rng.choice((setup.churn, ("join", "leave") * 3)),
    )
