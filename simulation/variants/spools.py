"""Seeds with a spool, and what befalls it: a dead-letter topic that takes nothing, a disk that fails, power cuts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from keepfast.core.timeouts import TimeoutPolicy
from keepfast.testing.fakes.acts import PowerCut
from keepfast.testing.fakes.disk import DiskFault
from keepfast.testing.fakes.faults import SendFault
from keepfast.testing.fakes.process import Process
from keepfast.testing.fakes.world import World
from simulation.chaos import Chaos
from simulation.setup import Setup

BEGIN_S, BETWEEN_S = 1.5, (0.2, 1.4)
TEAR_EVERY_S = 2.0


def spooled(setup: Setup, seed: int) -> Setup:
    """The setup with a spool in every third seed. In half of these, most records are dead-lettered, at a good pace, and
    little goes wrong but disks, the dead-letter topic and processes.

    Drawn apart from the rest of the setup, so that the other seeds are what they were without.
    """
    if seed % 3 != 2:
        return setup
    rng = Random(seed * 13 + 8)
    setup = replace(
        setup,
        spool=True,
        trouble=max(setup.trouble, rng.choice((0.3, 0.6))),
        troubles=(*setup.troubles, "reject", "decode"),
    )
    if seed % 2:
        return setup
    return replace(
        setup,
        trouble=0.7,
        troubles=("reject", "decode"),
        faults=rng.choice((("gaps",), ("gaps", "gaps", "gaps", "crash"), ("gaps", "gaps", "commits"))),
        churn=(),
        members=rng.choice((1, 1, 2)),
        static=True,  # who comes back gets its partitions at once
        chaos_s=rng.uniform(8.0, 12.0),
        world=replace(setup.world, session_s=2.0, heartbeat_s=0.5, max_poll_interval_s=6.0),
        order=rng.choice(("key", "none", "partition")),
        keys=rng.choice(("many", "mixed")),
        capacity=rng.choice((4, 16)),
        pace=(1e-5, 4e-5),
        slow=0.0,
        records=250,
        timeout=TimeoutPolicy(),
        hang=0.0,
        tiers=(),
        killers=0,
        max_deliveries=None,
        breaker=None,
        storm_guard=None,
        rate=None,
        outages=(),
    )


class BadDisks:
    """Pulls a switch now and then, until the chaos is over."""

    def __init__(self, world: World, setup: Setup, chaos: Chaos, rng: Random) -> None:
        self._world = world
        self._setup = setup
        self._chaos = chaos
        self._rng = rng
        self._switches: tuple[Callable[[], None], ...] = (
            self._refuse, self._refuse, self._refuse, self._refuse, self._fail, self._fail, self._cut, self._cut_soon,
            self._kill_soon, self._fail_and_cut,
        )  # fmt: skip

    def begin(self) -> None:
        if self._setup.spool:
            self._world.clock.after(BEGIN_S, self._pull)

    def end(self) -> None:
        self._world.disk.faults.clear()
        self._world.disk.disarm()

    def _pull(self) -> None:
        if not self._chaos.active:
            return
        if self._setup.torn:
            self._tear()
            return
        self._rng.choice(self._switches)()
        self._world.clock.after(self._rng.uniform(*BETWEEN_S), self._pull)

    def _tear(self) -> None:
        """The topic takes nothing, letters pile up on the disk, and the power goes between a write and its sync."""
        self._world.broker.faults.sends.order(SendFault.REFUSED, duration_s=TEAR_EVERY_S)
        self._world.clock.after(TEAR_EVERY_S / 2, self._tear_now)
        self._world.clock.after(TEAR_EVERY_S, self._pull)

    def _tear_now(self) -> None:
        if self._chaos.active:
            self._world.disk.arm(0, lambda _: self._cut(), writes=True)

    def _refuse(self) -> None:
        """The topic takes no letter for a while."""
        kind = self._rng.choice((*SendFault, SendFault.REFUSED, SendFault.REFUSED))
        self._world.broker.faults.sends.order(kind, duration_s=self._rng.choice((1.0, 3.0, 6.0)))

    def _fail(self) -> None:
        self._world.disk.faults.order(self._rng.choice(list(DiskFault)), count=self._rng.randint(1, 5), duration_s=4.0)

    def _cut(self) -> None:
        for seat in self._world.living():
            seat.process.crash()
        self._world.disk.power_cut()
        self._world.trace.fault("power_cut")
        self._world.trace.add(PowerCut(self._world.clock.monotonic()))

    def _cut_soon(self) -> None:
        """In the middle of an operation on the disk."""
        self._arm(lambda _: self._cut())

    def _kill_soon(self) -> None:
        """The same, but only the process dies: what it wrote is there for others, synced or not."""
        self._arm(lambda process: process.crash())

    def _fail_and_cut(self) -> None:
        """A disk that is about to die: a few letters after it has failed, the power goes."""
        self._world.disk.faults.clear()
        self._world.disk.faults.order(self._rng.choice(list(DiskFault)), count=self._rng.randint(1, 2))
        self._world.disk.arm(self._rng.randint(2, 6), lambda _: self._cut(), writes=True)

    def _arm(self, end: Callable[[Process], None]) -> None:
        writes = self._rng.random() < 0.6
        self._world.disk.arm(self._rng.randint(0, 3 if writes else 12), end, writes=writes)
