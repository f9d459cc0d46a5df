"""The desk: dead letters by cause and by case, what was done about them, and what can be done.

Page, API and command line are views of this class. Kafka has the truth: letters in dead-letter topics, facts in the
desk's topic, actions in the audit topic. The index is read from them and can be deleted.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal, TypeVar

from keepfast.core.errors import KeepfastError, SourceError
from keepfast.core.records import Record, RecordPlace
from keepfast.core.replays import DESK_TOPIC
from keepfast.desk.audit import Action, AuditEntry
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import DEFAULT_REPLAY_LIMIT, CaseHistory, CasePage, CaseState, Summary
from keepfast.desk.causes import Cause
from keepfast.desk.cluster import AUDIT_CONFIG, FACT_CONFIG, DeskCluster, is_missing
from keepfast.desk.database import Database
from keepfast.desk.facts import Fact, Gone, Mark, MarkKind, RunFact, fact_of, fact_record
from keepfast.desk.index import Index
from keepfast.desk.index_writer import IndexWriter
from keepfast.desk.letters import Span, StoredLetter
from keepfast.kafka.config import Connection

BATCH: Final = 2_000
MAX_AUDIT: Final = 10_000
"""Entries of the audit topic that are read at once."""
EVERYTHING: Final = CaseFilter()
_ACTIONS: Final[dict[MarkKind, Action]] = {
    "discarded": "discard",
    "permanently-failed": "fail",
    "archived": "archive",
    "restored": "restore",
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskOptions:
    """`by`: who acts, for the audit. `index_dir` None: the index is in memory."""

    topics: tuple[str, ...]
    """The dead-letter topics."""
    by: str
    desk_topic: str = DESK_TOPIC
    replay_limit: int = DEFAULT_REPLAY_LIMIT
    index_dir: Path | None = None
    via: Literal["command", "page", "api"] = "command"

    @property
    def audit_topic(self) -> str:
        return f"{self.desk_topic}.audit"


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What the last look at Kafka has found: new letters, new facts, and topics that do not exist."""

    letters: int = 0
    facts: int = 0
    missing: tuple[str, ...] = field(default=())


