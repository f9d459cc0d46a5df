"""Plants in worker coroutines, and in what becomes of the records that handlers send."""

from __future__ import annotations

from typing import Any

from keepfast.core.errors import Discard, Reject
from keepfast.core.runs import Run
from keepfast.engine import calls
from keepfast.engine.context import HandlerSends
from keepfast.engine.failures import Failures
from keepfast.engine.loop import Starter
from keepfast.engine.workers import CoroutineExecutor
from simulation.plants.plant import Patch, plant


@plant
def does_not_replace_a_worker_that_was_cancelled(patch: Patch) -> None:
    patch.set(CoroutineExecutor, "_replace", lambda self, tally, number: None)


@plant
def wakes_a_worker_that_was_cancelled(patch: Patch) -> None:
    def wake(self: CoroutineExecutor) -> bool:
        if self._idle:
            self._idle.popleft().set_result(None)
            return True
        return False

    patch.set(CoroutineExecutor, "_wake", wake)


@plant
def waits_for_sends_only_if_the_handler_has_the_last_word(patch: Patch) -> None:
    async def wait_for_sends_async(run: Run, error: BaseException | None = None) -> None:
        if error is None or isinstance(error, Discard | Reject):
            await before(run, error)

    before = patch.set(calls, "wait_for_sends_async", wait_for_sends_async)


@plant
def waits_for_no_sends(patch: Patch) -> None:
    async def wait_for_sends_async(run: Run, error: BaseException | None = None) -> None: ...

    patch.set(calls, "wait_for_sends_async", wait_for_sends_async)


@plant
def goes_on_without_the_sends_of_a_handler_that_it_gave_up(patch: Patch) -> None:
    patch.set(HandlerSends, "close", lambda self, answered: answered(None))


@plant
def lets_what_the_handler_raised_stand_although_a_send_failed(patch: Patch) -> None:
    def decisive(self: Failures, error: Any) -> Any:
        return getattr(error, "raised", None) or error

    patch.set(Failures, "decisive", decisive)


@plant
def keeps_the_place_of_a_handler_that_it_gave_up_while_it_had_sends_open(patch: Patch) -> None:
    def back(self: Starter, run: Run) -> None:
        if not run.sending:
            before(self, run)

    before = patch.set(Starter, "back", back)
