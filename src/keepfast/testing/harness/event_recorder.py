"""Records the engine's events of a harness: finished, retried, discarded, filtered and skipped records, and
commits.
"""

from __future__ import annotations

from collections import Counter

from keepfast.core.events import (
    Assigned,
    Committed,
    DeadLettered,
    Discarded,
    Event,
    Halted,
    Lost,
    RecordEvent,
    RetryScheduled,
    Revoked,
    RunFinished,
    Spooled,
)
from keepfast.core.records import RecordPlace, TopicPartition


class EventRecorder:
    """Implements `core.events.Observer` for a harness.

    Loops write, each about its own group; the test reads.
    """

    wants: frozenset[type[Event]] = frozenset(
        {RunFinished, RetryScheduled, Discarded, DeadLettered, Spooled, Assigned, Revoked, Lost, Committed, Halted}
    )
    keeps_errors = False

    def __init__(self) -> None:
        self.finished: set[RecordPlace] = set()
        self.discarded: set[RecordPlace] = set()
        self._dead: set[RecordPlace] = set()
        self.filtered: set[RecordPlace] = set()
        self.skipped: set[RecordPlace] = set()
        self._retries: Counter[tuple[str, RecordPlace]] = Counter()
        self.owned: dict[str, frozenset[TopicPartition]] = {}
        """By group."""
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        """The next offset to read, by group and partition."""
        self.halted: Halted | None = None

    def on_event(self, event: Event) -> None:
        match event:
            case RunFinished():
                self.finished.update(event.records)
                self.filtered.update(event.filtered)
                self.skipped.update(event.skipped)
            case RetryScheduled():
                self._retries[event.group, _place(event)] += 1
            case Discarded():
                self.discarded.add(_place(event))
            case DeadLettered() | Spooled():
                self._dead.add(_place(event))
            case Committed():
                self.committed.update({(event.group, place): offset for place, offset in event.offsets.items()})
            case Assigned():
                self.owned[event.group] = self.owned.get(event.group, frozenset()).union(event.partitions)
            case Revoked() | Lost():
                self.owned[event.group] = self.owned.get(event.group, frozenset()).difference(event.partitions)
            case Halted():
                self.halted = self.halted or event
            case _:
                pass

    def ended(self) -> set[RecordPlace]:
        """Records that have reached their terminal fact."""
        return set().union(self.finished, self.discarded, self._dead, self.filtered, self.skipped)

    def retries(self, place: RecordPlace) -> int:
        return sum(count for (_, one), count in list(self._retries.items()) if one == place)


def _place(event: RecordEvent) -> RecordPlace:
    return RecordPlace(event.topic, event.partition, event.offset)
