"""From Kafka into the index: what is new in the desk's topic and in dead-letter topics; and letters by their place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from keepfast.core.errors import SourceError, SpoolError
from keepfast.core.records import SPOOL_PARTITION, Record
from keepfast.desk.cluster import DeskCluster, is_missing
from keepfast.desk.facts import Fact, Gone, fact_of
from keepfast.desk.index_writer import IndexWriter
from keepfast.desk.letters import Span, StoredLetter
from keepfast.desk.spooled import DeskSpool

BATCH: Final = 2_000
SPOOL_S: Final = 2.0
"""The spool is not looked at more often."""
GAP: Final = 1_000
"""Letters that are no further apart are read in one go."""
T = TypeVar("T")


class DeskReader:
    """Any thread may call it; one reads at a time. Raises SourceError."""

    def __init__(
        self, cluster: DeskCluster, writer: IndexWriter, desk_topic: str, spool: DeskSpool | None = None
    ) -> None:
        self._cluster = cluster
        self._writer = writer
        self._desk_topic = desk_topic
        self._spool = spool
        self._spool_at = float("-inf")
        self._spool_problem = ""
        self._reading = threading.Lock()

    def read(self, dlqs: Sequence[str], progress: Callable[[int], None]) -> tuple[int, int, list[str]]:
        """Read what is new. Facts first: a letter of a replay is recognised by them at once. Returns how many letters
        and facts there were, and the topics that do not exist.
        """
        with self._reading:
            facts, count, missing = self._read_facts(lambda: progress(0)), 0, list[str]()
            for topic in dlqs:
                found = self._read_topic(topic, self._letter, self._writer.add_letters, self._writer.forget_topic)
                if found is None:
                    missing.append(topic)
                for some in found or ():
                    count += some
                    progress(count)
            return count, facts, missing

    def read_facts(self) -> None:
        """Read what is new in the desk's topic alone."""
        with self._reading:
            self._read_facts()

    def letters_at(self, dlq: str, places: Mapping[int, Sequence[int]]) -> dict[tuple[int, int], Record]:
        """Letters by partition and offset; those that are gone are left out. Raises SpoolError, too."""
        found: dict[tuple[int, int], Record] = {}
        if self._spool is not None and SPOOL_PARTITION in places:
            for record in self._spool.records(dlq, places[SPOOL_PARTITION]):
                found[record.partition, record.offset] = record
        spans = self._cluster.spans(dlq) if set(places) - {SPOOL_PARTITION} else {}
        for step in _ranges(places, spans):
            for record in self._cluster.read(dlq, step):
                if record.offset in places[record.partition]:
                    found[record.partition, record.offset] = record
        return found

    def read_spool(self, dlqs: Sequence[str]) -> str:
        """Look at the spool, before its letters may be published and read there; not more often than it makes sense.
        Returns why it cannot be read: the letters of the last look stay then.
        """
        with self._reading:
            if self._spool is None or time.monotonic() - self._spool_at < SPOOL_S:
                return self._spool_problem
            self._spool_at = time.monotonic()
            try:
                there, new = self._spool.look(dlqs, self._writer.spooled(dlqs))
            except SpoolError as error:
                self._spool_problem = str(error)
            else:
                self._spool_problem = ""
                self._writer.set_spooled(dlqs, there, new)
            return self._spool_problem

    def _letter(self, record: Record) -> StoredLetter:
        return StoredLetter.of(record, self._writer.diagnosed)

    def _read_facts(self, progress: Callable[[], None] = lambda: None) -> int:
        def add(facts: Sequence[Fact | Gone | None], **position: object) -> None:
            self._writer.add_facts([fact for fact in facts if fact is not None], **position)  # type: ignore[arg-type]

        found = self._read_topic(self._desk_topic, fact_of, add, self._writer.forget_facts)
        count = 0
        for some in found or ():
            count += some
            if some == BATCH:
                progress()
        return count

    def _read_topic(
        self,
        topic: str,
        parse: Callable[[Record], T],
        add: Callable[..., None],
        forget: Callable[[str], None],
    ) -> Iterator[int] | None:
        """Read what is new of a topic; yields how many records each step has read. None if there is no such topic."""
        facts = self._cluster.topics([topic])[topic]
        if facts is None:
            return None
        try:
            spans = self._cluster.spans(topic)
        except SourceError as error:
            if is_missing(error):
                return None
            raise
        topic_id, known = facts.topic_id or "", self._writer.positions(topic)
        if any(known_id != topic_id or offset > spans.get(at, (0, 0))[1] for at, (known_id, offset) in known.items()):
            forget(topic)
            known = {}
        for partition, (low, _) in spans.items():
            if low > 0 and partition in known:
                self._writer.forget_below(topic, partition, low)
        left = {at: (max(low, known[at][1]) if at in known else low, high) for at, (low, high) in spans.items()}
        return self._read_rest(
            topic, left, parse, lambda some, ends: add(some, topic=topic, topic_id=topic_id, ends=ends)
        )

    def _read_rest(
        self,
        topic: str,
        spans: dict[int, Span],
        parse: Callable[[Record], T],
        add: Callable[[Sequence[T], dict[int, int]], None],
    ) -> Iterator[int]:
        some: list[T] = []
        ends: dict[int, int] = {}
        for record in self._cluster.read(topic, spans):
            some.append(parse(record))
            ends[record.partition] = record.offset + 1
            if len(some) >= BATCH:
                add(some, ends)
                yield len(some)
                some, ends = [], {}
        add(some, {partition: high for partition, (_, high) in spans.items()})
        yield len(some)


def _ranges(places: Mapping[int, Sequence[int]], spans: Mapping[int, Span]) -> Iterator[dict[int, Span]]:
    """The spans to read, as few as possible; in each step one of each partition."""
    left: list[list[tuple[int, Span]]] = []
    for partition, offsets in places.items():
        low, high = spans.get(partition, (0, 0))
        own: list[tuple[int, Span]] = []
        for offset in sorted(one for one in offsets if low <= one < high):
            if own and offset - own[-1][1][1] < GAP:
                own[-1] = partition, (own[-1][1][0], offset + 1)
            else:
                own.append((partition, (offset, offset + 1)))
        left.append(own)
    for number in range(max(map(len, left), default=0)):
        yield dict(own[number] for own in left if number < len(own))
