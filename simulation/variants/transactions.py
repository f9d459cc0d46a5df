"""Seeds whose commits are transactions: what handlers send is produced with them, once."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from keepfast.core.policies import CommitPolicy, RetryPolicy
from keepfast.core.timeouts import OnTimeout, TimeoutPolicy
from simulation.setup import Setup
from simulation.variants.batches import with_batches

MAX_RECORDS = 150
FAULTS = ("commits", "sends", "crash", "crash_soon", "evict", "freeze", "cut_off", "stop", "reads", "join", "leave")


def transacting(setup: Setup, seed: int) -> Setup:
    """The last hundred of every thousand seeds. Chosen apart, and last: the other seeds stay what they are.

    In the last fifty of them, records are dead-lettered, and moved to retry topics.
    """
    if seed % 1000 < 900:
        return setup
    setup = transactional(setup, seed)
    return forwarding(setup, seed) if seed % 1000 >= 950 else setup


def in_batches(setup: Setup, seed: int) -> Setup:
    """Of every second thousand, the seeds with transactions have a handler that takes lists; a third of them with a
    time limit.
    """
    if seed % 2000 < 1900:
        return setup
    rng = Random(seed * 47 + 31)
    made = with_batches(setup, rng)
    if seed % 1000 < 950:
        made = replace(made, retry=setup.retry, troubles=setup.troubles)
    if rng.random() < 0.67:
        return made
    on_timeout: OnTimeout = "retry" if made.retry.max_retries is None else "dead-letter"
    return replace(
        made,
        timeout=TimeoutPolicy(timeout_s=rng.choice((0.12, 0.4)), on_timeout=on_timeout),
        hang=0.04,
        manners=rng.choice((("polite",), ("polite", "swallows"), ("refuses",))),
    )


def forwarding(setup: Setup, seed: int) -> Setup:
    rng = Random(seed * 41 + 29)
    return replace(
        setup,
        retry=RetryPolicy(max_retries=rng.choice((0, 1)), initial_delay_ms=20, max_delay_ms=100),
        troubles=("flaky", "later", "reject", "doomed", "discard"),
        tiers=rng.choice(((), (1,), (1, 2))),
        records=min(setup.records, MAX_RECORDS),
    )


def transactional(setup: Setup, seed: int) -> Setup:
    rng = Random(seed * 31 + 19)
    return replace(
        setup,
        once=True,
        sends=True,
        threads=False,
        members=rng.choice((1, 2, 3)),
        partitions={"orders": rng.randint(1, 4)},
        later=(),
        reset="earliest",
        commit=CommitPolicy(mode=rng.choice(("interval", "interval", "each")), every_s=rng.choice((0.1, 0.3))),
        retry=RetryPolicy(max_retries=None, initial_delay_ms=rng.choice((1.0, 50.0)), max_delay_ms=300),
        trouble=rng.choice((0.2, 0.4)),
        troubles=("flaky", "later"),
        faults=(*(fault for fault in FAULTS if rng.random() < 0.5), "commits", "crash"),
        churn=rng.choice(((), ("join", "leave") * 2)),
        killers=0,
        static=False,
        tiers=(),
        left_over=0,
        breaker=None,
        storm_guard=None,
        rate=None,
        outages=(),
        spool=False,
        torn=False,
        batch=None,
        atomic=False,
        names=False,
        timeout=TimeoutPolicy(),
        hang=0.0,
        stuck=0,
        cancels=False,
        filters=False,
        manners=("polite",),
    )
