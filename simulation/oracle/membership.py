"""Rules about staying a member (P4) and about where a partition begins."""

from __future__ import annotations

from keepfast.core.ports import BEGINNING
from keepfast.core.records import TopicPartition
from keepfast.testing.fakes import trace
from keepfast.testing.fakes.world import World
from simulation.member import Member
from simulation.oracle.book import Book
from simulation.oracle.health import Health
from simulation.oracle.violation import Blame
from simulation.setup import Setup
from simulation.workload import Entry

KNOWN_S = 1.0
"""For this long after a topic was recreated a broker may answer with its old id."""

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
        """The loop calls its client, or this is checked."""
        away_s = now - member.source.left_at
        if away_s > self._away_s and self._health.process_disturbed_at(member.name) < member.source.left_at:
            self._blame("P4", f"{member.name} stayed away from its client for {away_s:.2f} s")

    def started(self, event: trace.Started | trace.Reset) -> None:
        """A partition starts somewhere: are unfinished records skipped?"""
        key = event.member, event.place
        if self._book.is_sought(event):
            return
        read, metadata = self._book.read.get(key, (None, ""))
        if event.offset in (BEGINNING, read):
            return  # by the commit; or it waits, paused, until its position is known: see `given`
        if read is not None and self._is_good(key, read, metadata):
            self._blame("start", f"{event.member} starts {event.place} at {event.offset}; its commit {read} is good")
        if not self._book.knows_topic(event.member, event.place.topic):
            return  # it will detect the recreated topic, and begin again
        skipped = [one for one in self._book.records_of(event.place).entries if one.open and one.offset < event.offset]
        if skipped and not self._book.may_skip(event):
            self._blame(
                "P1",
                f"{event.member} starts {event.place} at {event.offset}, behind record {skipped[0].number} at"
                f" {skipped[0].offset}, although this is not the first start of the group",
            )

    def _is_good(self, key: tuple[str, TopicPartition], offset: int, metadata: str) -> bool:
        """Whether a commit that was read is about a recreated topic, and all brokers have known it for long.

        Of other topics: see `given`.
        """
        topic = key[1].topic
        made_at = self._book.recreated_at.get(topic)
        if made_at is None or key in self._book.out_of_range or self._world.clock.monotonic() - made_at < KNOWN_S:
            return False
        return bool(metadata) and self._book.is_of_today(topic, metadata, offset)

    def given(self, member: str, entry: Entry) -> None:
        """The client hands a record over: from a decided start?"""
        key = (member, entry.place)
        epoch = self._book.epochs.get(key)
        if epoch is None or epoch.given or epoch.covered is not None or epoch.start != BEGINNING:
            return
        read = self._book.read.get(key)
        moved = key in self._book.out_of_range or entry.place.topic in self._book.recreated_at
        if not moved and (read is None or read[0] is not None):
            self._blame("start", f"{member} reads {entry.place} from the beginning; it read {read} as the commit")
