"""Holds what the handlers did against what was sent and what the broker was told, record by record.

lost         a record that no handler ended                                             (P1)
ahead        a commit that said finished of a record that no handler had ended by then  (P1, P2)
backwards    a commit below an earlier one of the same partition                        (P2)
order        a record that started before an earlier one of its lane had ended, or beside one of its lane in the
             same process                                                               (P3)
needless     a record that started although a commit had already said that it was finished
unconfirmed  a record that started before the broker had stored a commit of the one before it in its lane; only
             commit="each" promises that there is none
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.scenarios.history import Commit, History
from tests.scenarios.journal import Id, Lane, Span, by_key, by_partition
from tests.scenarios.scene import Scene

LANES: dict[str, Lane] = {"partition": by_partition, "key": by_key, "none": lambda entry: entry.id}


@dataclass(frozen=True, slots=True)
class Findings:
    """`repeated`: records that were handled to the end more than once, each with how often; allowed, within reason."""

    lost: list[Id]
    strange: list[Id]
    ahead: list[str]
    backwards: list[str]
    order: list[str]
    needless: list[str]
    unconfirmed: list[str]
    repeated: dict[Id, int]

    def assert_nothing_lost(self) -> None:
        """Every promise that holds whatever happens; repetitions are for the scenario to judge."""
        assert self.lost == [], f"{len(self.lost)} records were lost"
        assert self.strange == [], "records were handled that nobody sent"
        assert self.ahead == [], "commits ran ahead of the handlers"
        assert self.backwards == [], "commits went backwards"
        assert self.order == [], "the order was broken"
        assert self.needless == [], "records started again although they were committed"

    def assert_committed_each(self) -> None:
        """The promise of commit="each": a lane continues only when its last record is committed."""
        assert self.unconfirmed == [], "lanes went on before their last record was committed"

    def assert_exactly_once(self) -> None:
        self.assert_nothing_lost()
        assert self.repeated == {}, f"{len(self.repeated)} records were handled more than once"


def reconcile(
    scene: Scene, *, order: str, finished_otherwise: Collection[Id] = (), zombies: Collection[int] = ()
) -> Findings:
    """Look at everything that happened in the scene so far.

    `finished_otherwise`: records whose terminal fact is not the end of a handler (dead-lettered, discarded). `zombies`:
    processes that were frozen past their session; what they start from memory before they notice is not held against
    them.
    """
    sent = [one.id for one in scene.sent]
    return find(
        sent, scene.journal.spans(), scene.history(), order=order, otherwise=finished_otherwise, zombies=zombies
    )


def find(
    sent: Sequence[Id],
    spans: Sequence[Span],
    history: History,
    *,
    order: str,
    otherwise: Collection[Id] = (),
    zombies: Collection[int] = (),
) -> Findings:
    """The judgement itself; see `reconcile`."""
    ended = {span.id for span in spans if span.ended} | set(otherwise)
    return Findings(
        lost=sorted(set(sent) - ended),
        strange=sorted({span.id for span in spans} - set(sent)),
        ahead=_ahead(history, spans, sent, otherwise),
        backwards=_backwards(history),
        order=_order(spans, LANES[order], zombies),
        needless=_needless(history, spans, zombies),
        unconfirmed=_unconfirmed(history, spans, LANES[order]),
        repeated=_repeated(spans),
    )


def _ahead(history: History, spans: Sequence[Span], sent: Sequence[Id], otherwise: Collection[Id]) -> list[str]:
    """Commits that cover a record before its first end. The broker's clock and the handlers' are the same machine's."""
    first_end_ms: dict[Id, float] = {}
    for span in spans:
        if span.outcome is not None and span.ended:
            first_end_ms[span.id] = min(first_end_ms.get(span.id, float("inf")), span.outcome.wall_ms)
    by_place: dict[tuple[str, int], list[Id]] = defaultdict(list)
    for record in sent:
        by_place[record.topic, record.partition].append(record)
    found = []
    for place, ids in by_place.items():
        covered: set[Id] = set()
        for commit in history.of(*place):
            for record in ids:
                if record in covered or not commit.covers(record):
                    continue
                covered.add(record)
                # The broker's clock counts whole milliseconds.
                if record not in otherwise and first_end_ms.get(record, float("inf")) >= commit.at_ms + 1:
                    found.append(f"{commit} covers {record}, which ended at {first_end_ms.get(record)}")
    return found


