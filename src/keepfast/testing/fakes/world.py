"""A simulated world: one clock, one random number generator, one broker, and processes that run in turn on one thread.

    world = World(seed=7)
    world.broker.create_topic("orders", 4)

    def main(seat: Seat) -> Step:             # builds a loop on the seat's ports, returns its step
        loop = Loop(seat.source, seat.sink, seat.mailbox, world.clock, ...)
        return loop.step

    world.spawn("a", main, group="g")
    world.run(60.0)                            # 60 simulated seconds
    assert not world.failures

A step is an event of the clock. Whatever a process waits for inside its step, time passes there, and the steps of the
*other* processes run meanwhile, nested on the stack: so a member that drains inside on_revoked does not stop the rest.
The nesting is at most as deep as there are processes, because a process that is on the stack is not stepped again.

The mailbox of a simulated process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from keepfast.testing.fakes.broker import FakeBroker
from keepfast.testing.fakes.clock import SimClock
from keepfast.testing.fakes.disk import FakeDisk
from keepfast.testing.fakes.flights import Flights
from keepfast.testing.fakes.process import Process, ProcessDied
from keepfast.testing.fakes.settings import WorldSettings
from keepfast.testing.fakes.sink import FakeSink
from keepfast.testing.fakes.source import FakeSource

MIN_WAIT_S = 0.005
"""A loop may look for the answer to a commit many times in a millisecond: more often than a simulation can afford."""


class SimMailbox:
    """Implements `core.ports.Mailbox`: waiting for an item lets simulated time pass."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._items: list[Any] = []

    def post(self, item: Any) -> None:
        if type(item) is list:
            self._items.extend(item)
        else:
            self._items.append(item)

    @property
    def items(self) -> Sequence[Any]:
        """What was posted and is not collected yet."""
        return self._items

    def collect(self, timeout_s: float) -> list[Any]:
        self._process.enter()
        if not self._items and timeout_s > 0:
            self._process.wait(max(timeout_s, MIN_WAIT_S), lambda: self._items, yields=True)
        items, self._items = self._items, []
        return items


Step = Callable[[float], object]
"""One turn of a process at the simulated time given. Returning the `FINISHED` value ends the process in order."""

FINISHED = "finished"

STEP_GAP_S = (0.00001, 0.002)
"""Between the end of a step and the next one of the same process."""


@dataclass(frozen=True, slots=True)
class Seat:
    """The ports of one process."""

    process: Process
    source: FakeSource
    sink: FakeSink
    mailbox: SimMailbox


class World:
    """Owner of everything simulated. `failures` holds exceptions that escaped from a process: always a finding."""

    def __init__(self, seed: int, *, settings: WorldSettings | None = None) -> None:
        self.rng = Random(seed)
        self.clock = SimClock()
        self.broker = FakeBroker(self.clock, self.rng, settings=settings)
        self.trace = self.broker.trace
        self.disk = FakeDisk(self.clock, Random(seed + 17), self.trace)
        self.flights = Flights()
        self.seats: dict[str, Seat] = {}
        self.failures: list[tuple[str, BaseException]] = []
        self.finished: list[str] = []
        self._incarnations: dict[str, int] = {}

    def seat(self, name: str, *, group: str, instance_id: str | None = None) -> Seat:
        """A new process called `<name>.<n>`, the n-th of that name, with its ports; nothing drives it."""
        number = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        process = Process(f"{name}.{number}", self.clock, self.trace)
        source = FakeSource(process, self.broker, group=group, instance_id=instance_id)
        seat = Seat(process, source, FakeSink(process, self.broker), SimMailbox(process))
        self.seats[process.name] = seat
        return seat

    def spawn(self, name: str, main: Callable[[Seat], Step], *, group: str, instance_id: str | None = None) -> Seat:
        """Start a process: `main` and then its steps run as events of the clock, until it dies or finishes."""
        seat = self.seat(name, group=group, instance_id=instance_id)
        steps: list[Step] = []

        def turn() -> None:
            if not seat.process.alive:
                return
            try:
                if not steps:
                    steps.append(main(seat))
                elif steps[0](self.clock.monotonic()) == FINISHED:
                    self._finish(seat)
                    return
            except ProcessDied:
                return
            except (Exception, SystemExit) as failure:  # noqa: BLE001 - the edge of the process: it ends here, a finding
                self.failures.append((seat.process.name, failure))
                seat.process.crash()
                return
            seat.process.later(self.rng.uniform(*STEP_GAP_S), turn)

        seat.process.later(self.rng.uniform(*STEP_GAP_S), turn)
        return seat

    def run(self, duration_s: float) -> None:
        """Let simulated time pass."""
        self.clock.advance(duration_s)

    def living(self) -> list[Seat]:
        """Processes that have neither died nor finished, oldest first."""
        return [s for name, s in self.seats.items() if s.process.alive and name not in self.finished]

    def _finish(self, seat: Seat) -> None:
        self.finished.append(seat.process.name)
        seat.process.exit()
