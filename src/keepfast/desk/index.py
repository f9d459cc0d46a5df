"""Questions about the desk's index: where letters are and what is known about them. It has no payloads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

from keepfast.core.records import Record, RecordPlace
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import (
    DEFAULT_REPLAY_LIMIT,
    UNRESOLVED,
    Case,
    CaseHistory,
    CaseLetter,
    CasePage,
    CaseState,
    Summary,
)
from keepfast.desk.causes import HOURS, Cause
from keepfast.desk.database import HOUR_MS, Database, batches, placeholders
from keepfast.desk.facts import Fact, Gone, Mark, Outcome, PlanChunk, PlanItem, RunFact, RunOrder, Sent, fact_of

_STATES: Final = tuple(CaseState)
Rows = Callable[..., list[tuple[Any, ...]]]
"""Runs a query with its values."""
_CASE: Final = """
SELECT c.name, g.name, t.name, c.partition, c.offset, d.name, c.lp, c.lo, c.letters, c.first_ms, c.last_ms, c.state,
  c.replays, c.failed_again, c.reported, u.fingerprint, u.error_type, u.message, k.name, u.place, u.fields, c.key_hash,
  m.note, c.exact, c.own, c.id
FROM cases c JOIN causes u ON u.id = c.cause JOIN names d ON d.id = c.dlq JOIN names g ON g.id = c.grp
  JOIN names t ON t.id = c.topic JOIN names k ON k.id = c.code LEFT JOIN marks m ON m.case_id = c.id
