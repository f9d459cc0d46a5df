"""The rule about what handlers send (P1): no commit covers a record of which something is not answered, or has failed;
unless the attempt was judged by that.
"""

from __future__ import annotations

from keepfast.core.records import TopicPartition
from keepfast.testing.fakes import acts, trace
from keepfast.testing.fakes.sink import OUTPUT
from simulation.oracle.book import Book
from simulation.oracle.cover import Cover
from simulation.oracle.violation import Blame


class SendRules:
    """Knows, of each record's last attempt in an epoch, how much of what it sent is not answered."""

    def __init__(self, book: Book, blame: Blame) -> None:
        self._book = book
        self._blame = blame
        self._begun: dict[int, tuple[str, TopicPartition, int]] = {}  # call → its record
        self._unanswered: dict[tuple[str, TopicPartition], dict[int, tuple[int, int]]] = {}
        """By offset: the call, and how many."""
        self._failed: set[int] = set()  # calls of which a send has failed
        self._judged: set[int] = set()  # calls that were judged by a failed send

    def began(self, event: acts.HandlerBegan) -> None:
        self._begun[event.call] = event.member, event.place, event.offset
        self._unanswered.get((event.member, event.place), {}).pop(event.offset, None)

    def started(self, event: trace.Started | trace.Reset) -> None:
        self._unanswered.pop((event.member, event.place), None)

    def sent(self, event: acts.HandlerSent) -> None:
        self._count(event.member, event.number, 1)

    def acked(self, event: trace.LetterAcked) -> None:
        self._count(event.member, event.number, -1)

    def ended(self, event: acts.HandlerEnded) -> None:
        if event.outcome == "SinkError":
            self._judged.add(event.call)

    def failed(self, event: trace.LetterFailed) -> None:
        call = self._call(event.member, event.number)
        if call is not None:
            self._failed.add(call)
            self._count(event.member, event.number, -1)

    def _call(self, member: str, number: int) -> int | None:
        outgoing = self._book.members[member].seat.sink.sent[number]
        return int(outgoing.key or b"") if outgoing.topic == OUTPUT else None

    def _count(self, member: str, number: int, step: int) -> None:
        call = self._call(member, number)
        if call is None:
            return
        _, place, offset = self._begun[call]
        known = self._unanswered.setdefault((member, place), {})
        last, count = known.get(offset, (call, 0))
        if last == call and count + step >= 0:
            known[offset] = call, count + step

    def committed(self, event: trace.CommitSent) -> None:
        cover = Cover(event.offset, event.metadata)
        for offset, (call, count) in self._unanswered.get((event.member, event.place), {}).items():
            failed = call in self._failed and call not in self._judged
            if (count or failed) and offset in cover:
                what = f"{event.member} commits {event.place} at {cover} over {offset}"
                how = "something has failed" if failed else f"{count} are not answered"
                self._blame("P1", f"{what}: of what call {call} sent, {how}")
