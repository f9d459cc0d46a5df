"""Plants in seeks of operators."""

from __future__ import annotations

from functools import partial
from typing import Any

from keepfast.core.ports import BEGINNING, Position
from keepfast.core.runs import Partition, Run
from keepfast.engine import seeks
from keepfast.engine.loop import Loop
from keepfast.engine.rebalance import Assignment, Handover
from simulation.plants.plant import Patch, plant


@plant
def keeps_the_completion_map_after_a_seek(patch: Patch) -> None:
    def begin_at(self: Assignment, partition: Partition, offset: int, handover: Handover) -> Any:
        finished = partition.ledger.completion()
        begin = self._ownership.begin
        self._ownership.begin = partial(begin, resumed=finished)  # type: ignore[method-assign]
        try:
            return original(self, partition, offset, handover)
        finally:
            self._ownership.begin = begin  # type: ignore[method-assign]

    original = patch.set(Assignment, "begin_at", begin_at)


@plant
def goes_on_with_the_epoch_before_a_seek(patch: Patch) -> None:
    def begin_at(self: Assignment, partition: Partition, offset: int, handover: Handover) -> Partition:
        self._source.reset(Position(partition.place, offset))
        self._source.resume([partition.place])
        partition.closing, partition.committed = False, (BEGINNING, "")
        return partition

    patch.set(Assignment, "begin_at", begin_at)


@plant
def lets_a_result_of_the_epoch_before_a_seek_count(patch: Patch) -> None:
    heirs: dict[Partition, Partition] = {}

    def begin_at(self: Assignment, partition: Partition, offset: int, handover: Handover) -> Any:
        begun = original(self, partition, offset, handover)
        if begun is not None:
            heirs[partition] = begun
        return begun

    def came_back(self: Loop, run: Run, now: float) -> None:
        heir = heirs.get(run.partition)
        if heir is not None and heir.live and run.done and run.failed_record is None and heir.ledger.last >= 0:
            last = run.messages[run.done - 1].offset()
            below = [seq for seq in range(heir.ledger.lowest, heir.buffered_seq) if heir.ledger.offset_of(seq) <= last]
            heir.ledger.finish(below)
            self.committer.mark_dirty(heir)
        returned(self, run, now)

    original = patch.set(Assignment, "begin_at", begin_at)
    returned = patch.set(Loop, "_returned", came_back)


@plant
def calls_a_seek_done_before_it_is_committed(patch: Patch) -> None:
    patch.set(seeks, "_is_committed", lambda _: True)


@plant
def leaves_a_partition_paused_after_a_seek(patch: Patch) -> None:
    patch.set(Handover, "takes_in", property(lambda _: False))
