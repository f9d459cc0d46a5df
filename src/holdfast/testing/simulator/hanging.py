"""How long the handler of a seed may take, and how often it takes longer."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from holdfast.core.policies import BufferPolicy
from holdfast.core.timeouts import TimeoutPolicy
from holdfast.testing.simulator.setup import Setup

ALONE_S = 20.0
"""A suspect that hangs for ever stops its process for as long as it is waited for: not as long as a stall takes."""


def hanging(setup: Setup, seed: int) -> Setup:
    """The setup with a time limit in a third of the seeds. In every eighth, handlers of bundles hang while the process
    stands still now and then, and little else goes wrong.

    Drawn apart from the rest of the setup, so that the other seeds are what they were without.
    """
    rng = Random(seed * 7 + 4)
    if seed % 3 != 1 and seed % 8 != 1:
        return setup
    setup = replace(
        setup,
        timeout=TimeoutPolicy(
            timeout_s=rng.choice((0.12, 0.4, 1.0)),
            on_timeout="hold" if rng.random() < 0.2 else "bury",
            max_abandoned=rng.choice((1, 2, 10)),
        ),
        hang=rng.choice((0.02, 0.06)),
        manners=rng.choice((("polite",), ("polite", "swallows"), ("refuses",), ("polite", "blocks"))),
        alone_s=min(setup.alone_s, ALONE_S),
    )
    if seed % 8 != 1:
        return setup
    return replace(
        setup,
        order=rng.choice(("key", "key", "key", "partition")),
        commit=replace(setup.commit, mode="interval"),
        timeout=replace(setup.timeout, on_timeout="bury"),
        keys=rng.choice(("few", "many")),
        pace=(1e-5, 4e-5),
        hang=0.1,
        buffer=BufferPolicy(records=50),
        sweep=100,
        partitions={"orders": 2},
        records=250,
        faults=rng.choice((("stop", "gaps"), ("gaps",), ("sends", "gaps"))),
        churn=(),
        reset="earliest",
    )
