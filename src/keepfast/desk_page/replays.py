"""Replays from the page: what is asked for, the plan that answers it, and how a run is shown."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import Case
from keepfast.desk.facts import RunFact
from keepfast.desk_page.wording import count, plural

Via = Literal["command", "page", "api"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """How to replay. `rate`: records per second; `canary`: so many first; `stop`: at more than so many per cent of
    failures. `to` empty: the original topic, unless other groups read it. `transform`: the name of one that the desk
    was started with.
    """

    rate: int = 0
    canary: int = 0
    stop: int = 0
    to: Literal["", "topic", "group"] = ""
    again: bool = False
    transform: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> PlanRequest:
        """From the fields of a form; what is not a number is left out."""
        to = given.get("to", "")
        return cls(
            rate=_bounded(given.get("rate", ""), 1_000_000),
            canary=_bounded(given.get("canary", ""), 100_000),
            stop=_bounded(given.get("stop", ""), 100),
            to="topic" if to == "topic" else "group" if to == "group" else "",
            again=bool(given.get("again")),
            transform=given.get("transform", "")[:500],
        )

    def words(self) -> list[str]:
        """The same in the words of the command line."""
        numbers = (("--rate", self.rate), ("--canary", self.canary), ("--stop-if-failing", self.stop))
        words = [f"{name} {value}" for name, value in numbers if value]
        words += [f"--to {self.to}"] if self.to else []
        words += [f"--transform {shlex.quote(self.transform)}"] if self.transform else []
        return [*words, *(["--again"] if self.again else [])]


@dataclass(frozen=True, slots=True)
class NamedCount:
    """How many records go to a topic, or are left out for a reason."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class TopicReaders:
    """Other groups that read a destination."""

    topic: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordChange:
    """What the transform does to one record: lines of a difference, masked."""

    name: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """A dry run. `id` starts it: its selection is frozen."""

    id: str
    records: int
    cases: int
    destinations: tuple[NamedCount, ...]
    excluded: tuple[NamedCount, ...]
    readers: tuple[TopicReaders, ...] = ()
    duration_s: float | None = None
    warnings: tuple[str, ...] = ()
    changes: tuple[RecordChange, ...] = ()

    @property
    def excluded_total(self) -> int:
        return sum(one.count for one in self.excluded)


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with what became of its records."""

    fact: RunFact
    succeeded: int
    failed_again: int
    here: bool = False
    """Whether this desk carries it out."""

    @property
    def under_way(self) -> bool:
        return self.fact.status == "running"

    @property
    def pending(self) -> int:
        return max(0, self.fact.sent - self.succeeded - self.failed_again)

    @property
    def word(self) -> str:
        return {"running": "sending", "done": "all sent"}.get(self.fact.status, self.fact.status)

    @property
    def colour(self) -> str:
        colours = {"running": "accent", "done": "good", "paused": "warn", "stopped": "bad", "cancelled": ""}
        return "bad" if self.fact.status == "done" and self.failed_again else colours.get(self.fact.status, "")

    @property
    def sentence(self) -> str:
        fact = self.fact
        if fact.status in ("running", "paused"):
            return f"{count(fact.sent)} of {plural(fact.total, 'record')} sent."
        if fact.status in ("cancelled", "stopped"):
            how = "was cancelled" if fact.status == "cancelled" else "stopped"
            return f"It {how} after {count(fact.sent)} of {plural(fact.total, 'record')}."
        if self.pending:
            return f"All {count(fact.sent)} are sent; {count(self.pending)} have no outcome yet."
        if self.failed_again:
            return f"{count(self.succeeded)} came through, {count(self.failed_again)} failed again."
        return f"All {count(self.succeeded)} came through."

    @property
    def orders(self) -> tuple[tuple[str, str], ...]:
        """What may be ordered now."""
        match self.fact.status:
            case "running":
                return (("pause", "Pause"), ("cancel", "Cancel"))
            case "paused" | "stopped":
                return (("resume", "Resume"), ("cancel", "Cancel"))
            case _:
                return ()

    def share(self, number: int) -> float:
        """Of a hundred, for the bar."""
        return round(100 * number / max(1, self.fact.total), 3)


class ReplayService(Protocol):
    """Plans and runs. Methods block and raise KeepfastError. `transforms`: the names of those that may be used."""

    @property
    def transforms(self) -> Sequence[str]: ...

    def plan(self, where: CaseFilter, asked: PlanRequest, *, via: Via) -> PlanView:
        """A dry run; nothing is sent."""
        ...

    def start(self, plan: str, by: str) -> str:
        """Begin to send a plan; returns the name of the run."""
        ...

    def edit(self, case: Case, value: bytes, by: str, *, why: str) -> str:
        """Send the record of a case with another value; returns the name of the run."""
        ...

    def order(self, run: str, verb: str, by: str) -> None:
        """Pause, resume or cancel a run."""

    def view(self, fact: RunFact) -> RunView: ...


def _bounded(text: str, most: int) -> int:
    return min(int(text), most) if text.isdecimal() and len(text) < 12 else 0
