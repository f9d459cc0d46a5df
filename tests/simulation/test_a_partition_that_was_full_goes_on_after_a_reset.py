"""A partition is paused because its buffer is full, and then its position turns out to lie outside the log.

The race is rare in random seeds (the report must be on its way when the pause comes), and it stalled a partition for
ever.
"""

from __future__ import annotations

from dataclasses import replace

from keepfast.core.errors import Fault, SourceError
from keepfast.core.policies import BufferPolicy, CommitPolicy
from keepfast.core.records import TopicPartition
from keepfast.testing.fakes.acts import OutOfRange
from keepfast.testing.fakes.operations import ErrorOp
from simulation.scenario import Scenario
from simulation.setup import setup_for

PLACE = TopicPartition("orders", 0)


def crowded() -> Scenario:
    """One member that is slower than its one partition fills, and nothing that goes wrong by itself."""
    setup = replace(
        setup_for(0),
        order="partition",
        commit=CommitPolicy(),
        buffer=BufferPolicy(records=3),
        sweep=5,
        partitions={PLACE.topic: 1},
        members=1,
        static=False,
        reset="earliest",
        pace=(0.02, 0.05),
        slow=0.0,
        trouble=0.0,
        faults=(),
        churn=(),
        records=200,
    )
    return Scenario(1, setup=setup)


def test_a_partition_that_was_full_goes_on_after_a_reset() -> None:
    scenario = crowded()
    world, oracle = scenario.world, scenario.oracle
    scenario.chaos.begin()

    def full() -> bool:
        return any(
            partition.paused for member in scenario.chaos.members.values() for partition in member.loop.ownership
        )

    assert world.clock.wait(world.clock.monotonic() + 30, full)
    (member,) = scenario.chaos.members.values()
    world.broker.delete_records(PLACE, world.broker.existing(PLACE).end)
    error = SourceError("outside the log", fault=Fault.OUT_OF_RANGE, code="_AUTO_OFFSET_RESET")
    world.trace.add(OutOfRange(world.clock.monotonic(), member.name, PLACE, 0))
    member.seat.source._operations.append(ErrorOp(error, PLACE))
    assert world.clock.wait(world.clock.monotonic() + 30, lambda: world.broker.existing(PLACE).end > 150)
    scenario.chaos.active = False
    assert world.clock.wait(world.clock.monotonic() + 60, lambda: not oracle.unfinished())
    assert oracle.violation is None
