"""A member of a group for the conformance suite: a source, a listener that writes down what it hears, and driving."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import CommitOutcome, Position, Source
from keepfast.core.records import Message, TopicPartition
from tests.conformance.backend import Backend
from tests.support.waiting import DEADLINE_S, wait_until

Call = tuple[str, tuple[TopicPartition, ...]]


class Member:
    """Starts what it is assigned where the group stands, or at the first record; keeps all records and calls."""

    def __init__(
        self, backend: Backend, group: str, topic: str, *, journal: list[tuple[Member, Call]] | None = None
    ) -> None:
        self.backend = backend
        self.source: Source = backend.source(group)
        self.records: list[Message] = []
        self.calls: list[Call] = []
        self.outcomes: list[CommitOutcome] = []
        self.errors: list[tuple[SourceError, TopicPartition | None]] = []
        self.owned: set[TopicPartition] = set()
        self.started_at: dict[TopicPartition, int] = {}
        self.during_revoke: Callable[[Sequence[TopicPartition]], None] = lambda places: None
        self.during_assign: Callable[[Sequence[TopicPartition]], None] = lambda places: None
        self.during_lost: Callable[[Sequence[TopicPartition]], None] = lambda places: None
        self.start_offset: int | None = None
        self._journal = journal if journal is not None else []
        self.source.subscribe([topic], self)

    def on_assigned(self, places: Sequence[TopicPartition]) -> None:
        self._heard("assigned", places)
        positions = []
        for committed in self.source.committed(places, 10.0) if places else []:
            offset = committed.offset
            if offset is None:
                offset = self._beginning_of(committed.place) if self.start_offset is None else self.start_offset
            positions.append(Position(committed.place, offset))
            self.started_at[committed.place] = offset
        self.source.start(positions)
        self.owned.update(places)
        self.during_assign(places)

    def _beginning_of(self, place: TopicPartition) -> int:
        """A topic that was just made may not have its leader everywhere yet."""
        deadline = self.backend.now() + 10
        while True:
            try:
                return self.source.edges(place, 10.0)[0]
            except SourceError as error:
                if error.fault is not Fault.RETRY or self.backend.now() > deadline:
                    raise
            self.backend.until(lambda: False, 0.05)

    def on_revoked(self, places: Sequence[TopicPartition]) -> None:
        self._heard("revoked", places)
        self.during_revoke(places)
        self.owned.difference_update(places)
        self._journal.append((self, ("let go", tuple(places))))

    def on_lost(self, places: Sequence[TopicPartition]) -> None:
        self._heard("lost", places)
        self.owned.difference_update(places)
        self.during_lost(places)

    def on_committed(self, outcome: CommitOutcome) -> None:
        self.outcomes.append(outcome)

    def on_error(self, error: SourceError, place: TopicPartition | None) -> None:
        self.errors.append((error, place))

    def step(self) -> None:
        message = self.source.poll(0.05)
        if message is not None:
            self.records.append(message)
        self.records.extend(self.source.sweep(100))

    def offsets(self, place: TopicPartition) -> list[int]:
        """The offsets received of one partition, in the order they came."""
        return [m.offset() for m in self.records if (m.topic(), m.partition()) == place]

    def heard(self, what: str) -> list[tuple[TopicPartition, ...]]:
        return [places for name, places in self.calls if name == what]

    def commit(self, *positions: Position, beside: Sequence[Member] = ()) -> CommitOutcome:
        """Commit and poll until it is answered; `beside`: others that must be polled for a rebalance to end."""
        before = len(self.outcomes)
        self.source.commit(positions)
        drive([self, *beside], lambda: len(self.outcomes) > before)
        return self.outcomes[before]

    def _heard(self, what: str, places: Sequence[TopicPartition]) -> None:
        call = (what, tuple(sorted(places)))
        self.calls.append(call)
        self._journal.append((self, call))


def drive(members: Sequence[Member], ready: Callable[[], object], *, timeout_s: float = DEADLINE_S) -> None:
    """Poll the members in turn until `ready()`. Fails when it does not come true."""

    def step() -> None:
        for member in members:
            member.step()

    try:
        wait_until(ready, timeout_s=timeout_s, between=step, now=members[0].backend.now)
    except AssertionError as error:
        error.add_note(f"heard {[member.calls for member in members]}")
        raise


def drive_for(members: Sequence[Member], duration_s: float) -> None:
    """Poll the members in turn for a while: to see that something does not happen."""
    end = members[0].backend.now() + duration_s
    while members[0].backend.now() < end:
        for member in members:
            member.step()
