"""What ends or is answered late may be about an earlier epoch: the oracle holds none of it against the present one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from keepfast.core.errors import Fault, SourceError
from keepfast.core.records import TopicPartition
from keepfast.telemetry.state import Problem, SeekResult
from keepfast.testing.fakes import trace
from keepfast.testing.fakes.faults import CommitFault
from keepfast.testing.fakes.settings import WorldSettings
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


@pytest.mark.parametrize("begins", [True, False], ids=["once it has begun", "before it can begin"])
def test_a_commit_refused_after_its_topic_was_recreated_says_nothing_of_the_new_one(
    *, begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it `begins` at once, the broker does not say where until the commit is answered."""
    stage = Stage(partitions=2, records=6, reset="latest")
    stage.until(stage.done)
    broker, events = stage.world.broker, stage.world.trace.events
    source = stage.member.source
    beginnings = source.beginnings

    def late(places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        if not begins and not any(map(is_refused, events)):
            raise SourceError("no answer", fault=Fault.RETRY, code="_TIMED_OUT")
        return beginnings(places, timeout_s)

    monkeypatch.setattr(source, "beginnings", late)
    if begins:
        broker.faults.refused.order(PLACE, "TOPIC_AUTHORIZATION_FAILED", duration_s=30.0)
    else:
        broker.faults.commits.order(CommitFault.RETRY, duration_s=30.0)
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
    first = [trace.Reset] if begins else []
    assert [*dict.fromkeys(order)] == [*first, trace.CommitAnswered, trace.RevokedBegin]


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


def test_a_seek_that_is_stored_after_the_next_one_has_begun_takes_nothing_back_of_it() -> None:
    """The first seek is answered before its commit is stored, and the second one skips records that the first one has
    the group read again.
    """
    stage = Stage(records=6, world=WorldSettings(latency_s=(0.2, 0.2), edges_delay_s=(0.001, 0.001)))
    stage.until(stage.done)
    place, faults = TopicPartition("orders", 0), stage.world.broker.faults
    events, answers = stage.world.trace.events, list[SeekResult | Problem]()
    faults.commits.order(CommitFault.RETRY, duration_s=60.0)
    seek(stage, place, 1, answers)
    stage.until(lambda: answers)
    faults.clear()
    stage.until(lambda: isinstance(events[-1], trace.CommitSent))
    seek(stage, place, 4, answers)
    stage.until(lambda: len(answers) == 2 and stage.done())
    order = [event for event in events if isinstance(event, trace.Reset | trace.CommitAccepted)]
    first = next(at for at, event in enumerate(order) if isinstance(event, trace.Reset))
    assert [event.offset for event in order[first:]] == [1, 4, 1, 4, 5, 6], "resets to 1 and 4, then commits"


def seek(stage: Stage, place: TopicPartition, to: int, answers: list[SeekResult | Problem]) -> None:
    """Order it, and put its answer into the list."""

    def answered(answer: SeekResult | Problem) -> None:
        stage.oracle.seek_answered(stage.member.name, place, answer)
        answers.append(answer)

    assert stage.oracle.seek_ordered(stage.member.name, place, to)
    stage.member.seek(place, to, answered)
