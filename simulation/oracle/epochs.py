"""The records of a partition, and what one member did with those that it was given while it owned it."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from keepfast.core.crash_guard import UNKNOWN, Fate
from keepfast.core.records import TopicPartition
from simulation.oracle.cover import Cover
from simulation.oracle.suspicion import Suspicion
from simulation.workload import Entry

Lane = Hashable


class PartitionRecords:
    """The records of one partition, in order of their offsets."""

    __slots__ = ("_low", "by_offset", "entries", "floor", "gone", "start")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.by_offset: dict[int, Entry] = {}
        self.floor = 0  # below it lie offsets that a former topic of this name used
        self.start = 0  # of the log
        self.gone: set[int] = set()  # compacted away
        self._low = 0

    def exists(self, offset: int) -> bool:
        """Whether a record is to be read there."""
        return offset >= self.start and offset in self.by_offset and offset not in self.gone

    def add(self, entry: Entry) -> None:
        entry.shadowed = entry.offset < self.floor
        self.entries.append(entry)
        self.by_offset[entry.offset] = entry

    def first_open(self) -> Entry | None:
        """The lowest record that is neither finished nor excused, and that no commit may cover."""
        while self._low < len(self.entries):
            entry = self.entries[self._low]
            if entry.open and not entry.shadowed:
                break
            self._low += 1
        return self.entries[self._low] if self._low < len(self.entries) else None

    def reopen(self, *, at: int, but: set[int]) -> None:
        """An operator had the group go back: what lies from there on has to be finished again."""
        for entry in self.entries:
            if entry.offset >= at and entry.number not in but:
                entry.terminal = ""
        self._low = 0

    def excuse(self, why: str, *, below: int) -> None:
        for entry in self.entries:
            if entry.offset < below and entry.open:
                entry.excused = why

    def renew(self, end: int) -> None:
        """The topic is recreated."""
        self.excuse("the topic was deleted", below=end + 1)
        self.entries, self.by_offset, self._low = [], {}, 0
        self.start, self.gone = 0, set()
        self.floor = max(self.floor, end)


class Epoch:
    """One stretch of reading by one member, from a position on: what it was handed and what it did with it."""

    def __init__(
        self,
        member: str,
        place: TopicPartition,
        start: int,
        covered: Cover | None,
        at: float,
        *,
        fate: Fate = UNKNOWN,
        left_by: str = "",
        end: int = 0,
        before: Epoch | None = None,
    ) -> None:
        self.member = member
        self.place = place
        self.start = start
        self.covered = covered
        self.begun_at = at
        self.alive = True
        self.ended_at = at  # if it is not alive any more
        self.given: dict[int, float] = {}  # number → when
        self.by_offset: dict[int, Entry] = {}  # the same
        self.finished: set[int] = set()
        self.discarded: set[int] = set()
        """What the handler of a batch dropped by name. It is finished when the others of its batch are; if that is
        broken up before, it comes again, in any order.
        """
        self.lanes: dict[Lane, deque[Entry]] = {}  # what was given and is not finished, in order
        self.waiting: dict[int, Entry] = {}  # the same, whatever its lane
        self.waiting_bytes = 0
        self.running: set[int] = set()
        self.failures: dict[int, int] = {}
        self.failed_at: dict[int, float] = {}
        self.due: dict[int, float] = {}
        self.outcomes: dict[int, str] = {}  # of the last attempt
        self.asked_s: dict[int, float] = {}  # how long its batch was to wait
        self.letters: set[int] = set()
        self.killers: set[int] = set()
        """Whose letters say that they kill their process; the smallest form of such a letter says it no more."""
        self.timed_out: dict[int, float] = {}  # number → when
        self.stays: set[int] = set()  # too large for a retry topic
        self.last_of_lane: dict[Lane, Entry] = {}
        self.uncommitted: dict[Lane, Entry] = {}  # lanes whose last record no stored commit covers yet
        self.freed_at: dict[Lane, float] = {}
        self.finished_at = at
        self.sent: Cover | None = None
        self.accepted: Cover | None = None
        self.suspicion = Suspicion(covered, fate, left_by=left_by, member=member, end=end)
        self.before = before  # the epoch that an operator's seek has ended
        self.sought_away = False  # it was ended by a seek that the broker has stored: its results count no more
        if before is not None:
            self.suspicion.carry_over(before.suspicion)

    def knows_finished(self, entry: Entry) -> bool:
        return entry.number in self.finished or (self.covered is not None and entry.offset in self.covered)

    def has_suspects(self) -> bool:
        """Whether records in flight may have been in flight when an owner died for the second time."""
        return any(self.suspicion.is_suspect(entry.offset) for entry in self.waiting.values())

    def lowest(self) -> Entry | None:
        return min(self.waiting.values(), key=lambda entry: entry.offset) if self.waiting else None

    def __str__(self) -> str:
        return f"{self.member} on {self.place} from {self.start}"
