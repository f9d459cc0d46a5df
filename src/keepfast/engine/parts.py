"""What one consumer's loop is made of, for those parts that look at all others: status, shutdown, control."""

from __future__ import annotations

from dataclasses import dataclass

from keepfast.core.lanes import Lanes
from keepfast.core.runs import InFlight
from keepfast.engine.commits import Committer
from keepfast.engine.counts import Counts
from keepfast.engine.crash_guard import Probation
from keepfast.engine.events import Events
from keepfast.engine.failures import Failures
from keepfast.engine.guards import Guards, Holds
from keepfast.engine.intake import Intake
from keepfast.engine.ownership import Ownership
from keepfast.engine.plan import Plan
from keepfast.engine.queue import Locks
from keepfast.engine.rebalance import Assignment, Handover
from keepfast.engine.subscription import Subscription
from keepfast.engine.timeouts import Overdue


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopParts:
    """Owner: the loop thread."""

    plan: Plan
    lanes: Lanes
    ownership: Ownership
    in_flight: InFlight
    committer: Committer
    intake: Intake
    holds: Holds
    guards: Guards
    failures: Failures
    counts: Counts
    probation: Probation
    assignment: Assignment
    handover: Handover
    overdue: Overdue
    locks: Locks | None
    subscription: Subscription
    events: Events
