"""Whether anything disturbed a member lately: some rules only bind when nothing did."""

from __future__ import annotations

from math import inf

from holdfast.testing.simulator import trace
from holdfast.testing.simulator.oracle.book import Book
from holdfast.testing.simulator.world import World

ANSWER_S = 0.3
"""A commit that takes longer to be answered is held back at the broker, behind a join for example."""


class Health:
    """Knows when the broker, or the process itself, last gave a member trouble."""

    def __init__(self, world: World, book: Book) -> None:
        self._world = world
        self._book = book
        self._frozen = False
        self._thawed_at = -inf
        self._refused_at: dict[str, float] = {}
        self._unanswered: dict[str, float] = {}
        self._stopped_at: dict[str, float] = {}
        self._generation_at = -inf

    def update(self, event: trace.Event) -> None:
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
                if code:
                    self._refused_at[event.member] = event.at
            case trace.CommitRefused():
                self._refused_at[event.member] = event.at
            case trace.Stopped() | trace.Continued():
                self._stopped_at[event.member] = event.at
            case trace.Generation():
                self._generation_at = event.at
            case _:
                pass

    def process_disturbed_at(self, member: str) -> float:
        """When the process last stood still: stopped, or held up by another's wait, as all share one thread."""
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
        faults, now = self._world.broker.faults, self._world.clock.monotonic()
        if faults.commits.open or faults.committed_reads.open or now - self._unanswered.get(member, now) > ANSWER_S:
            return now
        return max(faults.commits.taken_at, faults.committed_reads.taken_at, self._refused_at.get(member, -inf))

    @property
    def generation_at(self) -> float:
        """When the group last changed."""
        return self._generation_at
