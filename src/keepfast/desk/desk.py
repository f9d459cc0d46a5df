"""The desk: dead letters by cause and by case, what was done about them, and what can be done.

Page, API and command line are views of this class. Kafka has the truth: letters in dead-letter topics, facts in the
desk's topic, actions in the audit topic. The index is read from them and can be deleted.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal

from keepfast.core.errors import ConfigError, Fault, KeepfastError, PortError, SourceError
from keepfast.core.records import SPOOL_PARTITION, Record, RecordPlace
from keepfast.core.replays import DESK_TOPIC, replay_topic
from keepfast.core.retry_topics import KEPT_S, left_over
from keepfast.desk.audit import Action, AuditedAction, AuditEntry, log_lost
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import DEFAULT_REPLAY_LIMIT, CaseHistory, CasePage, CaseState, Summary
from keepfast.desk.causes import Cause
from keepfast.desk.cluster import AUDIT_CONFIG, FACT_CONFIG, DeskCluster
from keepfast.desk.database import Database
from keepfast.desk.facts import (
    Fact,
    Mark,
    MarkKind,
    OrderKind,
    RunFact,
    RunOrder,
    Sent,
    chunks_of,
    fact_record,
    tombstone_record,
)
from keepfast.desk.index import Index
from keepfast.desk.index_writer import IndexWriter
from keepfast.desk.letters import StoredLetter
from keepfast.desk.plan import Planner, ReplayPlan, ReplayPolicy, later_records, other_readers
from keepfast.desk.reader import DeskReader
from keepfast.desk.run import ReplayRun, RunProgress, Transform, is_alive, record_of, transformed
from keepfast.desk.spooled import DeskSpool
from keepfast.kafka.config import Connection
from keepfast.kafka.transactional_sink import TransactionalSink, transaction_properties

MAX_AUDIT: Final = 10_000
"""Entries of the audit topic that are read at once."""
UNREPORTED_MS: Final = 30_000
"""So long after a record was sent its outcome should be there."""
NOTICED_S: Final = 7.0
"""Consumers look for the desk's topic this often, at least, where there are letters."""
LETTERS_NOTICED_S: Final = 40.0
"""So long after the first letter each consumer knows that there are letters, and has looked for the desk's topic."""
EVERYTHING: Final = CaseFilter()
EDITED: Final = "edited by hand"
"""In place of the name of a transform."""
_ACTIONS: Final[dict[MarkKind, Action]] = {
    "discarded": "discard",
    "permanently-failed": "fail",
    "archived": "archive",
    "restored": "restore",
}
PURGED: Final = (CaseState.RESOLVED, CaseState.ARCHIVED)


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
    """What the last look at Kafka has found: new letters, new facts, topics that do not exist, and why the spool cannot
    be read.
    """

    letters: int = 0
    facts: int = 0
    missing: tuple[str, ...] = field(default=())
    spool_problem: str = ""


