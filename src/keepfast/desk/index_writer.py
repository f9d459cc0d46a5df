"""Letters and facts into the desk's index. It gets no payloads, and texts are masked."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, assert_never

from keepfast.core.records import SPOOL_PARTITION
from keepfast.core.replays import ReplayMark
from keepfast.deadletters.foreign import FOREIGN_READERS
from keepfast.deadletters.letter import Letter
from keepfast.desk.cases import CaseState, LetterFact, case_id, state_of
from keepfast.desk.causes import Diagnosis
from keepfast.desk.database import Database, placeholders
from keepfast.desk.facts import Fact, Gone, Mark, Outcome, PlanChunk, RunFact, RunOrder, Sent
from keepfast.desk.index import facts_of, hash_of_key
from keepfast.desk.letters import StoredLetter

MAX_REMEMBERED = 10_000
"""Names are untrusted: what is remembered of them must be bounded."""
_STATES = tuple(CaseState)
_COLUMNS = (
    "name, dlq, grp, topic, partition, offset, cause, code, key_hash, first_ms, last_ms, lp, lo, exact, own, letters"
)
_LETTER = "INSERT INTO letters VALUES(?, ?, ?, ?, ?, ?)"
_INSERT = f"INSERT OR IGNORE INTO cases(id, {_COLUMNS}) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)"
_ADDED = "INSERT OR IGNORE INTO stale_tallies SELECT DISTINCT id >> 12 FROM cases WHERE id > ?"
_UPSERT = f"""
INSERT INTO cases({_COLUMNS})
VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)
ON CONFLICT(name) DO UPDATE SET
  grp = coalesce(grp, excluded.grp), topic = coalesce(topic, excluded.topic),
  partition = coalesce(partition, excluded.partition), offset = coalesce(offset, excluded.offset),
  key_hash = excluded.key_hash, exact = excluded.exact, own = excluded.own, letters = letters + 1,
  dlq = iif(last_ms > excluded.last_ms, dlq, excluded.dlq),
  lp = iif(last_ms > excluded.last_ms, lp, excluded.lp),
  lo = iif(last_ms > excluded.last_ms, lo, excluded.lo),
  code = iif(last_ms > excluded.last_ms, code, excluded.code),
  cause = iif(last_ms > excluded.last_ms, cause, excluded.cause),
  first_ms = min(coalesce(first_ms, excluded.first_ms), excluded.first_ms),
  last_ms = max(coalesce(last_ms, 0), excluded.last_ms)
RETURNING id, facts
"""
_RECOUNT = """
UPDATE cases SET letters = (SELECT count(*) FROM letters WHERE case_id = cases.id),
  (dlq, lp, lo) = (SELECT l.dlq, l.partition, l.offset FROM letters l WHERE l.case_id = cases.id
    ORDER BY l.at_ms DESC, l.offset DESC LIMIT 1)
