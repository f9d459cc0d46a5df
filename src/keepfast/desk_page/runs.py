"""Replays as the desk's library carries them out."""

from __future__ import annotations

from keepfast.core.errors import KeepfastError
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.desk import Desk
from keepfast.desk.facts import RunFact
from keepfast.desk_page.replays import PlanRequest, PlanView, RunView, Via


class DeskReplays:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def close(self) -> None: ...

    def plan(self, where: CaseFilter, asked: PlanRequest, by: str, *, via: Via) -> PlanView:
        raise KeepfastError("not yet")

    def start(self, plan: str, by: str) -> str:
        raise KeepfastError("not yet")

    def order(self, run: str, verb: str, by: str) -> None:
        raise KeepfastError("not yet")

    def view(self, fact: RunFact) -> RunView:
        return RunView(fact, self._desk.index.succeeded(fact.run), self._desk.index.failed_again(fact.run))
