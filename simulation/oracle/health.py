"""Whether anything disturbed a member lately: some rules only bind when nothing did."""

from __future__ import annotations

from math import inf

from keepfast.core.records import TopicPartition
from keepfast.engine.commits import MAX_RETRY_S
from keepfast.testing.fakes import trace
from keepfast.testing.fakes.faults import REFUSAL_CODES
from keepfast.testing.fakes.world import World
from simulation.oracle.book import Book

REPLY_TIMEOUT_S = 0.3
"""A commit that takes longer to be answered is held back at the broker, behind a join for example."""


class Health:
    """Knows when the broker, or the process itself, last gave a member trouble."""

    def __init__(self, world: World, book: Book) -> None:
        self._world = world
        self._book = book
        self._frozen = False
        self._thawed_at = -inf
        self._refused_at: dict[str, float] = {}
        self._refused_partition_at: dict[tuple[str, TopicPartition], float] = {}
        self._unanswered: dict[str, float] = {}
        self._stopped_at: dict[str, float] = {}
        self._generation_at = -inf

    def update(self, event: trace.Fact) -> None:
        match event:
            case trace.Frozen():
                self._frozen = True
            case trace.Thawed():
                self._frozen = False
                self._thawed_at = event.at
            case trace.CommitSent():
                self._unanswered[event.member] = event.at
            case trace.CommitAnswered(code=code):
                self._unanswered.pop(event.member, None)
                if code and code not in REFUSAL_CODES:  # the client reports those for all of the request
                    self._refused_at[event.member] = event.at
            case trace.CommitRefused(code=code) if code in REFUSAL_CODES:
                self._refused_partition_at[event.member, event.place] = event.at
            case trace.CommitRefused():
                self._refused_at[event.member] = event.at
            case trace.ProcessStopped() | trace.Continued():
                self._stopped_at[event.member] = event.at
            case trace.Generation():
                self._generation_at = event.at
            case _:
                pass

    def process_disturbed_at(self, member: str) -> float:
        """When the process last was stopped: stopped, or held up by another's wait, as all share one thread."""
        process = self._book.members[member].process
        if process.stopped:
            return self._world.clock.monotonic()
        return max(self._stopped_at.get(member, -inf), process.held_up_at)

    def awaits_answer(self, member: str) -> bool:
        """Whether a commit of it is under way: then it cannot send another."""
        return member in self._unanswered

    def broker_disturbed_at(self) -> float:
        """When the broker was last frozen; now, if it is."""
        return self._world.clock.monotonic() if self._frozen else self._thawed_at

    def commits_disturbed_at(self, member: str) -> float:
        """When a commit or a read of commits last went wrong for this member, or may do so right now."""
        refused = [at for (name, _), at in self._refused_partition_at.items() if name == member]
        if self._world.broker.faults.refused.open:
            return self._world.clock.monotonic()
        return max(self.requests_disturbed_at(member), *refused, -inf)

    def partition_disturbed_at(self, member: str, place: TopicPartition) -> float:
        """The same as far as it concerns one partition: commits of another one that are refused are no excuse. A
        refused one is retried with pauses.
        """
        faults, now = self._world.broker.faults, self._world.clock.monotonic()
        if faults.refused.code_of(place):
            return now
        refused_at = self._refused_partition_at.get((member, place), -inf)
        return max(self.requests_disturbed_at(member), refused_at + MAX_RETRY_S)

    def requests_disturbed_at(self, member: str) -> float:
        """When a whole request last went wrong for this member, or may do so right now."""
        faults, now = self._world.broker.faults, self._world.clock.monotonic()
        if (
            faults.commits.open
            or faults.clients.open
            or faults.transactions.open
            or faults.committed_reads.open
            or now - self._unanswered.get(member, now) > REPLY_TIMEOUT_S
        ):
            return now
        taken_at = max(
            faults.commits.taken_at,
            faults.clients.taken_at,
            faults.transactions.taken_at,
            faults.committed_reads.taken_at,
        )
        return max(taken_at, self._refused_at.get(member, -inf))

    @property
    def generation_at(self) -> float:
        """When the group last changed."""
        return self._generation_at
