"""Outages of a handler's dependencies, and an operator who sometimes releases a hold too early."""

from __future__ import annotations

from random import Random

from keepfast.engine.guards import BREAKER, STORM
from keepfast.testing.fakes.world import World
from simulation.chaos import Chaos
from simulation.setup import Setup
from simulation.workload import Workload

FINE_S, BAD_S = (0.3, 3.0), (0.2, 4.0)
HANDS = 0.15
"""How often an outage ends with an operator's release."""


class Outages:
    """Lets one outage follow another, with normal times between them, until the chaos is over."""

    def __init__(self, world: World, setup: Setup, workload: Workload, chaos: Chaos, rng: Random) -> None:
        self._world = world
        self._setup = setup
        self._workload = workload
        self._chaos = chaos
        self._rng = rng

    def begin(self) -> None:
        if self._setup.outages:
            self._world.clock.after(self._rng.uniform(*FINE_S), self._cast)

    def _cast(self) -> None:
        if not self._chaos.active:
            return
        self._workload.outage = self._rng.choice(self._setup.outages)
        self._world.trace.fault(f"downstream_{self._workload.outage}")
        self._world.clock.after(self._rng.uniform(*BAD_S), self._lift)

    def _lift(self) -> None:
        self._workload.outage = ""
        if self._rng.random() < HANDS:
            self.release()
        self._world.clock.after(self._rng.uniform(*FINE_S), self._cast)

    def release(self) -> None:
        """An operator releases what holds a consumer."""
        for member in self._chaos.members.values():
            if member.process.alive and member.loop.holds & {BREAKER, STORM}:
                self._world.trace.fault("released_by_hand")
                member.release(BREAKER)
                member.release(STORM)
