"""Outputs go with the commit of their records: again after a failure, as memory meanwhile, and never beside it."""

from __future__ import annotations

from collections.abc import Sequence

from keepfast.core.errors import Fault, Reject, SinkError, SourceError
from keepfast.core.ports import CommitOutcome, Position
from keepfast.core.records import Outgoing, Output
from keepfast.core.runs import Partition
from tests.engine.world import World, refusing


def finished_with(world: World, *outputs: Output) -> Partition:
    """A record of partition 0 is finished, and gave these."""
    world.feed("a")
    settle(world, pass_s=0.0)
    partition = next(iter(world.loop.ownership))
    for output in outputs:
        partition.add_output(output)
    return partition


def settle(world: World, *, pass_s: float = 0.3) -> None:
    for _ in range(4):
        world.step(pass_s=pass_s)


def test_outputs_of_a_commit_that_failed_are_in_the_next_one_and_count_as_memory() -> None:
    world = World(lambda _: None, batch=None, exactly_once=True)
    output = Output(Outgoing("out", b"value"))
    partition = finished_with(world, output)
    sent: list[tuple[Output, ...]] = []
    commit = world.source.commit
    world.source.commit = lambda positions: (sent.append(positions[0].outputs), commit(positions))  # type: ignore[method-assign, func-returns-value, assignment]
    world.source.refused = {world.places[0]: Fault.RETRY}
    world.work()
    settle(world)
    assert partition.held_bytes == output.size
    world.source.refused = {}
    settle(world)
    settle(world)
    assert len(sent) > 1
    assert {outputs for outputs in sent if outputs} == {(output,)}, "the same in each, until one is confirmed"
    assert (partition.outputs, partition.held_bytes) == ([], 0)


def test_a_letter_that_is_too_large_for_a_transaction_goes_in_a_shorter_form() -> None:
    world = World(refusing("0:0", error=lambda: Reject("no")), batch=None, exactly_once=True)
    seen: list[int] = []

    def commit(positions: Sequence[Position]) -> None:
        assert world.source.listener is not None
        letters = [output for position in positions for output in position.outputs]
        seen.extend(len(output.outgoing.value or b"") for output in letters)
        if letters and len(seen) == 1:
            error = SourceError("aborted", fault=Fault.REFUSED, code="MSG_SIZE_TOO_LARGE")
            error.refused = letters[0], SinkError("too large", fault=Fault.TOO_LARGE, code="MSG_SIZE_TOO_LARGE")
            world.source.listener.on_committed(CommitOutcome((), tuple((one, error) for one in positions)))
        else:
            world.source.listener.on_committed(CommitOutcome(tuple(positions)))

    world.source.commit = commit  # type: ignore[method-assign]
    world.feed("a")
    settle(world, pass_s=0.0)
    world.work()
    for _ in range(3):
        settle(world)
    assert len(seen) == 2
    assert seen[1] < seen[0]
    assert world.sink.sent == [], "nothing goes beside the transaction"


def test_a_broker_that_takes_too_little_metadata_ends_a_consumer_whose_outputs_depend_on_it() -> None:
    world = World(lambda _: None, batch=None, exactly_once=True, max_deliveries=3)
    world.source.most_metadata = 3
    world.feed("a")
    settle(world)
    assert world.loop.ending is not None
    assert world.loop.ending.kind == "failed"
    assert "offset.metadata.max.bytes" in world.loop.ending.reason
