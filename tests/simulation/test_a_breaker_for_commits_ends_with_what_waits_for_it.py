"""Commits of one partition fail until another member has it: what the member keeps goes on."""

from __future__ import annotations

import pytest

from keepfast.core.records import TopicPartition
from keepfast.engine.commits import TRIP_FAILURES, Committer
from keepfast.engine.loop import COMMIT
from keepfast.testing.fakes import trace
from keepfast.testing.fakes.faults import CommitFault
from tests.simulation.stage import Stage

KEPT, GIVEN = TopicPartition("orders", 0), TopicPartition("orders", 1)


def play() -> None:
    """Let commits of `GIVEN` fail until a second member has it, and then feed `KEPT`. That has had nothing to commit
    since before the trouble, and its position is not committed again for hours.
    """
    stage = Stage(partitions=2, records=6)
    stage.until(stage.done)
    stage.run(5.0)
    first, faults = stage.member, stage.world.broker.faults
    faults.commits.order(CommitFault.RETRY, duration_s=60.0)
    stage.oracle.produced(stage.workload.produce(GIVEN))
    stage.until(lambda: COMMIT in first.loop.holds)
    stage.chaos._spawn()
    stage.until(lambda: any(isinstance(event, trace.RevokedEnd) for event in stage.world.trace.events))
    faults.clear()
    stage.oracle.produced(stage.workload.produce(KEPT))
    stage.until(stage.done)
    stage.run(15.0)


def test_what_a_member_keeps_goes_on() -> None:
    play()


def test_the_oracle_sees_a_breaker_that_stays_open_with_nothing_to_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Committer, "tripped", lambda self, now: self._failures >= TRIP_FAILURES)
    with pytest.raises(AssertionError, match="starved"):
        play()
