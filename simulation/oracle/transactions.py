"""The rule about transactions (P13): each output of a record is there once, none is of an attempt that failed, and
none is missing when its record is committed.
"""

from __future__ import annotations

from keepfast.core.records import TopicPartition
from keepfast.testing.fakes import acts, trace
from keepfast.testing.fakes.broker import FakeBroker
from keepfast.testing.fakes.sink import OUTPUT
from simulation.oracle.book import Book
from simulation.oracle.cover import Cover
from simulation.oracle.violation import Blame
from simulation.setup import GROUP, Setup
from simulation.workload import Entry, outputs_of


class TransactionRules:
    """Looks at each output that is written, and at what the group has committed in the end."""

    def __init__(self, broker: FakeBroker, book: Book, blame: Blame, setup: Setup) -> None:
        self._broker = broker
        self._book = book
        self._blame = blame
        self._on = setup.once
        self._numbers: dict[int, int] = {}  # call → its record
        self._outcomes: dict[int, str] = {}
        self._written: set[tuple[int, bytes]] = set()

    def began(self, event: acts.HandlerBegan) -> None:
        self._numbers[event.call] = event.number

    def ended(self, event: acts.HandlerEnded) -> None:
        self._outcomes[event.call] = event.outcome

    def produced(self, event: trace.Produced) -> None:
        if not self._on or event.place.topic != OUTPUT:
            return
        message = next(iter(self._broker.existing(event.place).read(event.offset, event.offset + 1)))
        call, value = int(message.key() or b""), message.value() or b""
        number = self._numbers[call]
        outcome = self._outcomes.get(call, "not ended")
        if outcome != "ok":
            self._blame("P13", f"output {value!r} of record {number} is there, and call {call} is {outcome}")
        if (number, value) in self._written:
            self._blame("P13", f"output {value!r} of record {number} is there twice")
        self._written.add((number, value))

    def unfinished(self) -> list[str]:
        """Records that the group has committed, and of which an output is missing."""
        if not self._on:
            return []
        return [
            f"output {value!r} of record {entry.number} is missing"
            for entry in self._book.entries
            if self._is_committed(entry)
            for value in outputs_of(entry)
            if (entry.number, value) not in self._written
        ]

    def _is_committed(self, entry: Entry) -> bool:
        place = TopicPartition(*entry.place)
        stored = self._broker.stored(GROUP, place)
        return stored is not None and entry.offset in Cover(stored.offset, stored.metadata)
