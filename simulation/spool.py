"""The spool of a simulated process: the engine's own worker and store, on a simulated disk, driven by the clock."""

from __future__ import annotations

from math import inf
from random import Random

from keepfast.core.errors import SpoolError
from keepfast.core.ports import Delivery, Kept, OnKept
from keepfast.core.records import Outgoing
from keepfast.deadletters.spool.files import FileStore
from keepfast.deadletters.spool.letters import letter_of
from keepfast.deadletters.spool.worker import Item, Keep, SpoolWorker
from keepfast.testing.fakes.acts import LetterHanded, LetterKept, LetterNotKept
from keepfast.testing.fakes.disk import FakeDisk
from keepfast.testing.fakes.process import Process, ProcessDied
from keepfast.testing.fakes.sink import FakeSink
from keepfast.testing.fakes.trace import Trace

FOLDER = "/spool/app"
LARGE = 10**6
WORK_S = (0.0005, 0.03)
"""How long it takes until the spool's thread gets to what came in."""


class _Onward:
    """The sink as the spool uses it: what goes out here was given up by its lane before."""

    def __init__(self, sink: FakeSink) -> None:
        self._sink = sink

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        self._sink.send_spooled(outgoing, delivered)

    def close(self, timeout_s: float) -> None: ...


class SimSpool:
    """Implements `core.ports.Spool`. `handed[n]` is what the loop gave under the number n of the trace.

    `roomy`: it is never full, and a segment takes many letters.
    """

    def __init__(
        self, process: Process, disk: FakeDisk, sink: FakeSink, trace: Trace, rng: Random, *, roomy: bool = False
    ) -> None:
        self._process = process
        self._trace = trace
        self._rng = rng
        self._disk = disk.of(process)
        store = FileStore(
            FOLDER,
            max_bytes=rng.choice((LARGE if roomy else 6_000, LARGE, LARGE)),
            disk=self._disk,
            segment_bytes=rng.choice((LARGE if roomy else 1, LARGE, LARGE)),
            salts=lambda: rng.randbytes(8),
            adopt_after_s=rng.choice((0.5, 2.0)),
        )
        self._worker = SpoolWorker(store, _Onward(sink), process.clock, self._post)
        self._items: list[Item] = []
        self._due = inf
        self._known: set[bytes] = set()  # what is to be kept now, and of which a copy is there already
        self.handed: list[Outgoing] = []

    def open(self) -> None:
        """Raises SpoolError, as a disk of its own may be broken; never by order."""
        self._disk.calm = True
        self._worker.open()
        self._disk.calm = False
        self._wake(self._rng.uniform(*WORK_S))

    def keep(self, outgoing: Outgoing, on_kept: OnKept) -> None:
        number, identity = self._hand(outgoing), letter_of(outgoing).identity

        def noted(outcome: Kept | SpoolError) -> None:
            if isinstance(outcome, Kept):
                known = identity in self._known
                self._trace.add(LetterKept(self._now(), self._process.name, number, known=known))
            else:
                self._trace.add(LetterNotKept(self._now(), self._process.name, number))
            on_kept(outcome)

        self._items.append(Keep(outgoing, noted))
        self._wake(self._rng.uniform(*WORK_S))

    def has(self, outgoing: Outgoing) -> bool:
        known = self._worker.knows(letter_of(outgoing).identity)
        if known:
            self._trace.add(LetterKept(self._now(), self._process.name, self._hand(outgoing), known=True))
        return known

    def _hand(self, outgoing: Outgoing) -> int:
        self.handed.append(outgoing)
        number = len(self.handed) - 1
        self._trace.add(LetterHanded(self._now(), self._process.name, number, letter_of(outgoing).id))
        return number

    def _post(self, item: Item) -> None:
        self._items.append(item)
        self._wake(self._rng.uniform(*WORK_S))

    def _wake(self, delay_s: float) -> None:
        """Work is done after this time at the latest."""
        due = self._now() + delay_s
        if due < self._due:
            self._due = due
            self._process.later(delay_s, lambda: self._work(due))

    def _work(self, due: float) -> None:
        if due != self._due:
            return  # it was done earlier
        self._due = inf
        items, self._items = self._items, []
        try:
            now = self._now()
            keeps = [letter_of(item.outgoing).identity for item in items if isinstance(item, Keep)]
            self._known = {identity for identity in keeps if self._worker.knows(identity)}
            self._worker.take(items, now)
            wait_s = self._worker.step(now)
        except ProcessDied:
            return
        self._wake(wait_s)

    def _now(self) -> float:
        return self._process.clock.monotonic()
