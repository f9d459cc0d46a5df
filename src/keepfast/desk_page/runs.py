"""Replays from the page, as the desk's library plans and sends them. Each run has a thread of this process."""

from __future__ import annotations

import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, get_args

from keepfast.core.errors import ConfigError, KeepfastError
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import Case
from keepfast.desk.changes import changed_lines
from keepfast.desk.desk import Desk
from keepfast.desk.facts import OrderKind, RunFact
from keepfast.desk.plan import ReplayPlan, ReplayPolicy
from keepfast.desk.run import ReplayRun, Transform, record_of
from keepfast.desk_page.replays import NamedCount, PlanRequest, PlanView, RecordChange, RunView, TopicReaders, Via
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.desk_page")

MAX_PLANS: Final = 50
MAX_CHANGES: Final = 3
"""Records whose change by a transform is shown."""
STOP_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class _Planned:
    """One plan for each dead-letter topic that has selected cases."""

    plans: tuple[ReplayPlan, ...]
    via: Via


class DeskReplays:
    """Implements `replays.ReplayService`. Any thread may call it. A desk that stops leaves its runs to be resumed."""

    def __init__(self, desk: Desk, transforms: Mapping[str, Transform] | None = None) -> None:
        self._desk = desk
        self._transforms = transforms or {}
        self._lock = threading.Lock()  # of the fields below
        self._ordering = threading.Lock()
        self._planned: OrderedDict[str, _Planned] = OrderedDict()
        self._running: dict[str, tuple[ReplayRun, threading.Thread]] = {}

    @property
    def transforms(self) -> Sequence[str]:
        return sorted(self._transforms)

    def close(self) -> None:
        """Stop sending; the runs can be resumed."""
        with self._lock:
            running = list(self._running.values())
        for run, _ in running:
            run.stop()
        for _, thread in running:
            thread.join(STOP_S)

    def plan(self, where: CaseFilter, asked: PlanRequest, *, via: Via) -> PlanView:
        self._desk.refresh()
        if asked.transform and asked.transform not in self._transforms:
            raise ConfigError("The desk was not started with this transform: keepfast desk --transform.")
        policy = ReplayPolicy(
            to=asked.to or None,
            rate_per_s=asked.rate or None,
            canary=asked.canary,
            stop_if_failing=asked.stop or None,
            again=asked.again,
            transform=asked.transform,
        )
        plans = tuple(self._safe(replace(where, dlqs=frozenset({dlq})), policy) for dlq in self._desk.topics_of(where))
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._planned[name] = _Planned(plans, via)
            while len(self._planned) > MAX_PLANS:
                self._planned.popitem(last=False)
        return replace(_view(name, plans, policy), changes=self._changes(plans, asked.transform))

    def _changes(self, plans: Sequence[ReplayPlan], name: str) -> tuple[RecordChange, ...]:
        """What the transform does to the first records. Raises TransformError if it fails at one."""
        if not name:
            return ()
        found = [pair for plan in plans for pair in self._desk.preview(plan, self._transforms[name])]
        return tuple(
            RecordChange(
                f"{before.topic} {before.partition}:{before.offset}", tuple(changed_lines(before, after, reveal=False))
            )
            for before, after in found[:MAX_CHANGES]
        )

    def _safe(self, where: CaseFilter, policy: ReplayPolicy) -> ReplayPlan:
        """Where it was not chosen: only the group that failed gets the records, if others read the topic."""
        plan = self._desk.plan(where, policy)
        return self._desk.plan(where, replace(policy, to="group")) if plan.must_choose else plan

    def start(self, plan: str, by: str) -> str:
        with self._lock:
            planned = self._planned.pop(plan, None)
        if planned is None:
            raise ConfigError("The plan is not known any more: make it again.")
        desk = self._desk.acting_as(by, planned.via)
        runs: list[str] = []
        for one in planned.plans:
            if one.items:
                fact = desk.start(one)
                self._begin(desk, fact)  # before the next is started, which may be refused
                runs.append(fact.run)
        if not runs:
            raise ConfigError("Nothing would be sent.")
        return runs[0]

    def edit(self, case: Case, value: bytes, by: str, *, why: str) -> str:
        desk = self._desk.acting_as(by, "page")
        desk.refresh()
        stored = desk.letter(case.letter)
        if stored is None:
            raise ConfigError("The letter is not there any more.")
        where = CaseFilter(dlqs=frozenset({case.letter.topic}), cases=frozenset({case.id}))
        fact = desk.start_edited(case.id, self._safe(where, ReplayPolicy()).policy, why=why)
        edited = replace(record_of(stored.letter), value=value)
        self._begin(desk, fact, lambda _: edited)
        return fact.run

    def _begin(self, desk: Desk, fact: RunFact, transform: Transform | None = None) -> None:
        name = str(fact.policy.get("transform", ""))
        run = desk.replayer(fact, transform=transform or self._transforms.get(name))

        def execute() -> None:
            try:
                run.execute()
            except KeepfastError as error:
                log.error("replay_ended", run=fact.run, exc=error)  # noqa: TRY400 - our log lines carry it
            finally:
                with self._lock:
                    self._running.pop(fact.run, None)

        thread = threading.Thread(target=execute, name=f"keepfast-replay-{fact.run}", daemon=True)
        with self._lock:
            self._running[fact.run] = run, thread
        thread.start()

    def order(self, run: str, verb: str, by: str) -> None:
        desk = self._desk.acting_as(by, "page")
        kind = next((one for one in get_args(OrderKind) if one == verb), None)
        if kind is None:
            raise ConfigError("A run can be paused, resumed or cancelled.")
        with self._ordering:  # of two who resume a run, one begins it
            desk.refresh_facts()
            with self._lock:
                here = run in self._running
            if kind == "resume" and not here and not desk.is_alive(run):
                self._begin(desk, desk.resume(run))
            else:
                desk.order(run, kind)

    def view(self, fact: RunFact) -> RunView:
        index = self._desk.index
        with self._lock:
            here = fact.run in self._running
        return RunView(fact, index.succeeded(fact.run), index.failed_again(fact.run), here)


def _view(name: str, plans: tuple[ReplayPlan, ...], policy: ReplayPolicy) -> PlanView:
    destinations: Counter[str] = Counter()
    excluded: Counter[str] = Counter()
    readers: dict[str, tuple[str, ...]] = {}
    for plan in plans:
        destinations.update(plan.destinations)
        excluded.update(plan.excluded)
        readers.update(plan.other_readers)
    records = sum(plan.records for plan in plans)
    return PlanView(
        id=name,
        records=records,
        cases=sum(plan.cases for plan in plans),
        destinations=tuple(NamedCount(*one) for one in destinations.most_common()),
        excluded=tuple(NamedCount(*one) for one in excluded.most_common()),
        readers=tuple(TopicReaders(*one) for one in sorted(readers.items())),
        duration_s=None if policy.rate_per_s is None else records / policy.rate_per_s,
        warnings=tuple(warning for plan in plans for warning in _warnings(plan)),
    )


def _warnings(plan: ReplayPlan) -> list[str]:
    found = []
    if plan.later:
        least = "At least " if plan.later_partial else ""
        found.append(
            f"{least}{plan.later:,} of them have a later record of the same key: replaying applies an older state."
        )
    if plan.unreported:
        found.append(f"{plan.unreported:,} do not name their group: what becomes of them is not reported.")
    if not plan.readers_known:
        found.append("Which groups read the destinations is not known.")
    if plan.policy.to_group:
        found.append(
            "They go to replay topics that only the group that failed reads; other groups do not get them again."
        )
    return found
