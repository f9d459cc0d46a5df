"""Plants in what becomes of handlers that take too long."""

from __future__ import annotations

from typing import Any

from keepfast.core import timeouts
from keepfast.core.batches import Batch
from keepfast.core.errors import HandlerTimeout
from keepfast.core.lanes import KeyLanes
from keepfast.core.runs import Run
from keepfast.core.verdicts import Done, Verdict
from keepfast.engine.batches import Bad, Batches
from keepfast.engine.timeouts import Overdue
from simulation.plants.plant import Patch, plant


@plant
def believes_a_handler_that_comes_back_too_late(patch: Patch) -> None:
    def came_back(self: Overdue, run: Run, now: float) -> None:
        original(self, run, now)
        loop: Any = self._returned.__self__  # type: ignore[attr-defined]
        for failed_record in list(run.partition.failed_records):
            if (
                run.done
                and failed_record.message is run.messages[run.done - 1]
                and failed_record in loop.failures.settling
            ):
                loop.handover.drop(failed_record)
                loop.failures.forwarder.drop(failed_record)
                failed_record.partition.finish_failed(failed_record)
                loop.committer.mark_dirty(failed_record.partition)

    original = patch.set(Overdue, "came_back", came_back)


@plant
def goes_on_with_the_very_run_that_its_worker_still_has(patch: Patch) -> None:
    patch.set(Run, "stand_in", _itself)


def _itself(run: Run, done: int, failure: BaseException, now: float) -> Run:
    run.done, run.failure, run.abandoned = done, failure, False
    return run


@plant
def gives_up_more_handlers_than_it_may(patch: Patch) -> None:
    patch.set(Overdue, "abandoned", lambda self, now: 0)


@plant
def times_the_run_instead_of_the_record(patch: Patch) -> None:
    def look(self: timeouts.OverdueWatch, begun_at: float, at: int, passed_s: float) -> float:
        self.spent_s += passed_s
        return self.spent_s

    patch.set(timeouts.OverdueWatch, "look", look)


@plant
def counts_time_in_which_the_process_stood_still(patch: Patch) -> None:
    def watched_s(self: Overdue, now: float) -> float:
        since_s, self._looked_at = now - self._looked_at, now
        return since_s

    patch.set(Overdue, "_watched_s", watched_s)


@plant
def leaves_the_lanes_with_the_run_that_was_given_up(patch: Patch) -> None:
    patch.set(KeyLanes, "_let_go", lambda *_: None)  # else it has only one of them left by then
    patch.set(KeyLanes, "replace", lambda *_: None)


@plant
def tries_again_what_has_timed_out(patch: Patch) -> None:
    def stand_in(self: Run, done: int, failure: BaseException, now: float) -> Run:
        return original(self, done, OSError(str(failure)), now)  # type: ignore[no-any-return]

    original = patch.set(Run, "stand_in", stand_in)


@plant
def never_gives_up(patch: Patch) -> None:
    patch.set(Overdue, "_overdue", lambda *_: None)


@plant
def waits_for_ever_for_a_run_of_an_earlier_epoch(patch: Patch) -> None:
    patch.set(Overdue, "_may_go_on_without", lambda *_: False)


@plant
def does_not_wait_for_a_run_of_an_earlier_epoch(patch: Patch) -> None:
    patch.set(Overdue, "_may_go_on_without", lambda _, run, *__: run.current == run.done)


@plant
def gives_up_what_it_should_wait_for(patch: Patch) -> None:
    def overdue(self: Overdue, run: Run, at: int, now: float) -> None:
        self._give_up(run, at, HandlerTimeout(self._policy.timeout_s or 0.0), now)

    patch.set(Overdue, "_overdue", overdue)


@plant
def takes_a_run_of_this_epoch_for_one_of_an_earlier_one(patch: Patch) -> None:
    patch.set(Run, "stale_holders", lambda self: (self.failed_record or self,))
    patch.set(Overdue, "_may_go_on_without", lambda *_: False)


@plant
def goes_on_with_the_very_batch_that_its_worker_still_has(patch: Patch) -> None:
    patch.set(Batch, "stand_in", _itself)


@plant
def dead_letters_all_records_of_a_batch_that_has_timed_out(patch: Patch) -> None:
    def judged(self: Batches, batch: Batch, failure: BaseException | None, bad: Bad, now: float) -> Verdict:
        if isinstance(failure, HandlerTimeout):
            bad |= dict.fromkeys(batch.members(), failure)
            return Done()
        verdict: Verdict = before(self, batch, failure, bad, now)
        return verdict

    before = patch.set(Batches, "_judged", judged)
