"""One seed from beginning to end: chaos, then calm, in which everything has to come to an end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256
from math import inf
from random import Random

from keepfast.core import runs
from keepfast.deadletters.spool import files
from keepfast.deadletters.spool import worker as spool_worker
from keepfast.engine import crash_guard, loop, topic_ids
from keepfast.testing.fakes.trace import Fact
from keepfast.testing.fakes.world import World
from simulation.chaos import Chaos
from simulation.discovery import discovering
from simulation.oracle import Oracle, Violation
from simulation.oracle.crashes import DEATHS_BEFORE
from simulation.outages import Outages
from simulation.setup import Setup, changing, delaying, ending_clients, filtering, hanging_producers, setup_for, walking
from simulation.variants.batches import batched, limited
from simulation.variants.cancellations import cancelled
from simulation.variants.guards import guarded
from simulation.variants.inboxes import inboxed
from simulation.variants.rare_events import rare
from simulation.variants.spools import BadDisks, spooled
from simulation.variants.timeouts import hanging, retried, stuck
from simulation.variants.transactions import in_batches, transacting
from simulation.workload import Workload

MIN_EVENTS = 500
SLICE_S = 0.25
MAX_CHAOS_S = 120.0
STALLED_S = 60.0
"""Without faults, something is finished or committed within so much simulated time: sessions, back-offs and all."""

DEATH_S = 15.0
"""What each death of a process adds to that: a restart, a session that has to end, a rebalance."""

EXCERPT = 40


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a seed."""

    seed: int
    setup: Setup
    violation: Violation | None
    excerpt: tuple[str, ...]
    events: int
    steps: int
    records: int
    simulated_s: float
    faults: dict[str, int]


def run_seed(seed: int) -> Outcome:
    """Play a seed. The same seed gives the same trace, whatever process plays it."""
    return Scenario(seed).play()


def digest_of(seed: int) -> str:
    """Play a seed and put its whole trace into a few characters."""
    scenario = Scenario(seed)
    scenario.play()
    return sha256(repr(scenario.world.trace.events).encode()).hexdigest()


