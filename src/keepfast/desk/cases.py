"""A case: one record of one group that failed, with all its letters, and what was done about it.

Its state is a pure function of facts, whatever the order in which they are read: compaction keeps only the last record
of each key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from keepfast.core.records import SPOOL_PARTITION, RecordPlace
from keepfast.deadletters.letter import Letter
from keepfast.desk.facts import Mark, MarkKind, Outcome, Sent

DEFAULT_REPLAY_LIMIT: Final = 3
"""A case that was replayed this often and is open again is left out of plans."""


class CaseState(StrEnum):
    """What is to be done about a case. Unresolved are `OPEN` and `REPLAYING`."""

    OPEN = "open"
    REPLAYING = "replaying"
    RESOLVED = "resolved"
    DISCARDED = "discarded"
    PERMANENTLY_FAILED = "permanently-failed"
    ARCHIVED = "archived"


UNRESOLVED: Final = (CaseState.OPEN, CaseState.REPLAYING)
_MARKED: Final[Mapping[MarkKind, CaseState]] = {
    "discarded": CaseState.DISCARDED,
    "permanently-failed": CaseState.PERMANENTLY_FAILED,
    "archived": CaseState.ARCHIVED,
}


@dataclass(frozen=True, slots=True)
class LetterFact:
    """One letter of a case: when the record failed, and which run had sent it; empty: none."""

    at_ms: int
    run: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the facts of a case say together."""

    state: CaseState
    replays: int = 0
    """How often it was sent."""
    failed_again: int = 0
    """How many of these sends ended in a letter."""
    reported: bool = True
    """False: the group has committed past the record and wrote no letter, but has reported no outcome."""


def case_id(letter: Letter, dlq: str, partition: int, offset: int) -> str:
    """The case that a letter is about, without regard to replays: group, topic, partition and offset of the record, and
    a digest of it, because a topic that is deleted and created again counts its offsets again. A foreign letter that
    does not name its record is a case by its own place in the dead-letter topic.
    """
    identity = letter.record_identity
    if identity is None:
        return f"/{dlq}/{partition}/{offset}"
    return f"{letter.id}/{identity[:4].hex()}"


def state_of(
    letters: Collection[LetterFact],
    sends: Iterable[Sent] = (),
    outcomes: Iterable[Outcome] = (),
    mark: Mark | None = None,
    *,
    passed: Collection[str] = (),
) -> Standing:
    """The state of a case. `passed`: runs whose record the group has committed past, where outcomes are not reported.

    The first that matches: the mark; resolved, if the last send has an outcome and the record has not failed outside of
    replays since; replaying, if the last send has no outcome and there is no newer letter; open.
    """
    ranks = {one.run: (one.n, one.at_ms, one.run) for one in sends}
    known = {one.run: one for one in outcomes if one.run in ranks}
    again = {letter.run for letter in letters if letter.run in ranks}
    replays, failed = len(ranks), len(again)
    marked = _MARKED.get(mark.kind) if mark is not None else None
    if marked is not None:
        return Standing(marked, replays, failed)
    if not ranks:
        return Standing(CaseState.OPEN)
    last = max(ranks, key=ranks.__getitem__)
    end = known.get(last)
    outside = max((letter.at_ms for letter in letters if letter.run not in ranks), default=-1)
    if outside > (end.at_ms if end is not None else ranks[last][1]):
        return Standing(CaseState.OPEN, replays, failed)
    if end is not None:
        return Standing(CaseState.RESOLVED, replays, failed)
    if last in again:
        return Standing(CaseState.OPEN, replays, failed)
    if last in passed:
        return Standing(CaseState.RESOLVED, replays, failed, reported=False)
    return Standing(CaseState.REPLAYING, replays, failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of a list. It has no payload; texts are masked."""

    id: str
    group: str
    """Empty if its letters do not name one."""
    topic: str
    """Of the original record, with partition and offset; empty and None if its letters do not name them."""
    partition: int | None
    offset: int | None
    letter: RecordPlace
    """Where its last letter is."""
    letters: int
    first_ms: int
    last_ms: int
    """When it failed first, and last."""
    state: CaseState
    replays: int
    failed_again: int
    reported: bool
    """False: processed, outcome not reported."""
    limit_reached: bool
    fingerprint: str
    error_type: str
    message: str
    code: str
    place: str
    """`file:line` in the user's code; empty if it is not known."""
    fields: tuple[str, ...]
    """Names of fields that the error says are missing."""
    key_hash: str
    """Equal for records with the same key; empty without a key."""
    note: str = ""
    exact: bool = True
    """False: a foreign letter that does not have the exact bytes of the record."""
    own: bool = True
    """False: its last letter was written by Connect, Streams or a share group, which read no topic for replays."""

    @property
    def badges(self) -> tuple[str, ...]:
        """What to show beside the state."""
        spooled = ["in the spool"] if self.letter.partition == SPOOL_PARTITION else []
        again = [f"failed again ×{self.failed_again}"] if self.failed_again else []
        limit = ["replay limit reached"] if self.limit_reached else []
        return (*spooled, *again, *limit, *([] if self.reported else ["processed, outcome not reported"]))


@dataclass(frozen=True, slots=True)
class CaseLetter:
    """One letter of a case: its place, when the record failed, and the run that had sent it; empty: none."""

    place: RecordPlace
    at_ms: int
    run: str = ""


@dataclass(frozen=True, slots=True)
class CaseHistory:
    """A case with everything that was done about it, oldest first."""

    case: Case
    letters: tuple[CaseLetter, ...]
    sends: tuple[Sent, ...]
    outcomes: tuple[Outcome, ...]
    mark: Mark | None


@dataclass(frozen=True, slots=True)
class CasePage:
    """A part of a list, and how many there are."""

    cases: tuple[Case, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Cases by state, the number of causes of open ones, and when the oldest unresolved one failed."""

    counts: Mapping[CaseState, int]
    causes: int
    oldest_ms: int | None

    @property
    def unresolved(self) -> int:
        return sum(self.counts.get(state, 0) for state in UNRESOLVED)
