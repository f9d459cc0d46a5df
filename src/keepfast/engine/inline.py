"""Fast handlers are called by the thread that drives the loop; if one hangs, another thread drives on.

Giving a record to another thread and hearing back costs about 50 µs, ten times as much as a fast handler. So the
driver walks runs of fast handlers itself. Somebody must go on polling when such a handler turns out to be slow: a
watcher looks now and then, takes the loop over, and the thread that hangs in the handler goes on as a worker, whose run
comes back through the mailbox like any other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from keepfast.core.ports import Mailbox
from keepfast.core.runs import Run
from keepfast.engine.flight_recorder import NO_SLOT, FlightRecorder, Slot
from keepfast.engine.walk import Call, walk
from keepfast.telemetry.tally import Tallies

HANG_S = 0.02
"""A run that takes this long on the driver's thread loses it the loop."""

WATCH_S = 0.01
"""How often the watcher looks while runs are walked here; it sleeps for good when none was for QUIET_LOOKS of these."""

QUIET_LOOKS = 100


class Superseded(Exception):
    """Another thread drives the loop now: whoever gets this must not touch it any more."""


class Inline:
    """Who drives the loop, and what that thread walks itself.

    `_turn` counts the threads that have driven; it changes hands under the lock. `walk` is the driver's.
    """

    def __init__(
        self,
        call: Call,
        mailbox: Mailbox,
        tallies: list[Tallies],
        *,
        name: str,
        recorder: FlightRecorder | None = None,
    ) -> None:
        self._call = call
        self._mailbox = mailbox
        self._tallies = tallies
        self._name = name
        self._recorder = recorder
        self._lock = threading.Lock()
        self._awake = threading.Event()
        self._watched = False  # the watcher looks, or is about to
        self._since: float | None = None
        self._spare: list[tuple[Tallies, Slot]] = []  # of threads that have driven and are back from their handlers
        self._own = self._new()
        self._drive: Callable[[], None] | None = None
        self._turn = 0
        self.takeovers = 0

    def start(self, drive: Callable[[], None]) -> None:
        """From now on `drive` is called, on a new thread, when the loop has to be taken over."""
        self._drive = drive
        self._watch_from_a_new_thread()

    def walk(self, run: Run) -> None:
        """Call the handler for the records of the run, here and now. Raises Superseded if that took too long."""
        turn, own = self._turn, self._own
        tally, slot = own
        self._since = time.monotonic()
        if not self._watched:
            self._awake.set()
        walk(run, self._call, tally[run.partition.place.topic], time.perf_counter, slot)
        with self._lock:
            if self._turn == turn:
                self._since = None
                return
            self._spare.append(own)
        self._mailbox.post(run)
        raise Superseded

    def _new(self) -> tuple[Tallies, Slot]:
        """What a thread that drives writes to: its counts, and what it has in hand."""
        tally = Tallies()
        self._tallies.append(tally)
        return tally, NO_SLOT if self._recorder is None else self._recorder.slot()

    def _watch_from_a_new_thread(self) -> None:
        threading.Thread(target=self._watch, name=f"{self._name}-watch-{self.takeovers}", daemon=True).start()

    def _watch(self) -> None:
        quiet = 0
        while True:
            if quiet >= QUIET_LOOKS:
                self._watched = False
                self._awake.clear()
                if self._since is None:  # looked at after that: `walk` notes the time before it looks itself
                    self._awake.wait()
                quiet = 0
            self._watched = True
            time.sleep(WATCH_S)
            quiet = 0 if self._since is not None else quiet + 1
            if self._take_over():
                break
        self._watch_from_a_new_thread()
        if self._drive is not None:
            self._drive()

    def _take_over(self) -> bool:
        with self._lock:
            if self._since is None or time.monotonic() - self._since < HANG_S:
                return False
            self._since = None
            self._turn += 1
            self.takeovers += 1
            # The old one still belongs to the thread that hangs.
            self._own = self._spare.pop() if self._spare else self._new()
            return True
