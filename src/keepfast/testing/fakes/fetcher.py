"""The client's fetching and its queue: records arrive in random portions, and stale ones are never handed out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from keepfast.core.errors import Fault
from keepfast.core.ports import BEGINNING, Position
from keepfast.core.records import TopicPartition
from keepfast.testing.fakes.acts import OutOfRange
from keepfast.testing.fakes.broker import FakeBroker
from keepfast.testing.fakes.log import FakeMessage, PartitionLog
from keepfast.testing.fakes.operations import ErrorOp, Operations
from keepfast.testing.fakes.process import Process
from keepfast.testing.fakes.wire import Failure

Neglect = Literal["refetch", "client"]
"""A partition that the client does not fetch: until it is fetched again, or until the client is replaced."""


class _Tap:
    """One started partition. `epoch` changes with start and reset, `version` also with every purge of the queue."""

    __slots__ = (
        "buffered",
        "end",
        "epoch",
        "fetch_at",
        "fetching",
        "neglected",
        "next",
        "paused",
        "place",
        "stuck",
        "version",
    )

    def __init__(self, place: TopicPartition, offset: int, epoch: int) -> None:
        self.place = place
        self.next = offset
        self.fetch_at = offset
        self.end = -1  # that was put into the queue last: the client reports each only once
        self.epoch = epoch
        self.version = epoch
        self.paused = False
        self.fetching = False
        self.stuck = False
        self.neglected: Neglect | None = None
        self.buffered = 0


Fetched = tuple[FakeMessage, int]
"""A message and the epoch in which it was taken from the queue."""


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """In place of a record: nothing lies between the last one and this offset."""

    place: TopicPartition
    offset: int
    epoch: int


class Fetcher:
    """Fetches ahead for one client. Pausing or a rebalance purges what was fetched; it is fetched again afterwards."""

    def __init__(self, process: Process, broker: FakeBroker, operations: Operations) -> None:
        self._process = process
        self._broker = broker
        self._operations = operations
        self._taps: dict[TopicPartition, _Tap] = {}
        self._queue: deque[tuple[_Tap, int, FakeMessage | int]] = deque()
        self._numbered = 0
        self._suspended = False
        broker.watch(self._changed)

    def start(self, position: Position) -> None:
        self._taps[position.place] = tap = _Tap(position.place, position.offset, self._number())
        self._fetch(tap)

    def reset(self, position: Position) -> None:
        tap = self._taps[position.place]
        tap.epoch = self._number()
        tap.next = position.offset
        tap.stuck = False
        self._purge(tap)
        self._fetch(tap)

    def neglect(self, place: TopicPartition, until: Neglect) -> None:
        """Do not fetch the partition any more, and say nothing about it."""
        tap = self._taps.get(place)
        if tap is not None:
            tap.neglected = until
            self._purge(tap)

    def refetch(self, position: Position) -> None:
        """Fetch the partition again from this position, in the same epoch of it."""
        tap = self._taps[position.place]
        if tap.neglected == "refetch":
            tap.neglected = None
        tap.next = position.offset
        self._purge(tap)
        self._fetch(tap)

    def started(self, place: TopicPartition) -> bool:
        return place in self._taps

    def drop(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            tap = self._taps.pop(place, None)
            if tap is not None:
                tap.epoch = self._number()
                self._purge(tap)

    def pause(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            tap = self._taps.get(place)
            if tap is not None and not tap.paused:
                tap.paused = True
                self._purge(tap)

    def resume(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            tap = self._taps.get(place)
            if tap is not None and tap.paused:
                tap.paused = False
                self._fetch(tap)

    def suspend(self) -> None:
        """A rebalance waits for its callback: the client stops all fetching and purges what it had fetched."""
        self._suspended = True
        for tap in self._taps.values():
            self._purge(tap)

    def unsuspend(self) -> None:
        self._suspended = False
        for tap in list(self._taps.values()):
            self._fetch(tap)

    def ready(self) -> bool:
        while self._queue and self._queue[0][1] != self._queue[0][0].version:
            self._queue.popleft()
        return bool(self._queue)

    def take(self) -> Fetched | PartitionEnd | None:
        """The next record of the queue; the position moves past it. It does not move past an end."""
        if not self.ready():
            return None
        tap, _, message = self._queue.popleft()
        if isinstance(message, int):
            return PartitionEnd(tap.place, message, tap.epoch)
        tap.buffered -= 1
        tap.next = message.offset() + 1
        self._fetch(tap)
        return message, tap.epoch

    def is_current(self, fetched: Fetched | PartitionEnd) -> bool:
        """Whether its partition was neither released nor reset since."""
        if isinstance(fetched, PartitionEnd):
            place, epoch = fetched.place, fetched.epoch
        else:
            message, epoch = fetched
            place = TopicPartition(message.topic(), message.partition())
        tap = self._taps.get(place)
        return tap is not None and tap.epoch == epoch

    def close(self) -> None:
        self._broker.unwatch(self._changed)
        self.drop(list(self._taps))

    def _number(self) -> int:
        self._numbered += 1
        return self._numbered

    def _purge(self, tap: _Tap) -> None:
        tap.version = self._number()
        tap.fetch_at = tap.next
        tap.end = -1
        tap.fetching = False
        tap.buffered = 0

    def _changed(self, place: TopicPartition) -> None:
        tap = self._taps.get(place)
        if tap is not None and self._process.alive:
            self._fetch(tap)

    def _fetch(self, tap: _Tap) -> None:
        """Fetch more of this partition, unless it is paused, suspended or full."""
        if (
            tap.fetching
            or tap.paused
            or tap.stuck
            or tap.neglected
            or self._suspended
            or self._taps.get(tap.place) is not tap
        ):
            return
        if tap.buffered >= self._broker.settings.prefetch_records:
            return
        log = self._broker.log(tap.place)
        if log is not None and tap.fetch_at == tap.end == log.end:
            return
        tap.fetching = True
        version = tap.version
        delay_s = self._broker.rng.uniform(*self._broker.settings.fetch_delay_s)
        self._broker.data.after(delay_s, lambda: self._process.background(lambda: self._answer(tap, version)))

    def _answer(self, tap: _Tap, version: int) -> None:
        if version != tap.version:
            return
        tap.fetching = False
        log = self._broker.log(tap.place)
        if log is not None and tap.fetch_at == BEGINNING:
            tap.next = tap.fetch_at = log.start  # the client asks the broker where that is
        trouble = self._trouble(tap, log)
        if trouble:
            tap.stuck = True
            self._broker.trace.fault(f"fetch_{trouble}")
            error = Failure(trouble).error(f"fetching {tap.place} at {tap.fetch_at}")
            self._operations.append(ErrorOp(error, tap.place))
            if error.fault is Fault.OUT_OF_RANGE:
                now = self._broker.clock.monotonic()
                self._broker.trace.add(OutOfRange(now, self._process.name, tap.place, tap.fetch_at))
            return
        if log is not None:
            for message in log.read(tap.fetch_at, self._broker.rng.randint(1, self._broker.settings.fetch_records)):
                self._queue.append((tap, version, message))
                tap.fetch_at = message.offset() + 1
                tap.buffered += 1
            if not log.has(tap.fetch_at):
                self._end(tap, log.end)
        self._fetch(tap)

    def _end(self, tap: _Tap, end: int) -> None:
        """Fetching passes what no reader sees, and the end is queued behind the last record."""
        tap.fetch_at = end
        if tap.end != end:
            tap.end = end
            self._queue.append((tap, tap.version, end))

    def _trouble(self, tap: _Tap, log: PartitionLog | None) -> str:
        if log is None:
            return "UNKNOWN_TOPIC_OR_PART"
        return "" if log.start <= tap.fetch_at <= log.end else "_AUTO_OFFSET_RESET"