class Desk:
    """Any thread may call it. Methods block while they wait for Kafka, and raise SourceError or SinkError; questions
    about causes and cases are answered from the index, as of the last `refresh`.
    """

    def __init__(self, connection: Connection, options: DeskOptions, *, wall: Callable[[], float] = time.time) -> None:
        self.options = options
        self.cluster = DeskCluster(connection)
        self._wall = wall
        self._refreshing = threading.Lock()
        self._database = Database(_index_path(connection, options))
        self._writer = IndexWriter(self._database)
        self.index = Index(self._database, replay_limit=options.replay_limit)

    def close(self) -> None:
        self.cluster.close()
        self._database.close()

    def acting_as(self, by: str, via: Literal["command", "page", "api"]) -> Desk:
        """The same desk for another person: clients and index are shared."""
        other = object.__new__(Desk)
        other.__dict__.update(self.__dict__)
        other.options = replace(self.options, by=by, via=via)
        return other

    def now_ms(self) -> int:
        return round(self._wall() * 1000)

    # -- reading

    def refresh(self, progress: Callable[[int], None] = lambda _: None) -> Refreshed:
        """Read what is new. `progress` is called with the number of letters read so far. Facts come first: a letter of
        a replay is recognised by them.
        """
        with self._refreshing:
            facts = self._read_facts()
            count, missing = 0, []
            for topic in self.options.topics:
                found = self._read_topic(topic, StoredLetter.of, self._writer.add_letters, self._writer.forget_topic)
                if found is None:
                    missing.append(topic)
                    continue
                for some in found:
                    count += some
                    progress(count)
            return Refreshed(count, facts, tuple(missing))

    def refresh_facts(self) -> None:
        """Read what is new in the desk's topic alone."""
        with self._refreshing:
            self._read_facts()

    def summary(self, where: CaseFilter = EVERYTHING) -> Summary:
        return self.index.summary(self.own(where))

    def causes(self, where: CaseFilter = EVERYTHING) -> list[Cause]:
        """Those with most unresolved cases first."""
        return self.index.causes(self.own(where), now_ms=self.now_ms())

    def cases(self, where: CaseFilter = EVERYTHING, *, first: int = 0, size: int = 100) -> CasePage:
        """Those that failed last first."""
        return self.index.cases(self.own(where), first=first, size=size)

    def case(self, case: str) -> CaseHistory | None:
        """By its id; None if there is none."""
        return self.index.history(case)

    def case_at(self, place: RecordPlace) -> CaseHistory | None:
        """The case of the letter at this place of a dead-letter topic."""
        found = self.index.case_at(place)
        return None if found is None else self.index.history(found)

    def letter(self, place: RecordPlace) -> StoredLetter | None:
        """One letter with its payload, read from Kafka now; None if it is not there any more."""
        record = self.cluster.record_at(place)
        return None if record is None else StoredLetter.of(record)

    def runs(self) -> list[RunFact]:
        """The latest first."""
        return [run for run in self.index.runs() if run.topic in self.options.topics]

    def audit(self, limit: int = 200) -> list[AuditEntry]:
        """The latest first."""
        topic = self.options.audit_topic
        if self.cluster.topics([topic])[topic] is None:
            return []
        spans = {
            partition: (max(low, high - MAX_AUDIT), high)
            for partition, (low, high) in self.cluster.spans(topic).items()
        }
        found = [AuditEntry.of(record) for record in self.cluster.read(topic, spans)]
        return sorted((one for one in found if one is not None), key=lambda one: -one.at_ms)[:limit]

    # -- acting

    def mark(self, cases: Collection[str], kind: MarkKind, *, why: str = "", note: str = "", url: str = "") -> int:
        """Mark these cases, and note it in the audit. Returns how many were marked: those that can be.

        Only open cases can be discarded, archived or marked as permanently failed, and only marked ones restored.
        Raises KeepfastError if a reason is missing for `permanently-failed`.
        """
        if kind == "permanently-failed" and not why:
            raise KeepfastError("Marking as permanently failed needs a reason.")
        self.refresh_facts()
        states, at_ms = self.index.states(cases), self.now_ms()
        allowed = _MARKABLE if kind != "restored" else _RESTORABLE
        chosen = [case for case in cases if states.get(case) in allowed]
        marks = [
            Mark(case=case, kind=kind, by=self.options.by, at_ms=at_ms, why=why, note=note, url=url) for case in chosen
        ]
        self.write_facts(marks)
        self.note_action(
            _ACTIONS[kind], count=len(chosen), why=why, what=_some(chosen), details={"url": url} if url else {}
        )
        self.refresh_facts()
        return len(chosen)

    def note(self, case: str, text: str) -> None:
        """Leave a note at a case; its state does not change."""
        found = self.index.history(case)
        if found is None:
            raise KeepfastError(f"There is no case {case}.")
        before = found.mark
        kind: MarkKind = before.kind if before is not None else "restored"
        mark = Mark(case=case, kind=kind, by=self.options.by, at_ms=self.now_ms(), note=text)
        if before is not None:
            mark = replace(mark, why=before.why, url=before.url)
        self.write_facts([mark])
        self.note_action("note", count=1, what=case)
        self.refresh_facts()

    def reveal(self, place: RecordPlace) -> StoredLetter | None:
        """One letter, to be shown with its values; this is noted in the audit first."""
        self.note_action("reveal", topic=place.topic, count=1, what=f"{place.partition}:{place.offset}")
        return self.letter(place)

    def note_action(
        self,
        action: Action,
        *,
        topic: str = "",
        count: int = 0,
        why: str = "",
        what: str = "",
        result: str = "done",
        details: dict[str, object] | None = None,
    ) -> None:
        """Write to the audit topic. Raises SinkError or SourceError: what cannot be audited is not done."""
        entry = AuditEntry(
            at_ms=self.now_ms(),
            by=self.options.by,
            action=action,
            topic=topic or ", ".join(self.options.topics[:5]),
            count=count,
            why=why,
            what=what,
            result=result,
            via=self.options.via,
            details=details or {},
        )
        self.ensure_topics()
        self.cluster.write([entry.record(self.options.audit_topic)])

    def write_facts(self, facts: Iterable[Fact]) -> None:
        self.ensure_topics()
        self.cluster.write(fact_record(self.options.desk_topic, fact) for fact in facts)

    def ensure_topics(self) -> bool:
        """Create the desk's topic and the audit topic where they are missing. Whether the first was created now."""
        desk_topic, audit_topic = self.options.desk_topic, self.options.audit_topic
        found = self.cluster.topics([desk_topic, audit_topic])
        if found[audit_topic] is None:
            self.cluster.create(audit_topic, config=AUDIT_CONFIG)
        return found[desk_topic] is None and self.cluster.create(desk_topic, config=FACT_CONFIG)

    # -- from Kafka into the index

    def own(self, where: CaseFilter) -> CaseFilter:
        """The filter, bounded to the topics of this desk."""
        return where if where.dlqs else replace(where, dlqs=frozenset(self.options.topics))

    def _read_facts(self) -> int:
        def add(facts: Sequence[Fact | Gone | None], **position: object) -> None:
            self._writer.add_facts([fact for fact in facts if fact is not None], **position)  # type: ignore[arg-type]

        found = self._read_topic(self.options.desk_topic, fact_of, add, self._writer.forget_facts)
        return sum(found) if found is not None else 0

    def _read_topic(
        self,
        topic: str,
        parse: Callable[[Record], T],
        add: Callable[..., None],
        forget: Callable[[str], None],
    ) -> Iterator[int] | None:
        """Read what is new of a topic; yields how many records each step has read. None if there is no such topic."""
        facts = self.cluster.topics([topic])[topic]
        if facts is None:
            return None
        try:
            spans = self.cluster.spans(topic)
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
        for record in self.cluster.read(topic, spans):
            some.append(parse(record))
            ends[record.partition] = record.offset + 1
            if len(some) >= BATCH:
                add(some, ends)
                yield len(some)
                some, ends = [], {}
        add(some, {partition: high for partition, (_, high) in spans.items()})
        yield len(some)


_MARKABLE: Final = (CaseState.OPEN, CaseState.REPLAYING)
_RESTORABLE: Final = (CaseState.DISCARDED, CaseState.PERMANENTLY_FAILED, CaseState.ARCHIVED)


def _some(cases: Sequence[str]) -> str:
    more = f" and {len(cases) - 3} more" if len(cases) > 3 else ""
    return ", ".join(cases[:3]) + more


def _index_path(connection: Connection, options: DeskOptions) -> Path | None:
    """One file for each cluster and choice of topics."""
    if options.index_dir is None:
        return None
    parts = (*connection.brokers, options.desk_topic, *options.topics)
    name = blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
    return options.index_dir / f"{name}.sqlite"


def default_index_dir() -> Path:
    """In the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "keepfast" / "desk"
