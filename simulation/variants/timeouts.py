"""How long the handler of a seed may take, and how often it takes longer."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from keepfast.core.policies import BufferPolicy, RetryPolicy
from keepfast.core.timeouts import TimeoutPolicy
from simulation.setup import Setup

ALONE_S = 20.0
"""A suspect that hangs forever stops its process for as long as it is waited for: not as long as a stall takes."""


TO_RETRY_TOPICS = 37
LATE_RESULTS = 52
"""The remainder by sixty of the seeds in which handlers that were started before the breaker opened end after that."""


def hanging(setup: Setup, seed: int) -> Setup:
    """The setup with a time limit in a third of the seeds. In every eighth, handlers of bundles hang while the process
    does not advance now and then, and little else goes wrong.

    Drawn apart from the rest of the setup, so that the other seeds are what they were without.
    """
    rng = Random(seed * 7 + 4)
    if seed % 3 != 1 and seed % 8 != 1:
        return setup
    setup = replace(
        setup,
        timeout=TimeoutPolicy(
            timeout_s=rng.choice((0.12, 0.4, 1.0)),
            on_timeout="hold" if rng.random() < 0.2 else "dead-letter",
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
        timeout=replace(setup.timeout, on_timeout="dead-letter"),
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


def retried(setup: Setup, seed: int) -> Setup:
    """In half of the seeds with a time limit and without batches, a record that took too long is tried again; with a
    breaker, that counts as an outage.

    Drawn apart from the rest of the setup, and after the guards. In every sixtieth seed many take too long, without a
    breaker, and come back from retry topics.
    """
    if seed % 60 == TO_RETRY_TOPICS:
        return replace(
            setup,
            timeout=replace(setup.timeout, timeout_s=0.12, on_timeout="retry", max_abandoned=10),
            hang=0.2,
            manners=("polite", "swallows"),
            tiers=(1, 2),
            retry=RetryPolicy(max_retries=1, initial_delay_ms=20, max_delay_ms=100),
            breaker=None,
            storm_guard=None,
            outages=(),
            killers=0,
        )
    if (
        setup.timeout.timeout_s is None
        or seed % 8 == 1
        or seed % 60 == LATE_RESULTS
        or Random(seed * 31 + 19).random() < 0.5
    ):
        return setup
    return replace(setup, timeout=replace(setup.timeout, on_timeout="retry"))


def stuck(setup: Setup, seed: int) -> Setup:
    """Every thirtieth seed is about handlers that hang without a time limit while their partitions are lost and come
    back, often to the same process. Little else goes wrong: no guards, no spool, no batches. Fewer handlers hang than
    may be abandoned: beyond that only a restart helps.
    """
    if seed % 60 not in (26, 46):
        return setup
    rng = Random(seed * 7 + 6)
    return replace(
        setup,
        timeout=TimeoutPolicy(stuck_after_s=rng.choice((0.5, 2.0)), max_abandoned=10),
        stuck=rng.choice((4, 8)),
        order=rng.choice(("partition", "partition", "key", "none")),
        capacity=rng.choice((1, 4, 16)),
        members=rng.choice((1, 1, 2)),
        faults=("evict", "gaps", rng.choice(("gaps", "sends", "stop", "commits"))),
        churn=rng.choice(((), (), ("join", "leave"))),
        chaos_s=rng.uniform(8.0, 12.0),
        reset="earliest",
        killers=0,
        alone_s=min(setup.alone_s, ALONE_S),
        slow=0.0,
        tiers=(),
        breaker=None,
        storm_guard=None,
        rate=None,
        outages=(),
        spool=False,
        batch=None,
        cancels=False,
        sends=False,
    )