class Scenario:
    """One world, its driver and its oracle. `setup` is the seed's own unless another is given."""

    def __init__(self, seed: int, *, setup: Setup | None = None) -> None:
        self.seed = seed
        first = (hanging, guarded, retried, spooled, batched, changing, cancelled, stuck, rare, discovering, filtering)
        layers = (
            *first,
            limited,
            transacting,
            inboxed,
            in_batches,
            walking,
            ending_clients,
            hanging_producers,
            delaying,
        )
        self.setup = setup or reduce(lambda made, layer: layer(made, seed), layers, setup_for(seed))
        self.world = World(seed, settings=self.setup.world)
        self.workload = Workload(self.world.broker, self.setup, Random(seed * 3 + 2))
        self.oracle = Oracle(self.world, self.setup, self.workload)
        self.chaos = Chaos(self.world, self.setup, self.workload, self.oracle, Random(seed * 5 + 3))
        self.disks = BadDisks(self.world, self.setup, self.chaos, Random(seed * 17 + 9))
        self.outages = Outages(self.world, self.setup, self.workload, self.chaos, Random(seed * 13 + 7))

    def play(self) -> Outcome:
        with _tuned(self.setup), quiet():
            self.chaos.begin()
            self.outages.begin()
            self.disks.begin()
            self._rage()
            self._calm_down()
            for member in self.chaos.members.values():
                member.executor.end()
        return self._outcome()

    def _rage(self) -> None:
        """Until the seed has had its time and its events."""
        begun = self.world.clock.monotonic()
        while self._goes_on():
            passed_s = self.world.clock.monotonic() - begun
            enough = passed_s >= self.setup.chaos_s and len(self.world.trace.events) >= MIN_EVENTS
            if enough or passed_s >= MAX_CHAOS_S:
                return
            self.world.run(SLICE_S)

    def _calm_down(self) -> None:
        """Nothing goes wrong any more: everything must come to an end, and something must move until then."""
        self.chaos.active = False
        self.workload.calm = True
        self.workload.outage = ""
        self.world.broker.faults.clear()
        deaths = (DEATHS_BEFORE + (self.setup.max_deliveries or 0)) if self.setup.killers else 0
        storm = self.setup.storm_guard
        longest_s = STALLED_S + deaths * DEATH_S + (storm.probe_every_s if storm else 0.0)
        self.disks.end()
        least, moved_at, marked, released = inf, self.world.clock.monotonic(), False, False
        while self._goes_on():
            left = self.oracle.unfinished()
            if not left and marked:
                return
            if not left:
                marked, least, moved_at = True, inf, self.world.clock.monotonic()
                for place in self.oracle.places:
                    self.world.broker.produce_gap(place)
                continue
            if len(left) < least:
                least, moved_at, released = len(left), self.world.clock.monotonic(), False
            elif not released and self.world.clock.monotonic() - moved_at > longest_s / 2:
                released = True  # the storm guard tries the first record again and again, and that one may be bad
                self.outages.release()
            elif self.world.clock.monotonic() - moved_at > longest_s:
                self.oracle.blame("end", f"nothing continues, and {least} records are left: {'; '.join(left[:3])}")
            else:
                self.world.run(4 * SLICE_S)

    def _goes_on(self) -> bool:
        if self.world.failures and self.oracle.violation is None:
            name, failure = self.world.failures[0]
            self.oracle.blame("failed", f"{name} died of {type(failure).__name__}: {failure}")
        return self.oracle.violation is None

    def _outcome(self) -> Outcome:
        world, violation = self.world, self.oracle.violation
        for member in self.chaos.members.values():
            status = member.loop.guards.status()
            world.trace.faults["breaker_opened"] += status.breaker_opened
            world.trace.faults["storm_guard_tripped"] += status.storm_tripped
            world.trace.faults["attempts_taken_back"] += status.waits
        return Outcome(
            seed=self.seed,
            setup=self.setup,
            violation=violation,
            excerpt=tuple(_excerpt(world.trace.events[: self.oracle.seen_at])) if violation else (),
            events=len(world.trace.events),
            steps=self.chaos.steps,
            records=len(self.workload.entries),
            simulated_s=world.clock.monotonic() - 1000.0,
            faults=dict(world.trace.fault_table()),
        )


def _excerpt(events: list[Fact]) -> Iterator[str]:
    for event in events[-EXCERPT:]:
        fields = " ".join(
            str(getattr(event, name)) for name in event.__dataclass_fields__ if name not in ("at", "metadata")
        )
        yield f"{event.at:10.4f} {type(event).__name__} {fields}"


@contextmanager
def _tuned(setup: Setup) -> Iterator[None]:
    """Constants of the engine as this seed needs them.

    Some seeds use a smaller window, so that it is met at all. And while a loop waits, for results or for the answer to
    a commit, it looks around it more often than a simulation can afford. What a spool sets aside for minutes, it looks
    at again within the time that a seed lasts.
    """
    constants = (
        (runs, "WINDOW", setup.window),
        (crash_guard, "ALONE_S", setup.alone_s),
        (topic_ids, "CHECK_INTERVAL_S", 2.0),
        (topic_ids, "CONFIRM_S", 0.5),
        (topic_ids, "FORMER_S", 5.0),
        (loop, "LATE_REPLY_POLL_S", 0.01),
        (loop, "BUSY_S", 0.02),
        (files, "ADOPT_EVERY_S", 2.0),
        (spool_worker, "STUCK_S", 4.0),
    )
    before = [(vars(module), name, vars(module)[name]) for module, name, _ in constants]
    for module, name, value in constants:
        vars(module)[name] = value
    try:
        yield
    finally:
        for names, name, value in before:
            names[name] = value


@contextmanager
def quiet() -> Iterator[None]:
    """A world of faults would fill the log with what it is made for."""
    log = logging.getLogger("keepfast")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)
