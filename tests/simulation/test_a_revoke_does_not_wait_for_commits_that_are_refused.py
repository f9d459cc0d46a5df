"""The first refusal of a commit may come inside a revoke, where no answer of the client is heard."""

from __future__ import annotations

from keepfast.core.policies import CommitPolicy
from keepfast.core.records import TopicPartition
from keepfast.engine.rebalance import ABSENT_S
from keepfast.testing.fakes import trace
from tests.simulation.stage import Stage

LATE = CommitPolicy(mode="interval", every_s=1000.0)
REVOKE_S = 10.0


def revoke_s(stage: Stage) -> float:
    """How long the first member takes to let go of what a second one gets."""
    stage.chaos._spawn()
    stage.run(REVOKE_S + 5)
    times = {type(event): event.at for event in reversed(stage.world.trace.events)}
    return times[trace.RevokedEnd] - times[trace.RevokedBegin]


def test_a_revoke_whose_partitions_are_all_refused_ends_soon() -> None:
    stage = Stage(partitions=2, records=6, commit=LATE, revoke_timeout_s=REVOKE_S)
    stage.run(3)
    for number in range(2):
        place = TopicPartition("orders", number)
        stage.world.broker.faults.refused.order(place, "TOPIC_AUTHORIZATION_FAILED", duration_s=60)
    assert revoke_s(stage) < ABSENT_S + 0.5


def test_a_revoke_waits_for_a_coordinator_that_does_not_answer() -> None:
    stage = Stage(partitions=2, records=6, commit=LATE, revoke_timeout_s=REVOKE_S)
    stage.run(3)
    before = len(stage.world.trace.events)

    def freeze(event: trace.Fact) -> None:
        if isinstance(event, trace.RevokedBegin):
            stage.world.broker.freeze(4 * ABSENT_S, data=False, expire_first=False)

    stage.world.trace.listeners.append(freeze)
    assert 4 * ABSENT_S <= revoke_s(stage) < REVOKE_S
    later = stage.world.trace.events[before:]
    assert [event for event in later if isinstance(event, trace.CommitAccepted)], "and is given its answer then"
