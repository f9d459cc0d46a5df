"""What the handlers of a scenario wrote down, told by identity: which record, which process, from when to when."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Id(NamedTuple):
    """Which record."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A handler started, failed or ended. `at` is the machine's monotonic clock, the same in all processes."""

    pid: int
    what: str  # "start" | "fail" | "end"
    consumer: str
    id: Id
    key: bytes | None
    attempt: int
    at: float
    wall_ms: float


@dataclass(frozen=True, slots=True)
class Span:
    """One call of a handler. `outcome` is None if the process died, or the handler is still at it."""

    start: Entry
    outcome: Entry | None

    @property
    def id(self) -> Id:
        return self.start.id

    @property
    def ended(self) -> bool:
        return self.outcome is not None and self.outcome.what == "end"

    @property
    def until(self) -> float:
        return float("inf") if self.outcome is None else self.outcome.at


Lane = Callable[[Entry], Hashable]


def by_partition(entry: Entry) -> Hashable:
    return entry.id.topic, entry.id.partition


def by_key(entry: Entry) -> Hashable:
    """Null keys are unordered: each record is a lane of its own."""
    return entry.id if entry.key is None else (entry.id.topic, entry.key)


class Journal:
    """The file that all members of a scenario append to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_bytes = 0
        self._entries: list[Entry] = []

    def entries(self) -> list[Entry]:
        """In order of time. Lines that are being written are left for the next look."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read_bytes)
            new = file.read()
        new = new[: new.rfind(b"\n") + 1]
        if new:
            self._read_bytes += len(new)
            self._entries += (_entry(json.loads(line)) for line in new.splitlines())
            self._entries.sort(key=lambda entry: entry.at)
        return list(self._entries)

    def of(self, what: str, *, pid: int | None = None) -> list[Entry]:
        return [entry for entry in self.entries() if entry.what == what and pid in (None, entry.pid)]

    def started(self, *, pid: int | None = None) -> set[Id]:
        return {entry.id for entry in self.of("start", pid=pid)}

    def ended(self, *, pid: int | None = None) -> set[Id]:
        return {entry.id for entry in self.of("end", pid=pid)}

    def spans(self) -> list[Span]:
        """Every call of a handler, by the time of its start."""
        return spans_of(self.entries())


def spans_of(entries: Iterable[Entry]) -> list[Span]:
    """Pairs starts with what followed; a handler runs one attempt at one record at a time in each process."""
    spans: list[Span] = []
    open_at: dict[tuple[int, str, Id], int] = {}
    for entry in entries:
        who = (entry.pid, entry.consumer, entry.id)
        if entry.what == "start":
            open_at[who] = len(spans)
            spans.append(Span(entry, None))
        else:
            index = open_at.pop(who)
            spans[index] = Span(spans[index].start, entry)
    return spans


def _entry(line: dict[str, object]) -> Entry:
    fields = dict(line)
    key = fields.pop("key")
    id_ = Id(str(fields.pop("topic")), int(str(fields.pop("partition"))), int(str(fields.pop("offset"))))
    return Entry(id=id_, key=None if key is None else bytes.fromhex(str(key)), **fields)  # type: ignore[arg-type]
