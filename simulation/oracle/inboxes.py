"""The rule about inboxes (P14): a record that is committed has had its effect, once; `SimDatabase` reports a second."""

from __future__ import annotations

from keepfast.core.records import TopicPartition
from keepfast.testing.fakes.broker import FakeBroker
from simulation.oracle.book import Book
from simulation.oracle.cover import Cover
from simulation.setup import GROUP, Setup
from simulation.variants.inboxes import SimDatabase


class InboxRules:
    """Looks at what the group has committed in the end."""

    def __init__(self, broker: FakeBroker, book: Book, database: SimDatabase, setup: Setup) -> None:
        self._broker = broker
        self._book = book
        self._database = database
        self._on = setup.inbox

    def unfinished(self) -> list[str]:
        """Records that the group has committed, and that have had no effect."""
        if not self._on:
            return []
        found = []
        for entry in self._book.entries:
            stored = self._broker.stored(GROUP, TopicPartition(*entry.place))
            committed = stored is not None and entry.offset in Cover(stored.offset, stored.metadata)
            if committed and not entry.excused and not self._database.effects[entry.number]:
                found.append(f"record {entry.number} is committed and has had no effect")
        return found