class Desk:
    """Any thread may call it. Methods block while they wait for Kafka, and raise SourceError or SinkError; questions
    about causes and cases are answered from the index, as of the last `refresh`.
    """

    def __init__(
        self,
        connection: Connection,
        options: DeskOptions,
        *,
        spool: DeskSpool | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.options = options
        self.cluster = DeskCluster(connection)
        self._wall = wall
        self._not_before: float | None = None
        self._database = Database(_index_path(connection, options))
        self._writer = IndexWriter(self._database)
        self._reader = DeskReader(self.cluster, self._writer, options.desk_topic, spool)
        self.letters_at = self._reader.letters_at
        self.index = Index(self._database, replay_limit=options.replay_limit)

    def close(self) -> None:
        self.cluster.close()
        self._database.close()

    def acting_as(self, by: str, via: Literal["command", "page", "api"]) -> Desk:
        """The same desk for another person: clients and index are shared."""
        other = copy(self)
        other.options = replace(self.options, by=by, via=via)
        return other

    def read_topics(self, topics: Sequence[str]) -> None:
        """These are its dead-letter topics from now on."""
        self.options = replace(self.options, topics=tuple(topics))

    def now_ms(self) -> int:
        return round(self._wall() * 1000)

    # -- reading

    def refresh(self, progress: Callable[[int], None] = lambda _: None) -> Refreshed:
        """Read what is new. `progress` is called with the number of letters read so far. Facts come first: a letter of
        a replay is recognised by them.
        """
        spool_problem = self._reader.read_spool(self.options.topics)
        letters, facts, missing = self._reader.read(self.options.topics, progress)
        return Refreshed(letters, facts, tuple(missing), spool_problem)

    def refresh_facts(self) -> None:
        """Read what is new in the desk's topic alone."""
        self._reader.read_facts()

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
        record = (
            self.letters_at(place.topic, {place.partition: [place.offset]}).get((place.partition, place.offset))
            if place.partition == SPOOL_PARTITION
            else self.cluster.record_at(place)
        )
        return None if record is None else StoredLetter.of(record)

    def runs(self) -> list[RunFact]:
        """The latest first."""
        return [run for run in self.index.runs() if run.topic in self.options.topics]

    def audit(self, limit: int = 200) -> list[AuditEntry]:
        """The latest first."""
        return sorted(self._audit_entries(MAX_AUDIT), key=lambda one: -one.at_ms)[:limit]

    def has_archived(self, name: str, value: str) -> bool:
        """Return True if the audit, read whole, has an archiving whose details have this value under this name."""
        return any(
            entry.action == "archive" and entry.details.get(name) == value for entry in self._audit_entries(None)
        )

    def _audit_entries(self, limit: int | None) -> list[AuditEntry]:
        """The last entries of each partition of the audit topic."""
        topic = self.options.audit_topic
        if self.cluster.topics([topic])[topic] is None:
            return []
        spans = {
            partition: (low if limit is None else max(low, high - limit), high)
            for partition, (low, high) in self.cluster.spans(topic).items()
        }
        found = [AuditEntry.of(record) for record in self.cluster.read(topic, spans)]
        return [one for one in found if one is not None]

    # -- acting

    def mark(
        self,
        cases: Collection[str],
        kind: MarkKind,
        *,
        why: str = "",
        note: str = "",
        url: str = "",
        details: Mapping[str, object] | None = None,
    ) -> int:
        """Mark these cases, which is audited. Returns how many were marked: those that can be. Without `note`,
        a case keeps the one it has. `url` has no credentials, `details` are for the audit.

        Only open cases can be discarded, archived or marked as permanently failed, and only marked ones restored.
        Raises KeepfastError if a reason is missing for `permanently-failed`.
        """
        if kind == "permanently-failed" and not why:
            raise KeepfastError("Marking as permanently failed needs a reason.")
        marks = self.marks_of(cases, kind, why=why, note=note, url=url)
        about = {"url": url, **(details or {})} if url else details
        some = _some([mark.case for mark in marks])
        with self.audited(_ACTIONS[kind], count=len(marks), why=why, what=some, details=about) as audited:
            audited.done = "some of them may be marked"
            self.write_facts(marks)
        self.refresh_facts()
        return len(marks)

    def marks_of(
        self, cases: Collection[str], kind: MarkKind, *, why: str = "", note: str = "", url: str = ""
    ) -> list[Mark]:
        """The marks of those of these cases that can be marked so now. Writes nothing."""
        self.refresh_facts()
        states, at_ms = self.index.states(cases), self.now_ms()
        allowed = _MARKABLE if kind != "restored" else _RESTORABLE
        chosen = [case for case in cases if states.get(case) in allowed]
        notes = {} if note else self.index.notes()
        mark = Mark(case="", kind=kind, by=self.options.by, at_ms=at_ms, why=why, note=note, url=url)
        return [replace(mark, case=case, note=notes.get(case, note)) for case in chosen]

    def note(self, case: str, text: str) -> None:
        """Leave a note at a case; its state does not change."""
        found = self.index.history(case)
        if found is None:
            raise KeepfastError(f"There is no case {case}.")
        new = Mark(case=case, kind="restored", by=self.options.by, at_ms=self.now_ms(), note=text)
        with self.audited("note", count=1, what=case):
            self.write_facts([new if found.mark is None else replace(found.mark, note=text)])
        self.refresh_facts()

    def reveal(self, place: RecordPlace) -> StoredLetter | None:
        """One letter, to be shown with its values; this is noted in the audit first."""
        self.note_action("reveal", topic=place.topic, count=1, what=place.name)
        return self.letter(place)

    @contextmanager
    def audited(self, action: Action, **about: Any) -> Iterator[AuditedAction]:
        """Audit what the block does, once: when it has ended, with its result, or with its error and what was done
        before. `about`: as of `note_action`; the block may change the count and add details.

        Raises SourceError, and does nothing, if the audit topic cannot be reached or this user may not write to it.
        Raises SinkError if the entry is refused afterwards. It is in the log then (`audit_not_written`).
        """
        self.ensure_topics()
        self.cluster.refuse_unwritable(self.options.audit_topic)
        audited = AuditedAction(count=about.pop("count", 0), details=dict(about.pop("details", None) or {}))
        try:
            yield audited
        except BaseException as error:
            failed = f"failed: {type(error).__name__}" + (f"; {audited.done}" if audited.done else "")
            with suppress(PortError):  # logged; the caller gets the error of the action
                self._note_ended(action, audited, failed, **about)
            raise
        self._note_ended(action, audited, audited.result, **about)

    def _note_ended(self, action: Action, audited: AuditedAction, result: str, **about: Any) -> None:
        entry = self._entry(action, result=result, count=audited.count, details=audited.details, **about)
        try:
            self._write_entry(entry)
        except PortError as error:
            log_lost(entry, str(error))
            raise

    def note_action(
        self,
        action: Action,
        *,
        topic: str = "",
        count: int = 0,
        why: str = "",
        what: str = "",
        result: str = "done",
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Write to the audit topic. Raises SinkError or SourceError."""
        self._write_entry(
            self._entry(action, topic=topic, count=count, why=why, what=what, result=result, details=details)
        )

    def _entry(
        self,
        action: Action,
        *,
        topic: str = "",
        count: int = 0,
        why: str = "",
        what: str = "",
        result: str = "done",
        details: Mapping[str, object] | None = None,
    ) -> AuditEntry:
        return AuditEntry(
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

    def _write_entry(self, entry: AuditEntry) -> None:
        self.ensure_topics()
        self.cluster.write([entry.record(self.options.audit_topic)])

    def write_facts(self, facts: Iterable[Fact]) -> None:
        self.ensure_topics()
        self.cluster.write(fact_record(self.options.desk_topic, fact) for fact in facts)

    def purge(self, states: Collection[CaseState] = PURGED, *, why: str = "") -> dict[str, int]:
        """Delete the letters of cases in these states for good: of each partition all up to the first of another case.
        Facts about cases whose letters are gone are deleted, too. Returns how many offsets of each topic were deleted.
        The audit has these numbers, also if it fails at a later topic.
        """
        self.refresh()
        done: dict[str, int] = {}
        with self.audited("purge", why=why, what=", ".join(sorted(states))) as audited:
            for topic in self.options.topics:
                ends = self.purgeable(topic, states)
                if ends:
                    spans = self.cluster.spans(topic)
                    count = sum(end - spans[partition][0] for partition, end in ends.items())
                    audited.done = f"deleted before: {_counts(done)}; not known: {topic}"
                    self.cluster.delete_below(topic, ends)
                    done[topic] = count
                    audited.count = sum(done.values())
                    audited.done, audited.details["deleted"] = f"deleted before: {_counts(done)}", dict(done)
        self.refresh()
        keys = self.index.facts_without_letters()
        self.cluster.write(tombstone_record(self.options.desk_topic, key) for key in keys)
        self.refresh_facts()
        return done

    def purgeable(self, topic: str, states: Collection[CaseState] = PURGED) -> dict[int, int]:
        """By partition: the offset up to which all letters may be deleted; partitions without any are left out."""
        spans = self.cluster.spans(topic)
        firsts = self.index.first_letters(topic, [state for state in CaseState if state not in states])
        ends = {partition: firsts.get(partition, high) for partition, (_, high) in spans.items()}
        return {partition: end for partition, end in ends.items() if end > spans[partition][0]}

    def purgeable_letters(self, topic: str, states: Collection[CaseState] = PURGED) -> int:
        """How many letters that is."""
        spans = self.cluster.spans(topic)
        return sum(end - spans[partition][0] for partition, end in self.purgeable(topic, states).items())

    def ensure_topics(self) -> bool:
        """Create the desk's topic and the audit topic where they are missing. Whether the first was created now."""
        desk_topic, audit_topic = self.options.desk_topic, self.options.audit_topic
        found = self.cluster.topics([desk_topic, audit_topic])
        if found[audit_topic] is None:
            self.cluster.create(audit_topic, config=AUDIT_CONFIG)
        return found[desk_topic] is None and self.cluster.create(desk_topic, config=FACT_CONFIG)

    def _age_s(self) -> float:
        """How long ago the first action was noted, which is when the desk's topics were made; infinite if none was, or
        if consumers have reported outcomes since.
        """
        if any(self.index.succeeded(run.run) for run in self.index.runs()):
            return float("inf")
        try:
            first = self.cluster.record_at(RecordPlace(self.options.audit_topic, 0, 0))
        except SourceError as error:
            if error.fault is not Fault.MISSING:
                raise
            first = None  # the topic was made just now, and its broker does not know it yet
        made_ms = None if first is None else first.timestamp_ms
        return float("inf") if made_ms is None else max(0.0, (self.now_ms() - made_ms) / 1000)

    # -- replaying

    def plan(self, where: CaseFilter, policy: ReplayPolicy, *, look_for_later: bool = True) -> ReplayPlan:
        """What a replay of these cases would do. Sends nothing. Raises ConfigError if several topics are meant."""
        where = self.own(where)
        if len(where.dlqs) != 1:
            raise ConfigError(f"A replay is about one dead-letter topic; name one of {', '.join(sorted(where.dlqs))}.")
        [dlq] = where.dlqs
        planner = Planner(dlq, policy, self._partitions_of)
        for case in self.index.selected(where):
            planner.add(case)
        items = tuple(planner.items())
        readers, known = other_readers(self.cluster, planner, policy)
        later, partial = (
            later_records(self.cluster, planner) if look_for_later and items and not policy.topic else (None, False)
        )
        return ReplayPlan(
            dlq=dlq,
            where=where,
            policy=policy,
            items=items,
            cases=sum(len(item.cases) for item in items),
            destinations=dict(planner.destinations),
            excluded=dict(planner.excluded),
            groups=frozenset(planner.groups),
            other_readers=readers,
            readers_known=known,
            later=later,
            later_partial=partial,
            unreported=sum(not case.group for case in planner.chosen),
        )

    def preview(self, plan: ReplayPlan, transform: Transform, count: int = 3) -> list[tuple[Record, Record | None]]:
        """The first records of a plan, each as it was and as the transform makes it; None: left out. Raises
        TransformError.
        """
        shown = []
        for item in plan.items[:count]:
            place = RecordPlace(plan.dlq, item.partition, item.offset)
            stored = self.letter(place)
            if stored is not None:
                record = record_of(stored.letter)
                shown.append((record, transformed(transform, record, place)))
        return shown

    def start(self, plan: ReplayPlan, *, why: str = "", action: Action = "replay") -> RunFact:
        """Write the plan to the desk's topic. `replayer` sends it. Raises ConfigError if nothing is to be sent, a
        choice is missing, or another run of this topic is active.
        """
        if not plan.items:
            raise ConfigError("Nothing to replay.")
        if plan.must_choose:
            raise ConfigError(plan.choice)
        self.refresh_facts()
        self._refuse_another_run(plan.dlq)
        age_s = 0.0 if self.ensure_topics() else self._age_s()
        wait_s = self._unnoticed_s(plan) - age_s
        if wait_s > 0 and any(self.cluster.has_members(group) for group in plan.groups):
            self._not_before = time.monotonic() + wait_s
        self._create_replay_topics(plan)
        at_ms = self.now_ms()
        run = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(at_ms / 1000))}-{secrets.token_hex(3)}"
        chunks = list(chunks_of(run, plan.items))
        fact = RunFact(
            run=run,
            topic=plan.dlq,
            by=self.options.by,
            at_ms=at_ms,
            status="running",
            updated_ms=at_ms,
            total=len(plan.items),
            chunks=len(chunks),
            selection=" ".join(plan.where.words())[:1_000],
            policy=plan.policy.fields(),
        )
        details = {"policy": fact.policy, "selection": fact.selection}
        with self.audited(action, topic=plan.dlq, count=plan.records, why=why, what=run, details=details):
            self.write_facts(chunks)
            self.write_facts([fact])
        return fact

    def replayer(
        self,
        fact: RunFact,
        *,
        transform: Transform | None = None,
        progress: Callable[[RunProgress], None] = lambda _: None,
    ) -> ReplayRun:
        """What sends the records of a run, from where it stands: call its `execute`."""
        properties = transaction_properties(self.cluster.connection, f"keepfast-replay-{fact.topic}")
        return ReplayRun(
            self,
            fact,
            TransactionalSink(properties),
            desk_topic=self.options.desk_topic,
            transform=transform,
            progress=progress,
            partitions_of=self._partitions_of,
            not_before=self._not_before,
        )

    def resume(self, run: str) -> RunFact:
        """A run that did not end, to be continued with `replayer`. Raises ConfigError."""
        self.refresh_facts()
        fact = self.index.run(run)
        if fact is None:
            raise ConfigError(f"There is no run {run}. `keepfast dlq runs` lists them.")
        if fact.status in ("done", "cancelled"):
            raise ConfigError(f"The run {run} is {fact.status}.")
        self._refuse_another_run(fact.topic)
        with self.audited("resume", topic=fact.topic, what=run):
            self.write_facts([RunOrder(run=run, kind="resume", by=self.options.by, at_ms=self.now_ms())])
        return fact

    def is_alive(self, run: str) -> bool:
        """Whether a process executes this run."""
        fact = self.index.run(run)
        return fact is not None and is_alive(fact, self.now_ms())

    def order(self, run: str, kind: OrderKind) -> None:
        """Ask a run to pause, to resume or to cancel, wherever it is. Raises ConfigError."""
        self.refresh_facts()
        fact = self.index.run(run)
        if fact is None or fact.status in ("done", "cancelled"):
            raise ConfigError(f"There is no run {run} to {kind}.")
        with self.audited(kind, topic=fact.topic, what=run):
            self.write_facts([RunOrder(run=run, kind=kind, by=self.options.by, at_ms=self.now_ms())])
            if kind == "cancel" and not is_alive(fact, self.now_ms()):
                self.write_facts([fact.now("cancelled", self.now_ms(), sent=fact.sent, skipped=fact.skipped)])
        self.refresh_facts()

    def start_edited(self, case: str, policy: ReplayPolicy, *, why: str = "") -> RunFact:
        """The run that sends one record with other key, value or headers, as a replay of its case: `replayer` gets them
        as its transform, without which the run cannot be resumed. Raises ConfigError.
        """
        found = self.index.history(case)
        if found is None:
            raise ConfigError(f"There is no case {case}.")
        where = CaseFilter(dlqs=frozenset([found.case.letter.topic]), cases=frozenset([case]))
        plan = self.plan(where, replace(policy, transform=EDITED), look_for_later=False)
        if not plan.items:
            raise ConfigError(f"It cannot be sent: {'; '.join(plan.excluded)}.")
        return self.start(plan, why=why, action="edit")

    def edit_and_send(self, case: str, edited: Record, policy: ReplayPolicy, *, why: str = "") -> RunFact:
        """Send one record with other key, value or headers. Blocks until it is sent."""
        return self.replayer(self.start_edited(case, policy, why=why), transform=lambda _: edited).execute()

    def infer_outcomes(self) -> int:
        """Find records whose group has committed past them without a letter and without an outcome: groups of other
        programs report none. Returns how many. Not for groups with retry topics, whose records may still wait.
        """
        waiting: dict[str, list[Sent]] = {}
        now_ms = self.now_ms()
        for group, sent in self.index.unreported():
            if group and now_ms - sent.at_ms > UNREPORTED_MS:
                waiting.setdefault(group, []).append(sent)
        names = self.cluster.names() if waiting else set()
        passed = []
        for group, sends in waiting.items():
            topics = {sent.topic for sent in sends}
            if any(left_over(names, topic, group, ()) for topic in topics):
                continue
            places = {(sent.topic, sent.partition or 0) for sent in sends}
            committed = self.cluster.committed(group, sorted(places))
            for sent in sends:
                offset = committed.get((sent.topic, sent.partition or 0))
                if offset is not None and sent.offset is not None and offset > sent.offset:
                    passed.append((sent.case, sent.run))
        if passed:
            self._writer.mark_passed(passed)
        return len(passed)

    def _unnoticed_s(self, plan: ReplayPlan) -> float:
        """How long it may take until all consumers have noticed the desk's topic, which is new."""
        oldest_ms = self.summary(CaseFilter(dlqs=frozenset([plan.dlq]))).oldest_ms
        age_s = 0.0 if oldest_ms is None else (self.now_ms() - oldest_ms) / 1000
        return max(NOTICED_S, LETTERS_NOTICED_S - max(0.0, age_s))

    def _partitions_of(self, topic: str) -> int | None:
        facts = self.cluster.topics([topic])[topic]
        return None if facts is None else facts.partitions

    def _refuse_another_run(self, dlq: str) -> None:
        now_ms = self.now_ms()
        busy = next((run for run in self.index.runs() if run.topic == dlq and is_alive(run, now_ms)), None)
        if busy is not None:
            text = f"The run {busy.run} of {dlq} is {busy.status} ({busy.sent:,} of {busy.total:,} sent, by {busy.by})."
            raise ConfigError(f"{text} Wait for it, or cancel it: keepfast dlq cancel {busy.run}")

    def _create_replay_topics(self, plan: ReplayPlan) -> None:
        if not plan.policy.to_group:
            return
        known = self.cluster.topics(sorted(plan.destinations))
        for case in self.index.selected(plan.where):
            topic = replay_topic(case.topic, case.group)
            if topic in plan.destinations and known.get(topic) is None:
                count = self._partitions_of(case.topic) or 1
                self.cluster.create(topic, partitions=count, config={"retention.ms": str(KEPT_S * 1000)})
                known.update(self.cluster.topics([topic]))

    def topics_of(self, where: CaseFilter) -> list[str]:
        """The dead-letter topics that have selected cases."""
        every = sorted(self.own(where).dlqs)
        return [dlq for dlq in every if self.cases(replace(where, dlqs=frozenset({dlq})), size=1).total]

    def own(self, where: CaseFilter) -> CaseFilter:
        """The filter for the topics of this desk, unless it names some."""
        return where if where.dlqs else replace(where, dlqs=frozenset(self.options.topics))


_MARKABLE: Final = (CaseState.OPEN, CaseState.REPLAYING)
_RESTORABLE: Final = (CaseState.DISCARDED, CaseState.PERMANENTLY_FAILED, CaseState.ARCHIVED)


def _some(cases: Sequence[str]) -> str:
    more = f" and {len(cases) - 3} more" if len(cases) > 3 else ""
    return ", ".join(cases[:3]) + more


def _counts(done: Mapping[str, int]) -> str:
    return ", ".join(f"{topic} {count:,}" for topic, count in done.items()) or "nothing"


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
