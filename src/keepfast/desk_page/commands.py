"""The command that does the same as a view."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from keepfast.core.records import RecordPlace
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.facts import RunFact

if TYPE_CHECKING:
    from keepfast.desk_page.replays import PlanRequest


def _line(verb: str, topics: Sequence[str], where: CaseFilter, *more: str) -> str:
    chosen = sorted(where.dlqs) or list(topics)
    names = [shlex.quote(one) for one in chosen]
    states = [f"--state {state.value}" for state in sorted(where.states)] if verb in ("causes", "list") else []
    return " ".join(["keepfast", "dlq", verb, *names, *where.words(), *states, *more])


def causes(topics: Sequence[str], where: CaseFilter) -> str:
    return _line("causes", topics, where)


def cases(topics: Sequence[str], where: CaseFilter) -> str:
    return _line("list", topics, where)


def show(place: RecordPlace) -> str:
    return f"keepfast dlq show {shlex.quote(place.topic)} {place.partition}:{place.offset}"


def try_letter(place: RecordPlace) -> str:
    return f"keepfast dlq try {shlex.quote(place.topic)} {place.partition}:{place.offset} --app MODULE:APP"


def replay(topics: Sequence[str], where: CaseFilter, asked: PlanRequest) -> str:
    return _line("replay", topics, where, *asked.words(), "--dry-run")


def resume(run: RunFact) -> str:
    return f"keepfast dlq resume {shlex.quote(run.run)} {shlex.quote(run.topic)}"


def message_path(case: str) -> str:
    """The address of a record."""
    return f"/message?id={quote(case, safe='')}"
