"""Sends letters back, each confirmed by the broker; says how far it got, whatever ended it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from keepfast.core.errors import Fault, SinkError
from keepfast.core.ports import Delivery, Sink
from keepfast.core.records import Outgoing, Receipt
from keepfast.desk.planning import ReplayPolicy, Router
from keepfast.desk.selection import Filed, Offsets
from keepfast.desk.shelf import LetterTopic, ReadStopped

MAX_IN_FLIGHT: Final = 1_000
MAX_BYTES_IN_FLIGHT: Final = 32 * 1024 * 1024
SETTLE_S: Final = 40.0
"""For what is under way at the end: longer than the client tries to deliver a record."""
SETTLE_STOPPED_S: Final = 10.0
POLL_INTERVAL_S: Final = 0.1
MAX_FAILURES_TOLD: Final = 20

Progress = Callable[[int], None]


@dataclass(slots=True)
class Replayed:
    """What became of a replay. Only `complete` may be called a success."""

    confirmed: int = 0
    failed: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    """The first few: where the letter lies, and why it was not taken."""
    left_out: int = 0
    stopped: bool = False
    broken: str = ""
    """What ended it before its time."""
    left: tuple[Offsets, ...] = ()
    """What was not read, or sent without an answer. Sending it again may repeat a few records, but misses none."""

    def complete(self, planned: int) -> bool:
        return self.confirmed == planned and not self.failed and not self.left and not self.broken


@dataclass(frozen=True, slots=True)
class _Sent:
    """A record on its way: which letter it is of, and whether it travels alone."""

    filed: Filed
    outgoing: Outgoing
    alone: bool = False

    @property
    def place(self) -> tuple[int, int]:
        return self.filed.place.partition, self.filed.offset

    @property
    def size_bytes(self) -> int:
        return len(self.outgoing.value or b"") + len(self.outgoing.key or b"")


class Replay:
    """One replay. `run` blocks its thread; answers of the sink come on another.

    A broker refuses a batch as a whole, so records that were refused as too large may only have been beside one that
    is: they are sent again, each alone, and may so fall behind later ones.
    """

    def __init__(self, shelf: LetterTopic, router: Router, sink: Sink, policy: ReplayPolicy) -> None:
        self._shelf = shelf
        self._router = router
        self._sink = sink
        self._policy = policy
        self._stop = threading.Event()
        self._changed = threading.Condition()  # guards what follows
        self._under_way: dict[tuple[int, int], _Sent] = {}
        self._bytes = 0
        self._refused: list[_Sent] = []
        self._unsure: dict[int, int] = {}
        self._outcome = Replayed()

    def stop(self) -> None:
        """Send nothing more, wait for what is under way. Any thread, or a signal handler."""
        self._stop.set()

    def run(self, progress: Progress = lambda _: None) -> Replayed:
        """Until all is sent and confirmed, or a failure or `stop` ends it. Raises SourceError if letters cannot be
        read, with everything that was sent so far in `outcome`.
        """
        ended_early = True
        position = {partition: low for partition, (low, _) in self._shelf.spans.items()}
        next_at = time.monotonic()
        try:
            for filed in self._shelf.letters(self._ended):
                next_at = self._send_one(filed, next_at)
                position[filed.place.partition] = filed.offset + 1
                progress(self._outcome.confirmed)
                if self._refused:
                    self._send_alone(progress)
            self._send_alone(progress)
            ended_early = False
        except ReadStopped:
            pass
        finally:
            self._settle(progress, SETTLE_STOPPED_S if self._stop.is_set() else SETTLE_S)
            self._close_books(position if ended_early else {})
        return self._outcome

    @property
    def outcome(self) -> Replayed:
        return self._outcome

    def _send_one(self, filed: Filed, next_at: float) -> float:
        """Raises Stopped if it was not even tried. Returns the earliest time for the next one."""
        routed = self._router.route(filed)
        if isinstance(routed, str):
            self._outcome.left_out += 1
            return next_at
        if self._policy.rate_per_s is not None:
            self._wait_until(next_at)
        self._wait_for_room()
        self._send(_Sent(filed, routed))
        if self._policy.rate_per_s is None:
            return next_at
        # After a hold-up the lost time is not made up for by a burst.
        return max(next_at, time.monotonic() - POLL_INTERVAL_S) + 1 / self._policy.rate_per_s

    def _wait_until(self, at: float) -> None:
        while (left_s := at - time.monotonic()) > 0:
            if self._ended():
                raise ReadStopped
            time.sleep(min(left_s, POLL_INTERVAL_S))  # not in the Event: a signal that comes just then could not set it

    def _wait_for_room(self) -> None:
        with self._changed:
            while len(self._under_way) >= MAX_IN_FLIGHT or self._bytes >= MAX_BYTES_IN_FLIGHT:
                if self._ended():
                    raise ReadStopped
                self._changed.wait(POLL_INTERVAL_S)
        if self._ended():
            raise ReadStopped

    def _ended(self) -> bool:
        return self._stop.is_set() or bool(self._outcome.broken)

    def _send(self, one: _Sent) -> None:
        with self._changed:
            self._under_way[one.place] = one
            self._bytes += one.size_bytes
        self._sink.send(one.outgoing, self._delivery(one))

    def _send_alone(self, progress: Progress) -> None:
        """What was refused in company. Raises Stopped if that was not tried for all."""
        self._settle(progress, SETTLE_S)
        while self._refused:
            if self._ended():
                raise ReadStopped
            with self._changed:
                one = self._refused.pop(0)
            self._send(replace(one, alone=True))
            self._settle(progress, SETTLE_S)

    def _delivery(self, one: _Sent) -> Delivery:
        def delivered(outcome: Receipt | SinkError) -> None:
            with self._changed:
                self._under_way.pop(one.place, None)
                self._bytes -= one.size_bytes
                if isinstance(outcome, Receipt):
                    self._outcome.confirmed += 1
                elif outcome.fault is Fault.TOO_LARGE and not one.alone:
                    self._refused.append(one)
                else:
                    self._failed(one, outcome)
                self._changed.notify_all()

        return delivered

    def _failed(self, one: _Sent, error: SinkError) -> None:
        """With the lock. One record that is too large is its own trouble; anything else would meet the next one too."""
        self._outcome.failed += 1
        if len(self._outcome.failures) < MAX_FAILURES_TOLD:
            self._outcome.failures.append((one.filed.name, str(error)))
        if error.fault is not Fault.TOO_LARGE:
            self._outcome.broken = self._outcome.broken or str(error)
            self._note_unsure(one.place)

    def _note_unsure(self, place: tuple[int, int]) -> None:
        partition, offset = place
        self._unsure[partition] = min(offset, self._unsure.get(partition, offset))

    def _settle(self, progress: Progress, timeout_s: float) -> None:
        """Wait for the answers to what is under way."""
        deadline = time.monotonic() + timeout_s
        while True:
            with self._changed:
                if not self._under_way or time.monotonic() > deadline:
                    break
                self._changed.wait(POLL_INTERVAL_S)
            progress(self._outcome.confirmed)
        progress(self._outcome.confirmed)

    def _close_books(self, position: dict[int, int]) -> None:
        """What is left: from the first record that nobody confirmed, else from where reading ended."""
        with self._changed:
            self._outcome.stopped = self._stop.is_set()
            for one in (*self._under_way.values(), *self._refused):
                self._note_unsure(one.place)
            starts = dict(position)
            for partition, offset in self._unsure.items():
                starts[partition] = min(offset, starts.get(partition, offset))
            self._outcome.left = self._shelf.rest(starts)
