"""Plants in what is done with batches."""

from __future__ import annotations

from typing import Any

from keepfast.core.batches import Batch
from keepfast.core.runs import Run
from keepfast.engine.batch_lanes import BatchLanes
from keepfast.engine.batches import Batches
from simulation.plants.plant import Patch, plant


@plant
def counts_what_a_failed_batch_did_before_it_failed(patch: Patch) -> None:
    def finished_of(self: Batch, part: Any, first: int) -> list[int]:
        if self.done or self.current < 0:
            return list(before(self, part, first))
        return list(range(min(1, len(part.messages)))) if first == 0 else []

    before = patch.set(Batch, "finished_of", finished_of)


@plant
def retries_a_batch_in_whatever_company_it_finds(patch: Patch) -> None:
    def wait(self: BatchLanes, batch: Batch, until: float) -> None:
        if until > self._clock.monotonic():
            self.put_back(batch.parts)
        else:
            before(self, batch, until)

    before = patch.set(BatchLanes, "wait", wait)


@plant
def hands_over_what_is_behind_a_record_that_it_left_out(patch: Patch) -> None:
    def without_bad(self: Batch, decode: Any, lane_of: Any) -> Any:
        return before(self, decode, lambda _: None)

    before = patch.set(Batch, "_without_bad", without_bad)


@plant
def forgets_what_lies_behind_the_bad_record(patch: Patch) -> None:
    patch.set(BatchLanes, "put_back", lambda *_: None)


@plant
def dead_letters_the_good_with_the_bad(patch: Patch) -> None:
    def search_on(self: Batches, batch: Batch, search: Any, now: float) -> None:
        bad: Any = dict.fromkeys(batch.members(), ValueError("one of them"))
        self._isolate(batch, bad, now)

    patch.set(Batches, "_continue_search", search_on)


@plant
def lets_lanes_go_on_before_what_was_done_of_them_is_committed(patch: Patch) -> None:
    patch.set(BatchLanes, "when_committed", lambda self, batch, then, now: then(now))


@plant
def judges_a_failure_of_records_that_are_no_longer_its_own(patch: Patch) -> None:
    def may_judge(self: Batches, given: list[Run]) -> bool:
        parts = given[0].batch.parts if given and given[0].batch is not None else given
        return bool(before(self, parts))

    before = patch.set(Batches, "_may_judge", may_judge)
