"""Whether something in the processes of a seed cancels the coroutines that handlers run on."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from simulation.setup import Setup

CANCELS = 0.3
SHORT_S = 0.12


def cancelled(setup: Setup, seed: int) -> Setup:
    """The setup with cancelled workers, in some of the seeds with coroutines. In every thirteenth little else goes
    wrong, so that no restart mends what a cancellation has broken; there handlers send records, too. Sends fail where
    handlers do not time out: else it would not be known by which of both the record is judged.

    Drawn apart from the rest of the setup, so that the other seeds are what they were without.
    """
    rng = Random(seed * 23 + 15)
    if seed % 13 == 9:
        return replace(
            setup,
            threads=False,
            cancels=True,
            sends=True,
            batch=None,
            breaker=None,
            storm_guard=None,
            outages=(),
            spool=False,
            killers=0,
            faults=(
                "cancel",
                *((rng.choice(("gaps", "stop")),) if setup.timeout.timeout_s else ("sends", "sends")),
                *(fault for fault in ("compact",) if fault in setup.faults),
            ),
            churn=(),
            members=rng.choice((1, 2)),
            chaos_s=rng.uniform(8.0, 15.0),
            # With a time limit, letters are acknowledged before what the handler sent.
            world=replace(setup.world, ack_delay_s=(0.05, 0.8))
            if setup.timeout.timeout_s is None
            else replace(setup.world, ack_delay_s=(0.001, 0.05), output_delay_s=(0.3, 1.2)),
            hang=0.2 if setup.hang else 0.0,
            # Shorter than most sends take, so that some are under way when their handler is given up.
            timeout=replace(
                setup.timeout,
                timeout_s=SHORT_S if setup.timeout.timeout_s else None,
                on_timeout="dead-letter",
                max_abandoned=10,
            ),
        )
    if setup.batch is not None or setup.breaker is not None or setup.storm_guard is not None or setup.spool:
        return setup
    if setup.threads or setup.killers or rng.random() >= CANCELS:
        return setup
    return replace(setup, cancels=True, faults=(*setup.faults, "cancel", "cancel"))
