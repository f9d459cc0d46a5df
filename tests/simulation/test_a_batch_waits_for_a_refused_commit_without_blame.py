"""A batch handler starts nothing of a partition whose commits are refused until the next try, up to 10 s later."""

from __future__ import annotations

from keepfast.core.policies import BatchPolicy, RetryPolicy
from keepfast.core.records import TopicPartition
from tests.simulation.stage import Stage

PLACE = TopicPartition("orders", 0)


def test_what_waits_for_the_next_try_is_not_called_starved() -> None:
    """The refusal ends just after the last try but one, so that the records wait for the longest pause between two."""
    retry = RetryPolicy(initial_delay_ms=100, max_delay_ms=100)
    stage = Stage(records=2, retry=retry, batch=BatchPolicy(size=2, wait_s=0.01))
    stage.until(stage.done)
    stage.world.broker.faults.refused.order(PLACE, "TOPIC_AUTHORIZATION_FAILED", duration_s=13.0)
    stage.produce(1)
    stage.run(1.0)
    stage.produce(1)
    assert stage.until(stage.done) > 20.0
    assert stage.terminals() == ["handled"] * 4
