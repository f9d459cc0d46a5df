"""Rules about letting go: what is finished when a partition or a process goes is committed (P5, P6), and in time."""

from __future__ import annotations

from keepfast.core.records import TopicPartition
from keepfast.testing.fakes import acts, trace
from simulation.oracle.book import Book
from simulation.oracle.epochs import Epoch
from simulation.oracle.health import Health
from simulation.oracle.violation import Blame
from simulation.setup import Setup

SETTLED_S = 6.0
"""After a commit that failed, the next one may be so far away while it drains."""

ANSWERED_S = 1.0
"""Inside a revoke it goes out at once, even when time is up; a broker that comes back takes a moment to answer."""

SLACK_S = 0.6
"""What a callback may take beyond its deadline: the last wait for an answer, and the calls around it."""

STANDSTILL_S = 1.0
"""A process that was stopped so shortly before has a deadline behind it, perhaps."""

PROMPT_S = 1.5
"""A drain is over so soon after the last thing that it had to wait for."""


class LeavingRules:
    """Looks at revokes, at stops, and at the end of processes."""

    def __init__(self, book: Book, blame: Blame, health: Health, setup: Setup) -> None:
        self._book = book
        self._blame = blame
        self._health = health
        self._setup = setup
        self._revoked_at: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}

    def revoke_begins(self, event: trace.RevokedBegin) -> None:
        self._revoked_at[event.member] = event.at

    def revoke_ends(self, event: trace.RevokedEnd) -> None:
        begun_at = self._revoked_at.pop(event.member)
        took_s = event.at - begun_at
        if self._health.process_disturbed_at(event.member) < begun_at - STANDSTILL_S:
            if took_s > self._setup.revoke_timeout_s + SLACK_S:
                self._blame("P4", f"{event.member} took {took_s:.2f} s to release {_names(event.places)}")
            if took_s < self._setup.revoke_timeout_s * 0.8 and event.member not in self._asked_at:
                self._nothing_in_hand(event)
        if self._answers(event.member, begun_at - ANSWERED_S) and not self._health.awaits_answer(event.member):
            for place in event.places:
                epoch = self._book.epochs.get((event.member, place))
                if epoch is not None:
                    self._nothing_left(epoch)

    def _nothing_in_hand(self, event: trace.RevokedEnd) -> None:
        for place in event.places:
            epoch = self._book.epochs.get((event.member, place))
            if epoch is not None and epoch.running:
                self._blame(
                    "drain", f"{epoch} lets go with time left while records {sorted(epoch.running)} are in flight"
                )

    def _answers(self, member: str, since: float) -> bool:
        """Whether nothing has gone wrong with commits since."""
        disturbed_at = max(self._health.broker_disturbed_at(), self._health.commits_disturbed_at(member))
        return disturbed_at < since

    def _nothing_left(self, epoch: Epoch) -> None:
        cover = epoch.sent or epoch.covered
        entries = [self._book.entries[number] for number in sorted(epoch.finished)]
        thrown = [
            entry.number
            for entry in entries
            if entry.terminal in ("handled", "dead-lettered", "spooled", "moved")
            and entry.conduct != "discard"
            and (cover is None or entry.offset not in cover)
            and entry is self._book.records_of(epoch.place).by_offset.get(entry.offset)
        ]
        if thrown:
            self._blame("thrown away", f"{epoch} lets go without a commit of finished records {thrown}; last: {cover}")

    def stop_asked(self, event: acts.StopRequested) -> None:
        self._asked_at[event.member] = event.at

    def ended(self, event: acts.Ended) -> None:
        asked_at = self._asked_at.pop(event.member, None)
        if event.kind == "failed":
            self._blame("failed", f"{event.member} gave up: {self._book.members[event.member].loop.ending}")
        if asked_at is None or self._health.process_disturbed_at(event.member) >= asked_at:
            return
        if not self._answers(event.member, asked_at - SETTLED_S) or self._health.awaits_answer(event.member):
            return
        if event.kind == "deadline" and self._setup.reset == "earliest":  # asking for the end of a log takes its time
            self._blame("P6", f"{event.member} had not exited {event.at - asked_at:.2f} s after the stop request")
        elif event.kind == "stopped" and not self._is_busy(event.member):
            posted_at = self._book.members[event.member].executor.posted_at
            since = max(asked_at, posted_at, self._book.active_at.get(event.member, asked_at))
            if event.at - since > PROMPT_S:
                self._blame("P6", f"{event.member} took {event.at - since:.2f} s to stop with nothing left to wait for")

    def _is_busy(self, member: str) -> bool:
        return bool(self._book.members[member].executor.out) or any(name == member for name, _ in self._book.letters)


def _names(places: tuple[TopicPartition, ...]) -> str:
    return ", ".join(map(str, places))
