"""Rules about staying a member (P4) and about where a partition begins."""

from __future__ import annotations

from holdfast.core.ports import BEGINNING
from holdfast.testing.simulator import trace
from holdfast.testing.simulator.member import Member
from holdfast.testing.simulator.oracle.book import Book
from holdfast.testing.simulator.oracle.health import Health
from holdfast.testing.simulator.oracle.violation import Blame
from holdfast.testing.simulator.setup import Setup
from holdfast.testing.simulator.workload import Entry
from holdfast.testing.simulator.world import World

AWAY_S = 2.5
"""However busy a loop is, it is back in its client by then."""


class MembershipRules:
    """Looks at evictions, at the time between polls, and at what is delivered from which start."""

    def __init__(self, world: World, book: Book, blame: Blame, health: Health, setup: Setup) -> None:
        self._world = world
        self._book = book
        self._blame = blame
        self._health = health
        # Asking for the edges of a log takes up to a second each.
        self._away_s = AWAY_S + (sum(setup.partitions.values()) if setup.reset == "latest" else 0)

    def evicted(self, event: trace.Evicted) -> None:
        member = self._book.members.get(event.member)
        if event.why not in ("poll_interval", "rebalance") or member is None or not member.process.alive:
            return
        settings = self._world.broker.settings
        since = event.at - settings.max_poll_interval_s - settings.request_timeout_s
        if max(self._health.process_disturbed_at(event.member), self._health.broker_disturbed_at()) < since:
            self._blame("P4", f"{event.member} was evicted ({event.why}) although nothing held it up")

    def polls(self, member: Member, now: float) -> None:
        """The loop comes back to its client, or somebody looks whether it does."""
        away_s = now - member.source.left_at
        if away_s > self._away_s and self._health.process_disturbed_at(member.name) < member.source.left_at:
            self._blame("P4", f"{member.name} stayed away from its client for {away_s:.2f} s")

    def given(self, member: str, entry: Entry) -> None:
        """The client hands a record over: from a start that somebody decided on?"""
        key = (member, entry.place)
        epoch = self._book.epochs.get(key)
        if epoch is None or epoch.given or epoch.covered is not None or epoch.start != BEGINNING:
            return
        read = self._book.read.get(key)
        moved = key in self._book.out_of_range or entry.place.topic in self._book.made_anew
        if not moved and (read is None or read[0] is not None):
            self._blame("start", f"{member} reads {entry.place} from the beginning; it was told {read} as the commit")
