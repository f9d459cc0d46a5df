"""The command that does the same as a view."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from keepfast.core.records import RecordPlace
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.desk import Desk
from keepfast.desk.facts import RunFact

if TYPE_CHECKING:
    from keepfast.desk_page.replays import PlanRequest


class Commands:
    """The commands of a desk's views, to copy. `options`: with these they reach the cluster of the desk."""

    def __init__(self, desk: Desk, options: Sequence[str] = ()) -> None:
        self._desk = desk
        self._options = options

    def causes(self, where: CaseFilter) -> str:
        return self._line("causes", self._topics(where), [*where.words(), *_states(where)])

    def cases(self, where: CaseFilter) -> str:
        return self._line("list", self._topics(where), [*where.words(), *_states(where)])

    def show(self, place: RecordPlace) -> str:
        return self._line("show", [place.topic, place.name])

    def try_letter(self, place: RecordPlace) -> str:
        """For a desk that was started with an app, which is one of its options."""
        return self._line("try", [place.topic, place.name])

    def replay(self, where: CaseFilter, asked: PlanRequest) -> str:
        """A replay is of one dead-letter topic: one command for each."""
        words = [*(["--all"] if where.is_everything else where.words()), *asked.words(), "--dry-run"]
        topics = self._desk.topics_of(where) or self._topics(where)[:1]
        return " && ".join(self._line("replay", [topic], words) for topic in topics)

    def resume(self, run: RunFact) -> str:
        return self._line("resume", [run.run, run.topic])

    def runs(self) -> str:
        return self._line("runs", self._topics(CaseFilter()))

    def audit(self) -> str:
        return self._line("audit", self._topics(CaseFilter()))

    def purge(self) -> str:
        return self._line("purge", self._topics(CaseFilter()), ["--dry-run"])

    def consumers(self, url: str | None) -> str:
        """`url`: of a process that the desk reaches."""
        if url is not None:
            return shlex.join(["keepfast", "ctl", "state", "--url", url])
        return shlex.join(["keepfast", "lag", "--brokers", ",".join(self._desk.cluster.connection.brokers)])

    def _topics(self, where: CaseFilter) -> list[str]:
        return sorted(where.dlqs or self._desk.options.topics)

    def _line(self, verb: str, names: Sequence[str], words: Sequence[str] = ()) -> str:
        """`words` are quoted already."""
        return " ".join(["keepfast dlq", verb, *map(shlex.quote, names), *words, *map(shlex.quote, self._options)])


def _states(where: CaseFilter) -> list[str]:
    return [f"--state {state.value}" for state in sorted(where.states)]


def message_path(case: str) -> str:
    """The address of a record."""
    return f"/message?id={quote(case, safe='')}"