WHERE id = ?
"""


class _LetterRow(NamedTuple):
    """A letter and its case, as the tables have them."""

    case: str
    values: tuple[object, ...]
    at: tuple[int, int, int]
    at_ms: int
    run: str


class IndexWriter:
    """Any thread may call it. What is added twice counts once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._names: dict[str, int] = {}
        self._causes: dict[str, int] = {}

    def positions(self, topic: str) -> dict[int, tuple[str, int]]:
        """By partition: the id of the topic that was read, and the next offset."""
        rows = self._database.rows("SELECT partition, topic_id, next FROM positions WHERE topic = ?", topic)
        return {partition: (topic_id, offset) for partition, topic_id, offset in rows}

    @property
    def diagnosed(self) -> Collection[str]:
        """Fingerprints of causes that the index has: their letters can be read without what they say of the error."""
        return self._causes

    def add_letters(self, letters: Sequence[StoredLetter], *, topic: str, topic_id: str, ends: dict[int, int]) -> None:
        """Letters of one topic; reading continues at `ends`. What is known already is not added again."""
        with self._writing() as db:
            dirty: set[int] = set()
            self._add_letters(db, letters, dirty)
            self._restate(db, dirty)
            self._moved(db, topic, topic_id, ends)

    def add_facts(self, facts: Iterable[Fact | Gone], *, topic: str, topic_id: str, ends: dict[int, int]) -> None:
        with self._writing() as db:
            dirty: set[int] = set()
            for fact in facts:
                self._add_fact(db, fact, dirty)
            self._restate(db, dirty)
            self._moved(db, topic, topic_id, ends)

    def forget_topic(self, dlq: str) -> None:
        """The topic was created again: its letters are gone."""
        with self._writing() as db:
            self._drop_letters(db, "dlq = ?", (self._name(db, dlq),))
            db.execute("DELETE FROM positions WHERE topic = ?", (dlq,))

    def forget_facts(self, topic: str) -> None:
        """The desk's topic was created again: its facts are gone."""
        with self._writing() as db:
            for table in ("sends", "outcomes", "marks", "runs", "plans", "orders"):
                db.execute(f"DELETE FROM {table}")  # noqa: S608 - names of our own
            db.execute("DELETE FROM cases WHERE letters = 0")
            db.execute("UPDATE cases SET facts = 0, state = 0, replays = 0, failed_again = 0, reported = 1")
            db.execute("DELETE FROM positions WHERE topic = ?", (topic,))

    def forget_below(self, dlq: str, partition: int, low: int) -> None:
        """Retention or a purge has removed the letters below this offset."""
        with self._writing() as db:
            where = "dlq = ? AND partition = ? AND offset < ?"
            self._drop_letters(db, where, (self._name(db, dlq), partition, low))

    def spooled(self, dlqs: Sequence[str]) -> set[tuple[str, int]]:
        """The letters in the spool that are known: dead-letter topic and offset."""
        rows = self._database.rows(
            "SELECT n.name, l.offset FROM letters l JOIN names n ON n.id = l.dlq"  # noqa: S608
            f" WHERE l.partition = {SPOOL_PARTITION} AND n.name IN ({placeholders(dlqs)})",
            *dlqs,
        )
        return set(rows)

    def set_spooled(self, dlqs: Sequence[str], there: Collection[int], new: Sequence[StoredLetter]) -> None:
        """These letters for these topics are in the spool now, `new` among them; no others are."""
        gone = [(dlq, offset) for dlq, offset in self.spooled(dlqs) if offset not in there]
        if not gone and not new:
            return
        with self._writing() as db:
            dirty: set[int] = set()
            for dlq, offset in gone:
                where = f"dlq = ? AND partition = {SPOOL_PARTITION} AND offset = ?"
                self._drop_letters(db, where, (self._name(db, dlq), offset))
            self._add_letters(db, new, dirty)
            self._restate(db, dirty)

    def mark_passed(self, sends: Iterable[tuple[str, str]]) -> None:
        """The group has committed past the records of these sends (case, run), and reported no outcome."""
        with self._writing() as db:
            dirty = set()
            for case, run in sends:
                row = self._case_row(db, case)
                db.execute("UPDATE sends SET passed = 1 WHERE case_id = ? AND run = ?", (row, run))
                dirty.add(row)
            self._restate(db, dirty)

    def _add_letters(self, db: sqlite3.Connection, letters: Sequence[StoredLetter], dirty: set[int]) -> None:
        """New cases are inserted together: most letters are the first of their case."""
        found = [self._row(db, stored) for stored in self._unknown(db, letters)]
        [[last]] = db.execute("SELECT coalesce(max(id), 0) FROM cases")
        numbered = list(enumerate(found, last + 1))
        added = db.executemany(_INSERT, [(one, *row.values) for one, row in numbered]).rowcount
        db.execute(_ADDED, (last,))
        others: list[_LetterRow] = []
        if added < len(found):
            new = {one for (one,) in db.execute("SELECT id FROM cases WHERE id > ?", (last,))}
            others = [row for one, row in numbered if one not in new]
            numbered = [(one, row) for one, row in numbered if one in new]
        db.executemany(_LETTER, [(*row.at, one, row.at_ms, row.run) for one, row in numbered])
        for row in others:
            case, facts = db.execute(_UPSERT, row.values).fetchone()
            db.execute(_LETTER, (*row.at, case, row.at_ms, row.run))
            if facts:
                dirty.add(case)

    def _unknown(self, db: sqlite3.Connection, letters: Sequence[StoredLetter]) -> list[StoredLetter]:
        """Those that the index does not have, each once."""
        places = {(one.place.topic, one.place.partition): [one.place.offset] * 2 for one in letters}
        for one in letters:
            offsets = places[one.place.topic, one.place.partition]
            offsets[:] = min(offsets[0], one.place.offset), max(offsets[1], one.place.offset)
        known = {
            (topic, partition, offset)
            for (topic, partition), (low, high) in places.items()
            for (offset,) in db.execute(
                "SELECT offset FROM letters WHERE dlq = ? AND partition = ? AND offset BETWEEN ? AND ?",
                (self._name(db, topic), partition, low, high),
            )
        }
        return list({one.place: one for one in letters if tuple(one.place) not in known}.values())

    def _row(self, db: sqlite3.Connection, stored: StoredLetter) -> _LetterRow:
        letter, place = stored.letter, stored.place
        dlq, mark = self._name(db, place.topic), letter.replay
        sent = mark if mark is not None and self._is_sent(db, mark) else None
        case = sent.case if sent is not None else case_id(letter, *place)
        at_ms = stored.at_ms or 0
        values = (
            case,
            dlq,
            *self._origin(db, sent, letter),
            self._cause_row(db, stored),
            self._name(db, letter.error_code),
            "" if letter.key is None else hash_of_key(letter.key),
            at_ms,
            at_ms,
            place.partition,
            place.offset,
            letter.exact,
            letter.format not in FOREIGN_READERS,
        )
        if mark is not None and sent is None:
            db.execute("INSERT OR IGNORE INTO claims VALUES(?, ?, ?, ?, ?)", (mark.case, mark.run, dlq, *place[1:]))
        run = sent.run if sent is not None else ""
        return _LetterRow(case, values, (dlq, place.partition, place.offset), at_ms, run)

    def _origin(
        self, db: sqlite3.Connection, sent: ReplayMark | None, letter: Letter
    ) -> tuple[int, int, int | None, int | None]:
        """Group, topic, partition and offset of the first record of the case: a replayed one is at another place."""
        if sent is not None and letter.topic is not None and (origin := self._sent_from(db, sent.case)) is not None:
            return origin
        return self._name(db, letter.group), self._name(db, letter.topic or ""), letter.partition, letter.offset

    def _sent_from(self, db: sqlite3.Connection, case: str) -> tuple[int, int, int, int] | None:
        """Group, topic, partition and offset that the name of a case has; None for one by its place in a topic."""
        parts = case.rsplit("/", 4)
        if len(parts) != 5:
            return None
        return self._name(db, parts[0]), self._name(db, parts[1]), int(parts[2]), int(parts[3])

    def _settle_claims(self, db: sqlite3.Connection, fact: Sent, case: int, dirty: set[int]) -> None:
        """Letters of this replay that were read before its send: they belong to the case that was sent."""
        claimed = db.execute(
            "DELETE FROM claims WHERE name = ? AND run = ? RETURNING dlq, partition, offset", (fact.case, fact.run)
        ).fetchall()
        for place in claimed:
            at = "dlq = ? AND partition = ? AND offset = ?"
            [own, at_ms] = db.execute(f"SELECT case_id, at_ms FROM letters WHERE {at}", place).fetchone()  # noqa: S608
            [*origin, cause, code, key_hash, exact, ours] = db.execute(
                "SELECT grp, topic, partition, offset, cause, code, key_hash, exact, own FROM cases WHERE id = ?",
                (own,),
            ).fetchone()
            dlq, partition, offset = place
            found = (cause, code, key_hash, at_ms, at_ms, partition, offset, exact, ours)
            db.execute(_UPSERT, (fact.case, dlq, *(self._sent_from(db, fact.case) or origin), *found))
            db.execute(f"UPDATE letters SET case_id = ?, run = ? WHERE {at}", (case, fact.run, *place))  # noqa: S608
            db.execute(_RECOUNT, (own,))
            dirty.add(own)

    def _is_sent(self, db: sqlite3.Connection, mark: ReplayMark) -> bool:
        """Whether the desk knows the send that a letter names. Another may be forged, or its fact is not read yet."""
        found = db.execute(
            "SELECT 1 FROM sends s JOIN cases c ON c.id = s.case_id WHERE c.name = ? AND s.run = ?",
            (mark.case, mark.run),
        )
        return found.fetchone() is not None

    def _add_fact(self, db: sqlite3.Connection, fact: Fact | Gone, dirty: set[int]) -> None:
        match fact:
            case Mark():
                row = self._case_row(db, fact.case)
                values = (fact.kind, fact.by, fact.at_ms, fact.why, fact.note, fact.url)
                db.execute("INSERT OR REPLACE INTO marks VALUES(?, ?, ?, ?, ?, ?, ?)", (row, *values))
                dirty.add(row)
            case Sent():
                row = self._case_row(db, fact.case)
                place = (fact.topic, fact.partition, fact.offset)
                db.execute(
                    "INSERT OR REPLACE INTO sends VALUES(?, ?, ?, ?, ?, ?, ?, 0)",
                    (row, fact.run, fact.n, fact.at_ms, *place),
                )
                self._settle_claims(db, fact, row, dirty)
                dirty.add(row)
            case Outcome():
                row = self._case_row(db, fact.case)
                end = (fact.kind, fact.at_ms, fact.code)
                db.execute("INSERT OR REPLACE INTO outcomes VALUES(?, ?, ?, ?, ?)", (row, fact.run, *end))
                dirty.add(row)
            case RunFact():
                db.execute("INSERT OR REPLACE INTO runs VALUES(?, ?)", (fact.run, json.dumps(fact.fields())))
            case PlanChunk():
                text = json.dumps(fact.fields())
                db.execute("INSERT OR REPLACE INTO plans VALUES(?, ?, ?)", (fact.run, fact.number, text))
            case RunOrder():
                order = (fact.run, fact.kind, fact.by, fact.at_ms)
                db.execute("INSERT OR REPLACE INTO orders VALUES(?, ?, ?, ?)", order)
            case Gone():
                self._remove_fact(db, fact.key, dirty)
            case other:
                assert_never(other)

    def _remove_fact(self, db: sqlite3.Connection, key: str, dirty: set[int]) -> None:
        kind, _, rest = key.partition("/")
        first, _, last = rest.rpartition("/")
        match kind:
            case "run" | "order":
                db.execute(f"DELETE FROM {kind}s WHERE run = ?", (rest,))  # noqa: S608 - one of the two
            case "plan":
                db.execute("DELETE FROM plans WHERE run = ? AND number = ?", (first, last))
            case "mark":
                row = self._case_row(db, rest)
                db.execute("DELETE FROM marks WHERE case_id = ?", (row,))
                dirty.add(row)
            case "sent" | "outcome":
                row = self._case_row(db, first)
                table = "sends" if kind == "sent" else "outcomes"
                db.execute(f"DELETE FROM {table} WHERE case_id = ? AND run = ?", (row, last))  # noqa: S608 - one of the two
                dirty.add(row)
            case _:
                pass

    def _restate(self, db: sqlite3.Connection, dirty: Iterable[int]) -> None:
        """Compute the states of these cases again; those of which nothing is left are removed."""
        for row in dirty:
            name, count = db.execute("SELECT name, letters FROM cases WHERE id = ?", (row,)).fetchone()
            sends, outcomes, mark, passed = facts_of(
                lambda *query: db.execute(query[0], query[1:]).fetchall(), row, name
            )
            facts = bool(sends or outcomes or mark)
            if not count and not facts:
                db.execute("DELETE FROM cases WHERE id = ?", (row,))
                continue
            letters = [
                LetterFact(*one) for one in db.execute("SELECT at_ms, run FROM letters WHERE case_id = ?", (row,))
            ]
            found = state_of(letters, sends, outcomes, mark, passed=passed)
            db.execute(
                "UPDATE cases SET facts = ?, state = ?, replays = ?, failed_again = ?, reported = ? WHERE id = ?",
                (facts, _STATES.index(found.state), found.replays, found.failed_again, found.reported, row),
            )

    def _drop_letters(self, db: sqlite3.Connection, where: str, values: Sequence[object]) -> None:
        rows = {row for (row,) in db.execute(f"SELECT DISTINCT case_id FROM letters WHERE {where}", values)}  # noqa: S608
        for table in ("letters", "claims"):
            db.execute(f"DELETE FROM {table} WHERE {where}", values)  # noqa: S608 - conditions of our own
        for row in rows:
            db.execute(_RECOUNT, (row,))
        self._restate(db, rows)

    def _case_row(self, db: sqlite3.Connection, case: str) -> int:
        """The case, which may have no letters yet. It has facts from now on."""
        found = db.execute(
            "INSERT INTO cases(name, facts) VALUES(?, 1) ON CONFLICT(name) DO UPDATE SET facts = 1 RETURNING id",
            (case,),
        )
        return int(found.fetchone()[0])

    def _cause_row(self, db: sqlite3.Connection, stored: StoredLetter) -> int:
        fingerprint = stored.letter.fingerprint
        return _remembered(self._causes, fingerprint, lambda: self._add_cause(db, Diagnosis.of(stored.letter)))

    def _add_cause(self, db: sqlite3.Connection, found: Diagnosis) -> int:
        row = db.execute("SELECT id FROM causes WHERE fingerprint = ?", (found.fingerprint,)).fetchone()
        if row is None:
            texts = (found.fingerprint, found.error_type, found.error_class, found.message, found.classification)
            row = db.execute(
                "INSERT INTO causes(fingerprint, error_type, error_class, message, classification, place, fields)"
                " VALUES(?, ?, ?, ?, ?, ?, ?) RETURNING id",
                (*texts, found.place, json.dumps(found.fields)),
            ).fetchone()
        return int(row[0])

    def _name(self, db: sqlite3.Connection, name: str) -> int:
        def find() -> int:
            db.execute("INSERT INTO names(name) VALUES(?) ON CONFLICT DO NOTHING", (name,))
            return int(db.execute("SELECT id FROM names WHERE name = ?", (name,)).fetchone()[0])

        return _remembered(self._names, name, find)

    def _moved(self, db: sqlite3.Connection, topic: str, topic_id: str, ends: dict[int, int]) -> None:
        rows = [(topic, partition, topic_id, end) for partition, end in ends.items()]
        db.executemany("INSERT OR REPLACE INTO positions VALUES(?, ?, ?, ?)", rows)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._database.writing() as db:
                yield db
        except BaseException:
            self._names.clear()
            self._causes.clear()
            raise


def _remembered(known: dict[str, int], name: str, find: Callable[[], int]) -> int:
    row = known.get(name)
    if row is None:
        if len(known) > MAX_REMEMBERED:
            known.clear()
        row = known[name] = find()
    return row
