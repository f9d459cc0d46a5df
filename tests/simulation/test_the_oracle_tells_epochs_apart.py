"""What ends or is answered late may be about an earlier epoch: the oracle holds none of it against the present one."""

from __future__ import annotations

import pytest

from keepfast.core.records import TopicPartition
from keepfast.testing.fakes import trace
from tests.simulation.stage import Stage

PLACE = TopicPartition("orders", 1)
"""What a second member gets."""


@pytest.mark.parametrize("takes_s", [4.0, 4.1, 4.2, 4.3, 4.4])
def test_a_lane_that_a_handler_of_an_earlier_epoch_held_has_time_to_go_on(takes_s: float) -> None:
    """One of these handlers ends just before the oracle looks for records that wait without a reason."""
    stage = Stage(records=3)
    stage.workload.entries[0].takes_s = takes_s
    stage.until(stage.starts)
    stage.world.broker.group("g").evict(stage.member.name)
    stage.until(stage.done)
    assert [start.number for start in stage.starts()] == [0, 0, 1, 2]


def test_a_commit_refused_after_its_topic_was_recreated_says_nothing_of_the_new_one() -> None:
    stage = Stage(partitions=2, records=6)
    stage.until(stage.done)
    broker, events = stage.world.broker, stage.world.trace.events
    broker.faults.refused.order(PLACE, "TOPIC_AUTHORIZATION_FAILED", duration_s=30.0)
    broker.freeze(4.0, data=False)
    stage.oracle.produced(stage.workload.produce(PLACE))
    stage.run(0.5)
    ends = {number: broker.existing(TopicPartition("orders", number)).end for number in range(2)}
    broker.recreate_topic("orders")
    stage.oracle.recreated("orders", ends)
    stage.chaos._spawn()
    stage.until(lambda: any(isinstance(event, trace.RevokedEnd) for event in events))
    order = [
        type(event) for event in events if isinstance(event, trace.Reset | trace.RevokedBegin) or is_refused(event)
    ]
    assert [*dict.fromkeys(order)] == [trace.Reset, trace.CommitAnswered, trace.RevokedBegin]


def is_refused(event: trace.Fact) -> bool:
    return isinstance(event, trace.CommitAnswered) and bool(event.code)


def test_a_hold_of_refused_commits_ends_where_an_operator_moves_the_partition() -> None:
    stage = Stage(partitions=2, records=6)
    stage.until(stage.done)
    stage.world.broker.faults.refused.order(PLACE, "TOPIC_AUTHORIZATION_FAILED", duration_s=5.0)
    stage.oracle.produced(stage.workload.produce(PLACE))
    stage.until(lambda: any(map(is_refused, stage.world.trace.events)))
    answers: list[object] = []
    assert stage.oracle.seek_ordered(stage.member.name, PLACE, 0)
    stage.member.seek(PLACE, 0, answers.append)
    stage.until(lambda: any(isinstance(event, trace.Reset) for event in stage.world.trace.events))
    stage.until(stage.done)