def _backwards(history: History) -> list[str]:
    """Offsets of one partition, by the broker's order; at the same offset the map may only grow."""
    last: dict[tuple[str, int], Commit] = {}
    found = []
    for commit in history.commits:
        before = last.get((commit.topic, commit.partition))
        if before is not None:
            shrunk = before.offset == commit.offset and (
                before.finished_above.to_int() & ~commit.finished_above.to_int()
            )
            if commit.offset < before.offset or shrunk:
                found.append(f"{commit} after {before}")
        last[commit.topic, commit.partition] = commit
    return found


def _order(spans: Sequence[Span], lane_of: Lane, zombies: Collection[int]) -> list[str]:
    lanes: dict[Hashable, list[Span]] = defaultdict(list)
    for span in spans:
        lanes[span.start.consumer, lane_of(span.start)].append(span)
    found = []
    for of_lane in lanes.values():
        found += _starts_too_early(of_lane, zombies)
        found += _side_by_side(of_lane)
    return found


def _starts_too_early(of_lane: Sequence[Span], zombies: Collection[int]) -> list[str]:
    """A record may start only when every earlier record of its lane that was ever handled had ended before."""
    first_end: dict[Id, float] = {}
    for span in of_lane:
        if span.ended:
            first_end[span.id] = min(first_end.get(span.id, float("inf")), span.until)
    ids = sorted({span.id for span in of_lane})
    open_until: dict[Id, float] = {}
    latest = float("-inf")
    for record in ids:  # when all before this one had ended
        open_until[record] = latest
        latest = max(latest, first_end.get(record, float("inf")))
    return [
        f"{span.id} started in {span.start.pid} before an earlier record of its lane had ended"
        for span in of_lane
        if span.start.at < open_until[span.id] and span.start.pid not in zombies
    ]


def _side_by_side(of_lane: Sequence[Span]) -> list[str]:
    """In one process the records of a lane never overlap, and go back only to repeat."""
    by_pid: dict[int, list[Span]] = defaultdict(list)
    for span in of_lane:
        by_pid[span.start.pid].append(span)
    return [
        f"{one.id} and {other.id} ran side by side in {pid}"
        for pid, own in by_pid.items()
        for one, other in pairwise(own)
        if other.start.at < one.until
    ]


def _needless(history: History, spans: Sequence[Span], zombies: Collection[int]) -> list[str]:
    """Starts of records that were committed before. (A commit is stored after its millisecond began.)"""
    found = []
    for span in spans:
        if span.start.pid in zombies:
            continue
        for commit in history.of(span.id.topic, span.id.partition):
            if commit.at_ms + 1 < span.start.wall_ms and commit.covers(span.id):
                found.append(f"{span.id} started in {span.start.pid} after {commit}")
                break
    return found


def _unconfirmed(history: History, spans: Sequence[Span], lane_of: Lane) -> list[str]:
    """Sound, not complete: within the millisecond of a commit, nobody can tell what came first."""
    lanes: dict[Hashable, list[Span]] = defaultdict(list)
    for span in spans:
        lanes[span.start.consumer, lane_of(span.start)].append(span)
    found = []
    for of_lane in lanes.values():
        before = dict(pairwise(sorted({span.id for span in of_lane}, reverse=True)))
        for span in of_lane:
            last = before.get(span.id)
            if last is not None and _stored_ms(history, last) > span.start.wall_ms:
                found.append(f"{span.id} started in {span.start.pid} before {last} was committed")
    return found


def _stored_ms(history: History, record: Id) -> float:
    """When the broker first stored a commit that covers the record."""
    commits = history.of(record.topic, record.partition)
    return next((commit.at_ms for commit in commits if commit.covers(record)), float("inf"))


def _repeated(spans: Sequence[Span]) -> dict[Id, int]:
    counts: dict[Id, int] = defaultdict(int)
    for span in spans:
        counts[span.id] += span.ended
    return {record: count for record, count in counts.items() if count > 1}
