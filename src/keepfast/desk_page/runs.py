"""Replays as the desk's library carries them out."""

from __future__ import annotations

from keepfast.core.errors import KeepfastError
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.desk import Desk
from keepfast.desk.facts import RunFact
from keepfast.desk_page.replays import PlanRequest, PlanView, RunView, Via

BY_COMMAND = "Replay with `keepfast dlq replay` for now; the command is below."


class DeskReplays:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def close(self) -> None: ...

    def plan(self, where: CaseFilter, asked: PlanRequest, by: str, *, via: Via) -> PlanView:  # noqa: ARG002 - to come
        raise KeepfastError(BY_COMMAND)

    def start(self, plan: str, by: str) -> str:  # noqa: ARG002 - to come
        raise KeepfastError(BY_COMMAND)

    def order(self, run: str, verb: str, by: str) -> None:  # noqa: ARG002 - to come
        raise KeepfastError(BY_COMMAND)

    def view(self, fact: RunFact) -> RunView:
        return RunView(fact, self._desk.index.succeeded(fact.run), self._desk.index.failed_again(fact.run))
