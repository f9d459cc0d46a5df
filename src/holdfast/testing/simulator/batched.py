"""Whether the handler of a seed takes lists, and what it does when one of its records is bad."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from holdfast.core.policies import BatchPolicy
from holdfast.testing.simulator.setup import Setup

SHARE = 0.75


def batched(setup: Setup, seed: int) -> Setup:
    """The setup with batches in some of the seeds that have neither guards nor a time limit, nor retry topics.

    Drawn apart from the rest of the setup, so that the other seeds are what they were without.
    """
    rng = Random(seed * 13 + 6)
    if setup.timeout.timeout_s is not None or setup.spells or setup.tiers or rng.random() >= SHARE:
        return setup
    return replace(
        setup,
        batch=BatchPolicy(size=rng.choice((1, 2, 5, 5, 12, 40)), wait_s=rng.choice((0.0, 0.01, 0.05, 0.3))),
        atomic=rng.random() < 0.7,
        names=rng.random() < 0.4,
        pace=rng.choice((setup.pace, (0.005, 0.1))),
        trouble=rng.choice((0.0, 0.1, 0.1, 0.3)),
        troubles=(*setup.troubles, rng.choice(("flaky", "decode")), rng.choice(("reject", "doomed", "decode"))),
    )
