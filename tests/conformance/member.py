"""A member of a group for the conformance suite."""

from __future__ import annotations

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import Position
from keepfast.core.records import TopicPartition
from tests.conformance.backend import Backend
from tests.support.members import Call, GroupMember, Places
from tests.support.waiting import DEADLINE_S


class Member(GroupMember):
    """Starts what it is assigned where the group stands, or at the first record."""

    def __init__(
        self, backend: Backend, group: str, topic: str, *, journal: list[tuple[GroupMember, Call]] | None = None
    ) -> None:
        self.backend = backend
        self.started_at: dict[TopicPartition, int] = {}
        self.start_offset: int | None = None
        super().__init__(backend.source(group), topic, journal=journal, now=backend.now)

    def positions(self, places: Places) -> list[Position]:
        for committed in self.source.committed(places, 10.0) if places else []:
            offset = committed.offset
            if offset is None:
                offset = self._beginning_of(committed.place) if self.start_offset is None else self.start_offset
            self.started_at[committed.place] = offset
        return [Position(place, self.started_at[place]) for place in places]

    def _beginning_of(self, place: TopicPartition) -> int:
        """A topic that was just made may not have its leader everywhere yet."""
        deadline = self.backend.now() + DEADLINE_S
        while True:
            try:
                beginning: int = self.source.edges(place, 10.0)[0]
            except SourceError as error:
                if error.fault is not Fault.RETRY or self.backend.now() > deadline:
                    raise
            else:
                return beginning
            self.backend.until(lambda: False, 0.05)
