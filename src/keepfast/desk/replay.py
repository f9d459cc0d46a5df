"""Replays letters, each confirmed by the broker; reports how far it got, for whatever reason it ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from keepfast.core.errors import Fault, SinkError
from keepfast.core.ports import Delivery, Sink
from keepfast.core.records import Outgoing, Receipt
from keepfast.desk.letter_topic import LetterTopic, ReadStopped
from keepfast.desk.planning import ReplayPolicy, ReplayRouter
from keepfast.desk.selection import FiledLetter, Offsets

MAX_IN_FLIGHT: Final = 1_000
MAX_BYTES_IN_FLIGHT: Final = 32 * 1024 * 1024
SETTLE_S: Final = 40.0
"""For records in flight at the end: longer than the client's delivery timeout."""
SETTLE_STOPPED_S: Final = 10.0
POLL_INTERVAL_S: Final = 0.1
MAX_REPORTED_FAILURES: Final = 20

Progress = Callable[[int], None]


@dataclass(slots=True)
class Replayed:
    """Result of a replay. Only `complete` is a success."""

    confirmed: int = 0
    failed: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    """The first few: position of the letter, and why the record was refused."""
    left_out: int = 0
    stopped: bool = False
    broken: str = ""
    """Why it ended early."""
    left: tuple[Offsets, ...] = ()
    """Letters not read, or sent without an answer. Replaying them may repeat a few records, but skips none."""

    def complete(self, planned: int) -> bool:
        return self.confirmed == planned and not self.failed and not self.left and not self.broken


@dataclass(frozen=True, slots=True)
class _Sent:
    """A record in flight: its letter, and whether it was sent in a batch of its own."""

    stored: FiledLetter
    outgoing: Outgoing
    alone: bool = False

    @property
    def place(self) -> tuple[int, int]:
        return self.stored.place.partition, self.stored.offset

    @property
    def size_bytes(self) -> int:
        return len(self.outgoing.value or b"") + len(self.outgoing.key or b"")


class Replay:
    """One replay. `run` blocks its thread; answers of the sink come on another.

    A broker refuses a batch as a whole, so a record refused as too large may only have shared a batch with one that is:
    such records are sent again, each in a batch of its own, and may arrive after later ones.
    """

    def __init__(self, letter_topic: LetterTopic, router: ReplayRouter, sink: Sink, policy: ReplayPolicy) -> None:
        self._letters = letter_topic
        self._router = router
        self._sink = sink
        self._policy = policy
        self._stop = threading.Event()
        self._changed = threading.Condition()  # guards what follows
        self._under_way: dict[tuple[int, int], _Sent] = {}
        self._bytes = 0
        self._refused: list[_Sent] = []
        self._unconfirmed: dict[int, int] = {}
        self._outcome = Replayed()

    def stop(self) -> None:
        """Stop sending and wait for records in flight. Any thread, or a signal handler."""
        self._stop.set()

    def run(self, progress: Progress = lambda _: None) -> Replayed:
        """Runs until all is sent and confirmed, or a failure or `stop` ends it. Raises SourceError if letters cannot be
        read; `outcome` then has what was sent so far.
        """
        ended_early = True
        position = {partition: low for partition, (low, _) in self._letters.spans.items()}
        next_at = time.monotonic()
        try:
            for stored in self._letters.letters(self._ended):
                next_at = self._send_one(stored, next_at)
                position[stored.place.partition] = stored.offset + 1
                progress(self._outcome.confirmed)
                if self._refused:
                    self._send_alone(progress)
            self._send_alone(progress)
            ended_early = False
        except ReadStopped:
            pass
        finally:
            self._settle(progress, SETTLE_STOPPED_S if self._stop.is_set() else SETTLE_S)
            self._summarise(position if ended_early else {})
        return self._outcome

    @property
    def outcome(self) -> Replayed:
        return self._outcome

    def _send_one(self, stored: FiledLetter, next_at: float) -> float:
        """Raises ReadStopped if it was not sent. Returns the earliest time for the next one."""
        routed = self._router.route(stored)
        if isinstance(routed, str):
            self._outcome.left_out += 1
            return next_at
        if self._policy.rate_per_s is not None:
            self._wait_until(next_at)
        self._wait_for_room()
        self._send(_Sent(stored, routed))
        if self._policy.rate_per_s is None:
            return next_at
        # After a delay there is no burst to catch up.
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
        """Send records that were refused in a shared batch. Raises ReadStopped if some were not tried."""
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
        """With the lock. A record that is too large fails alone; any other error would affect the next one too."""
        self._outcome.failed += 1
        if len(self._outcome.failures) < MAX_REPORTED_FAILURES:
            self._outcome.failures.append((one.stored.name, str(error)))
        if error.fault is not Fault.TOO_LARGE:
            self._outcome.broken = self._outcome.broken or str(error)
            self._note_unconfirmed(one.place)

    def _note_unconfirmed(self, place: tuple[int, int]) -> None:
        partition, offset = place
        self._unconfirmed[partition] = min(offset, self._unconfirmed.get(partition, offset))

    def _settle(self, progress: Progress, timeout_s: float) -> None:
        """Wait for the records in flight."""
        deadline = time.monotonic() + timeout_s
        while True:
            with self._changed:
                if not self._under_way or time.monotonic() > deadline:
                    break
                self._changed.wait(POLL_INTERVAL_S)
            progress(self._outcome.confirmed)
        progress(self._outcome.confirmed)

    def _summarise(self, position: dict[int, int]) -> None:
        """What is left: from the first unconfirmed record, else from where reading ended."""
        with self._changed:
            self._outcome.stopped = self._stop.is_set()
            for one in (*self._under_way.values(), *self._refused):
                self._note_unconfirmed(one.place)
            starts = dict(position)
            for partition, offset in self._unconfirmed.items():
                starts[partition] = min(offset, starts.get(partition, offset))
            self._outcome.left = self._letters.rest(starts)
