"""The rule about transactions (P13): each output of a record is there once, none is of an attempt that failed, and
none is missing when its record is committed; and so are its dead letter and its copy in a retry topic.
"""

from __future__ import annotations

from keepfast.core.events import DeadLettered, Moved
from keepfast.core.records import Outgoing, TopicPartition
from keepfast.testing.fakes import acts, trace
from keepfast.testing.fakes.broker import FakeBroker
from keepfast.testing.fakes.sink import OUTPUT
from simulation.member import Member
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
        self._claims: dict[int, tuple[str, int]] = {}
        """Letters and moves of records that are finished: member and number, as in the trace."""
        self._forwarded: set[int] = set()  # records that were dead-lettered or moved
        self._given_up: set[str] = set()  # members whose producer hangs, until partitions are assigned again
        if self._on:
            broker.write_output = self._write

    def given_up(self, event: trace.ProducerGivenUp) -> None:
        self._given_up.add(event.member)

    def lost(self, event: trace.LostCalled) -> None:
        if event.member in self._given_up and not self._says_that_it_hangs(event.member):
            self._blame("P13", f"{event.member} loses its partitions because its producer hangs, and calls itself live")

    def delivered(self, event: trace.Delivered) -> None:
        """It has partitions again."""
        if event.member in self._given_up:
            self._given_up.discard(event.member)
            if self._says_that_it_hangs(event.member):
                self._blame("P13", f"{event.member} has a new producer, and still says that the old one hangs")

    def _says_that_it_hangs(self, name: str) -> bool:
        return bool(self._book.members[name].loop.status.producer_hangs)

    def began(self, event: acts.HandlerBegan) -> None:
        self._numbers[event.call] = event.number

    def ended(self, event: acts.HandlerEnded) -> None:
        self._outcomes.setdefault(event.call, event.outcome)

    def batch_began(self, event: acts.BatchBegan) -> None:
        self._numbers.update(zip(event.calls, event.numbers, strict=True))

    def batch_ended(self, event: acts.BatchEnded) -> None:
        for call, outcome in zip(event.calls, event.outcomes, strict=True):
            self._outcomes.setdefault(call, event.error or outcome)

    def timed_out(self, event: acts.TimedOut | acts.BatchTimedOut) -> None:
        """Whatever the handler still does."""
        calls = event.calls if isinstance(event, acts.BatchTimedOut) else (event.call,)
        self._outcomes.update(dict.fromkeys(calls, event.outcome))

    def claimed(self, member: Member, event: DeadLettered | Moved, entry: Entry | None) -> None:
        """The loop calls a record finished that it has dead-lettered or moved: that must be part of its next commit."""
        partition = member.loop.ownership.get(entry.place) if entry is not None else None
        output = partition.outputs[-1] if partition is not None and partition.outputs else None
        kind = "move" if isinstance(event, Moved) else "dead-letter"
        if entry is None or output is None or output.kind != kind or id(output.outgoing) in self._claims:
            self._blame("P13", f"{member.name} reports {event}, and its next commit has no such record")
            return
        self._book.in_transaction[id(output.outgoing)] = entry
        number = member.seat.sink.send_in_transaction(output.outgoing)
        self._claims[id(output.outgoing)] = member.name, number
        epoch = self._book.epochs.get((member.name, entry.place))
        if epoch is not None:
            self._book.finish(epoch, entry, self._broker.clock.monotonic())

    def _write(self, outgoing: Outgoing) -> None:
        place, offset = self._broker.write(outgoing)
        claim = self._claims.get(id(outgoing))
        if claim is None:
            if place.topic != OUTPUT:
                self._blame("P13", f"{place} has a record at {offset} that nothing was reported of")
            return
        number = self._book.in_transaction[id(outgoing)].number
        if number in self._forwarded:
            self._blame("P13", f"record {number} was dead-lettered or moved before, and is in {place}, too")
        self._forwarded.add(number)
        self._broker.trace.fault("forwarded_in_a_transaction")
        now = self._broker.clock.monotonic()
        self._broker.trace.add(trace.LetterWritten(now, *claim, place, offset))
        self._broker.trace.add(trace.LetterAcked(now, *claim, place, offset))

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
            if entry.terminal == "handled" and entry.number not in self._forwarded and self._is_committed(entry)
            for value in outputs_of(entry)
            if (entry.number, value) not in self._written
        ]

    def _is_committed(self, entry: Entry) -> bool:
        place = TopicPartition(*entry.place)
        stored = self._broker.stored(GROUP, place)
        return stored is not None and entry.offset in Cover(stored.offset, stored.metadata)