"""


class Index:
    """The questions that page and command line ask. Any thread may call it. `replay_limit` decides about a badge."""

    def __init__(self, database: Database, *, replay_limit: int = DEFAULT_REPLAY_LIMIT) -> None:
        self._rows = database.rows
        self._tally = database.tally
        self._limit = replay_limit

    def summary(self, where: CaseFilter) -> Summary:
        counted, values = self._counted(where)
        rows = self._rows(
            f"SELECT state, sum(cases), count(DISTINCT cause), min(oldest_ms) FROM ({counted}) GROUP BY state",  # noqa: S608
            *values,
        )
        by_state = {_STATES[row[0]]: row for row in rows}
        unresolved = [by_state[state] for state in (CaseState.OPEN, CaseState.REPLAYING) if state in by_state]
        return Summary(
            {state: row[1] for state, row in by_state.items()},
            by_state[CaseState.OPEN][2] if CaseState.OPEN in by_state else 0,
            min((row[3] for row in unresolved), default=None),
        )

    def unresolved(self, group: str) -> dict[str, int]:
        """Unresolved cases of a group by the topic of their records; 0 where all are resolved."""
        self._tally()
        rows = self._rows(
            "SELECT t.name, sum(iif(c.state < 2, c.cases, 0)) FROM tallies c JOIN names t ON t.id = c.topic"
            " WHERE c.grp = (SELECT id FROM names WHERE name = ?) GROUP BY c.topic",
            group,
        )
        return dict(rows)

    def causes(self, where: CaseFilter, *, now_ms: int) -> list[Cause]:
        """Those with most unresolved cases first."""
        counted, values = self._counted(where)
        rows = self._rows(
            "SELECT cause, dlq, grp, topic, code, state, sum(cases), sum(failed_again), min(first_ms), max(last_ms),"  # noqa: S608
            f" max(sample) FROM ({counted}) GROUP BY 1, 2, 3, 4, 5, 6",
            *values,
        )
        first_hour = now_ms // HOUR_MS - HOURS + 1
        hours = self._rows(
            f"SELECT cause, hour - {first_hour}, sum(cases) FROM ({counted}) WHERE hour >= {first_hour} GROUP BY 1, 2",  # noqa: S608
            *values,
        )
        parts: dict[int, list[tuple[Any, ...]]] = {}
        for row in rows:
            parts.setdefault(row[0], []).append(row)
        by_hour: dict[int, Counter[int]] = {}
        for cause, hour, count in hours:
            by_hour.setdefault(cause, Counter())[min(hour, HOURS - 1)] += count
        made = [self._cause(one, found, by_hour.get(one, Counter())) for one, found in parts.items()]
        return sorted(made, key=lambda cause: (-cause.unresolved, -cause.count, cause.fingerprint))

    def cases(self, where: CaseFilter, *, first: int = 0, size: int = 100) -> CasePage:
        """Those that failed last first."""
        clause, values = self._where(where)
        rows = self._rows(f"{_CASE} {clause} ORDER BY c.last_ms DESC, c.id DESC LIMIT ? OFFSET ?", *values, size, first)
        [[total]] = self._rows(f"SELECT count(*) FROM cases c {clause}", *values)  # noqa: S608
        return CasePage(tuple(map(self._view, rows)), total)

    def selected(self, where: CaseFilter) -> Iterator[Case]:
        """All of them, by the place of their last letters. The selection does not change while it is read."""
        clause, values = self._where(where)
        ids = [row[0] for row in self._rows(f"SELECT c.id FROM cases c {clause} ORDER BY c.dlq, c.lp, c.lo", *values)]  # noqa: S608
        for some in batches(ids):
            marks = placeholders(some)
            rows = self._rows(f"{_CASE} WHERE c.id IN ({marks}) ORDER BY c.dlq, c.lp, c.lo", *some)
            yield from map(self._view, rows)

    def history(self, case: str) -> CaseHistory | None:
        """A case by its id; None if there is none."""
        rows = self._rows(f"{_CASE} WHERE c.letters > 0 AND c.name = ?", case)
        if not rows:
            return None
        row, view = rows[0][-1], self._view(rows[0])
        letters = self._rows(
            "SELECT n.name, l.partition, l.offset, l.at_ms, l.run FROM letters l JOIN names n ON n.id = l.dlq"
            " WHERE l.case_id = ? ORDER BY l.at_ms, l.offset",
            row,
        )
        sends, outcomes, mark, _ = facts_of(self._rows, row, view.id)
        return CaseHistory(
            view,
            tuple(CaseLetter(RecordPlace(*one[:3]), one[3], one[4]) for one in letters),
            tuple(sorted(sends, key=lambda one: (one.n, one.at_ms))),
            tuple(sorted(outcomes, key=lambda one: one.at_ms)),
            mark,
        )

    def case_at(self, place: RecordPlace) -> str | None:
        """The case of the letter at this place of a dead-letter topic."""
        rows = self._rows(
            "SELECT c.name FROM letters l JOIN cases c ON c.id = l.case_id JOIN names n ON n.id = l.dlq"
            " WHERE n.name = ? AND l.partition = ? AND l.offset = ?",
            *place,
        )
        return str(rows[0][0]) if rows else None

    def states(self, cases: Iterable[str]) -> dict[str, CaseState]:
        """Of those that are known."""
        return {name: state for name, (state, _) in self.standings(cases).items()}

    def standings(self, cases: Iterable[str]) -> dict[str, tuple[CaseState, int]]:
        """State of those that are known, and how often they were sent."""
        found: dict[str, tuple[CaseState, int]] = {}
        for some in batches(cases):
            marks = placeholders(some)
            rows = self._rows(f"SELECT name, state, replays FROM cases WHERE name IN ({marks})", *some)  # noqa: S608
            found.update((name, (_STATES[state], replays)) for name, state, replays in rows)
        return found

    def notes(self) -> dict[str, str]:
        """The notes that people left, by case."""
        return dict(
            self._rows("SELECT c.name, m.note FROM marks m JOIN cases c ON c.id = m.case_id WHERE m.note != ''")
        )

    def sent_by(self, run: str) -> dict[str, Sent]:
        """The cases that a run has sent."""
        rows = self._rows(
            "SELECT c.name, s.run, s.n, s.at_ms, s.topic, s.partition, s.offset FROM sends s"
            " JOIN cases c ON c.id = s.case_id WHERE s.run = ?",
            run,
        )
        return {row[0]: _sent(row) for row in rows}

    def results(self, run: str) -> dict[CaseState, int]:
        """How many of the cases of a run are in each state."""
        rows = self._rows(
            "SELECT c.state, count(*) FROM sends s JOIN cases c ON c.id = s.case_id WHERE s.run = ? GROUP BY 1", run
        )
        return {_STATES[state]: count for state, count in rows}

    def failed_again(self, run: str) -> int:
        """How many records of a run have ended in a letter again."""
        return len(self.failed_by(run))

    def failed_by(self, run: str) -> set[str]:
        """The cases whose record a run has sent and that failed again."""
        rows = self._rows("SELECT DISTINCT c.name FROM letters l JOIN cases c ON c.id = l.case_id WHERE l.run = ?", run)
        return {name for (name,) in rows}

    def decided(self, run: str) -> int:
        """Of how many cases that a run has sent it is known what became: processed, failed again, marked, or resolved
        by another run.
        """
        undecided = [_STATES.index(state) for state in UNRESOLVED]
        [[count]] = self._rows(
            "SELECT count(*) FROM sends s JOIN cases c ON c.id = s.case_id WHERE s.run = ?"  # noqa: S608
            f" AND (s.passed OR c.state NOT IN ({placeholders(undecided)})"
            " OR EXISTS (SELECT 1 FROM outcomes o WHERE o.case_id = s.case_id AND o.run = s.run)"
            " OR EXISTS (SELECT 1 FROM letters l WHERE l.case_id = s.case_id AND l.run = s.run))",
            run,
            *undecided,
        )
        return int(count)

    def succeeded(self, run: str) -> int:
        """How many records of a run were processed or discarded, as their group has reported."""
        [[count]] = self._rows("SELECT count(*) FROM outcomes WHERE run = ?", run)
        return int(count)

    def runs(self) -> list[RunFact]:
        """The latest first."""
        found = [_fact(f"run/{run}", text) for run, text in self._rows("SELECT run, fact FROM runs")]
        return sorted((one for one in found if isinstance(one, RunFact)), key=lambda one: -one.at_ms)

    def run(self, run: str) -> RunFact | None:
        rows = self._rows("SELECT run, fact FROM runs WHERE run = ?", run)
        found = _fact(f"run/{run}", rows[0][1]) if rows else None
        return found if isinstance(found, RunFact) else None

    def plan(self, run: str) -> list[PlanItem]:
        """The frozen selection of a run."""
        rows = self._rows("SELECT number, fact FROM plans WHERE run = ? ORDER BY number", run)
        chunks = [_fact(f"plan/{run}/{number}", text) for number, text in rows]
        return [item for chunk in chunks if isinstance(chunk, PlanChunk) for item in chunk.items]

    def order(self, run: str) -> RunOrder | None:
        rows = self._rows("SELECT kind, by, at_ms FROM orders WHERE run = ?", run)
        return RunOrder(run=run, kind=rows[0][0], by=rows[0][1], at_ms=rows[0][2]) if rows else None

    def unreported(self) -> list[tuple[str, Sent]]:
        """Sends of cases that are being replayed: the group, and where the record is."""
        rows = self._rows(
            "SELECT c.name, s.run, s.n, s.at_ms, s.topic, s.partition, s.offset, g.name FROM sends s"
            " JOIN cases c ON c.id = s.case_id JOIN names g ON g.id = c.grp WHERE c.state = 1 AND s.offset IS NOT NULL"
        )
        return [(row[7], _sent(row)) for row in rows]

    def first_letters(self, dlq: str, states: Iterable[CaseState]) -> dict[int, int]:
        """By partition: the first letter of a case in one of these states."""
        wanted = [_STATES.index(state) for state in states]
        rows = self._rows(
            "SELECT l.partition, min(l.offset) FROM letters l JOIN cases c ON c.id = l.case_id"  # noqa: S608
            f" JOIN names n ON n.id = l.dlq WHERE n.name = ? AND c.state IN ({placeholders(wanted)}) GROUP BY 1",
            dlq,
            *wanted,
        )
        return dict(rows)

    def facts_without_letters(self) -> list[str]:
        """Keys of facts about cases whose letters are gone: they can be tombstoned."""
        keys: list[str] = []
        for row, name in self._rows("SELECT id, name FROM cases WHERE letters = 0 AND facts = 1"):
            sends, outcomes, mark, _ = facts_of(self._rows, row, name)
            keys += [one.key for one in sends] + [one.key for one in outcomes]
            keys += [mark.key] if mark is not None else []
        return keys

    def _counted(self, wanted: CaseFilter) -> tuple[str, list[object]]:
        """A query of counts, in the columns of `tallies`: from there, unless the filter is about single cases."""
        if wanted.keys or wanted.cases or wanted.runs or wanted.offsets or wanted.since_ms or wanted.until_ms:
            clause, values = self._where(wanted)
            columns = f"cause, dlq, grp, topic, code, state, last_ms / {HOUR_MS} AS hour, 1 AS cases, first_ms, last_ms"
            each = "failed_again > 0 AS failed_again, last_ms AS oldest_ms, id AS sample"
            return f"SELECT {columns}, {each} FROM cases c {clause}", values  # noqa: S608
        self._tally()
        clause, values = self._where(wanted, "1")
        return f"SELECT * FROM tallies c {clause}", values  # noqa: S608

    def _where(self, wanted: CaseFilter, always: str = "c.letters > 0") -> tuple[str, list[object]]:
        """The condition of a query about `cases c`; or about `tallies c`, if the filter is not about single cases."""
        conditions, values = [always], list[object]()

        def among(column: str, some: Iterable[object]) -> None:
            listed = list(some)
            if listed:
                conditions.append(f"{column} IN ({placeholders(listed)})")
                values.extend(listed)

        for column, names in (
            ("dlq", wanted.dlqs),
            ("topic", wanted.topics),
            ("grp", wanted.groups),
            ("code", wanted.codes),
        ):
            if names:
                marks = placeholders(names)
                conditions.append(f"c.{column} IN (SELECT id FROM names WHERE name IN ({marks}))")  # noqa: S608
                values.extend(sorted(names))
        among("c.key_hash", [hash_of_key(key.encode("utf-8", "replace")) for key in sorted(wanted.keys)])
        among("c.state", [_STATES.index(state) for state in sorted(wanted.states)])
        among("c.name", sorted(wanted.cases))
        for column, at_ms in ((">=", wanted.since_ms), ("<", wanted.until_ms)):
            if at_ms is not None:
                conditions.append(f"c.last_ms {column} ?")
                values.append(at_ms)
        if wanted.runs:
            marks = placeholders(wanted.runs)
            conditions.append(f"c.id IN (SELECT case_id FROM sends WHERE run IN ({marks}))")  # noqa: S608
            values.extend(sorted(wanted.runs))
        self._where_cause(wanted, conditions, values)
        if wanted.offsets:
            each = "(l.partition = ? AND l.offset >= ? AND l.offset < ?)"
            ranges = " OR ".join([each] * len(wanted.offsets))
            conditions.append(f"EXISTS (SELECT 1 FROM letters l WHERE l.case_id = c.id AND ({ranges}))")  # noqa: S608
            for one in wanted.offsets:
                values += [one.partition, one.start, 2**62 if one.end is None else one.end]
        return f"WHERE {' AND '.join(conditions)}", values

    def _where_cause(self, wanted: CaseFilter, conditions: list[str], values: list[object]) -> None:
        inner: list[str] = []
        if wanted.causes:
            inner.append("(" + " OR ".join(["fingerprint LIKE ? ESCAPE '\\'"] * len(wanted.causes)) + ")")
            values.extend(f"{_escaped(one)}%" for one in sorted(wanted.causes))
        if wanted.error_types:
            marks = placeholders(wanted.error_types)
            inner.append(f"(error_type IN ({marks}) OR error_class IN ({marks}))")
            values.extend((*sorted(wanted.error_types), *sorted(wanted.error_types)))
        if inner:
            conditions.append(f"c.cause IN (SELECT id FROM causes WHERE {' AND '.join(inner)})")  # noqa: S608
        if wanted.text:
            columns = ("error_type", "error_class", "message", "place", "fields")
            like = " OR ".join(f"{column} LIKE ? ESCAPE '\\'" for column in columns)
            names = "SELECT id FROM names WHERE name LIKE ? ESCAPE '\\'"
            conditions.append(
                f"(c.cause IN (SELECT id FROM causes WHERE {like}) OR c.grp IN ({names}) OR c.topic IN ({names})"  # noqa: S608
                f" OR c.code IN ({names}))"
            )
            values.extend([f"%{_escaped(wanted.text)}%"] * (len(columns) + 3))

    def _cause(self, row: int, parts: Sequence[tuple[Any, ...]], hours: Counter[int]) -> Cause:
        [found] = self._rows(
            "SELECT fingerprint, error_type, message, place, fields, classification FROM causes WHERE id = ?", row
        )
        counts: Counter[CaseState] = Counter()
        named: list[Counter[str]] = [Counter(), Counter(), Counter(), Counter()]
        for part in parts:
            counts[_STATES[part[5]]] += part[6]
            for counter, name in zip(named, part[1:5], strict=True):
                counter[self._text(name)] += part[6]
        dlqs, groups, topics, codes = named
        last = max(parts, key=lambda part: part[9])
        [place] = self._rows(
            "SELECT n.name, c.lp, c.lo FROM cases c JOIN names n ON n.id = c.dlq WHERE c.id = ?", last[10]
        )
        return Cause(
            fingerprint=found[0],
            error_type=found[1],
            message=found[2],
            place=found[3],
            fields=tuple(json.loads(found[4])),
            classification=found[5],
            counts=counts,
            failed_again=sum(part[7] for part in parts),
            first_ms=min(part[8] for part in parts),
            last_ms=last[9],
            codes=codes,
            groups=groups,
            topics=topics,
            dlqs=dlqs,
            sample=RecordPlace(*place),
            hours=tuple(hours[hour] for hour in range(HOURS)),
        )

    def _text(self, name: int) -> str:
        [[found]] = self._rows("SELECT name FROM names WHERE id = ?", name)
        return str(found)

    def _view(self, row: Sequence[Any]) -> Case:
        state, replays = _STATES[row[11]], row[12]
        return Case(
            id=row[0],
            group=row[1],
            topic=row[2],
            partition=row[3],
            offset=row[4],
            letter=RecordPlace(row[5], row[6], row[7]),
            letters=row[8],
            first_ms=row[9],
            last_ms=row[10],
            state=state,
            replays=replays,
            failed_again=row[13],
            reported=bool(row[14]),
            limit_reached=state is CaseState.OPEN and replays >= self._limit,
            fingerprint=row[15],
            error_type=row[16],
            message=row[17],
            code=row[18],
            place=row[19],
            fields=tuple(json.loads(row[20])),
            key_hash=row[21],
            note=row[22] or "",
            exact=bool(row[23]),
            own=bool(row[24]),
        )


def facts_of(rows: Rows, row: int, case: str) -> tuple[list[Sent], list[Outcome], Mark | None, list[str]]:
    """Sends, outcomes, mark, and the runs whose record the group has committed past."""
    found = rows("SELECT run, n, at_ms, topic, partition, offset, passed FROM sends WHERE case_id = ?", row)
    sends, passed = [_sent((case, *one[:6])) for one in found], [one[0] for one in found if one[6]]
    outcomes = [
        Outcome(case=case, run=one[0], kind=one[1], at_ms=one[2], code=one[3])
        for one in rows("SELECT run, kind, at_ms, code FROM outcomes WHERE case_id = ?", row)
    ]
    marked = rows("SELECT kind, by, at_ms, why, note, url FROM marks WHERE case_id = ?", row)
    names = ("kind", "by", "at_ms", "why", "note", "url")
    mark = Mark(case=case, **dict(zip(names, marked[0], strict=True))) if marked else None
    return sends, outcomes, mark, passed


def hash_of_key(key: bytes) -> str:
    return blake2b(key, digest_size=6).hexdigest()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _sent(row: Sequence[Any]) -> Sent:
    names = ("case", "run", "n", "at_ms", "topic", "partition", "offset")
    return Sent(**dict(zip(names, row[:7], strict=True)))


def _fact(key: str, fields: str) -> Fact | Gone | None:
    return fact_of(Record("", 0, 0, key.encode("utf-8", "replace"), fields.encode(), (), None))
