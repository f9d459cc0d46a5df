"""Plants in breaker, storm guard and rate limits."""

from __future__ import annotations

from typing import Any

from keepfast.core import verdicts
from keepfast.core.guards import Breaker, BreakerState, Pace, StormGuard
from keepfast.core.runs import FailedRecord, Run
from keepfast.engine.failures import Failures
from keepfast.engine.guards import BREAKER, STORM, Guards
from keepfast.engine.loop import Loop
from simulation.plants.plant import Patch, plant


@plant
def p45_lets_a_success_elsewhere_reset_the_failures(patch: Patch) -> None:
    def succeeded(self: Breaker, now: float, count: int = 1) -> None:
        original(self, now, count)
        if self.state is BreakerState.CLOSED:
            self.close()

    original = patch.set(Breaker, "succeeded", succeeded)


@plant
def p45_lets_a_success_of_what_was_out_close_the_breaker(patch: Patch) -> None:
    def returned(self: Guards, run: Run, now: float) -> None:
        if run.done and self.breaker is not None and BREAKER in self._holds:
            self.breaker.close()
            self._let_go(BREAKER, now, by="chance")
        original(self, run, now)

    original = patch.set(Guards, "returned", returned)


@plant
def p45_lets_a_success_of_what_was_out_release_the_storm(patch: Patch) -> None:
    def returned(self: Guards, run: Run, now: float) -> None:
        if run.done and self.storm is not None and STORM in self._holds:
            self.storm.release()
            self._let_go(STORM, now, by="chance")
        original(self, run, now)

    original = patch.set(Guards, "returned", returned)


@plant
def p47_dead_letters_a_failed_probe_and_continues(patch: Patch) -> None:
    def ask_storm(self: Guards, storm: Any, verdict: Any, wait_s: Any, now: float, *, probe: bool) -> Any:
        original(self, storm, verdict, wait_s, now, probe=probe)
        return wait_s

    original = patch.set(Guards, "_ask_storm", ask_storm)


@plant
def never_notices_a_storm(patch: Patch) -> None:
    patch.set(StormGuard, "may_dead_letter", lambda *_: True)


@plant
def never_opens_the_breaker_unless_a_record_is_lost(patch: Patch) -> None:
    def failed(self: Breaker, now: float) -> None:
        if self.state is BreakerState.HALF_OPEN:
            original(self, now)

    original = patch.set(Breaker, "failed", failed)


@plant
def dead_letters_a_record_whose_last_attempt_met_an_outage(patch: Patch) -> None:
    def holds_back(self: Guards, failed_record: FailedRecord, found: Any, verdict: Any, now: float, **how: Any) -> Any:
        wait_s = original(self, failed_record, found, verdict, now, **how)
        return None if isinstance(verdict, verdicts.DeadLetter) else wait_s

    original = patch.set(Guards, "holds_back", holds_back)


@plant
def burns_attempts_while_the_breaker_is_open(patch: Patch) -> None:
    def wait(self: Failures, failed_record: FailedRecord, wait_s: float, now: float) -> None:
        failed_record.failures += 1
        original(self, failed_record, wait_s, now)

    original = patch.set(Failures, "_wait", wait)


@plant
def lets_several_probes_out_at_once(patch: Patch) -> None:
    def probe_due(self: Guards, now: float) -> bool:
        self._probe = None
        return original(self, now) or bool(
            self.breaker and self.breaker.state is BreakerState.HALF_OPEN and self._holds == {BREAKER}
        )

    original = patch.set(Guards, "probe_due", probe_due)


@plant
def takes_a_probe_that_went_through_for_one_that_vanished(patch: Patch) -> None:
    patch.set(Guards, "_went_through", Guards._probe_vanished)


@plant
def probes_without_waiting(patch: Patch) -> None:
    def may(self: Breaker, now: float) -> float:
        return 0.0 if self.state is BreakerState.OPEN else float("inf")

    patch.set(Breaker, "probes_in", may)
    patch.set(Breaker, "may_probe", lambda self, _: setattr(self, "state", BreakerState.HALF_OPEN))


@plant
def stops_polling_while_the_breaker_is_open(patch: Patch) -> None:
    def poll(self: Loop, now: float) -> None:
        if BREAKER not in self.holds:
            original(self, now)

    original = patch.set(Loop, "_poll", poll)


@plant
def lets_every_run_start_at_once_whatever_the_rate(patch: Patch) -> None:
    patch.set(Pace, "wait_s", lambda *_: 0.0)


@plant
def forgets_the_rate_of_a_partition(patch: Patch) -> None:
    patch.set(Pace, "partition_wait_s", lambda *_: 0.0)


@plant
def retries_sooner_than_the_rate_allows(patch: Patch) -> None:
    def failed(self: Failures, failed_record: FailedRecord, error: BaseException, now: float) -> None:
        self._floor_s = 0.0
        original(self, failed_record, error, now)

    original = patch.set(Failures, "failed", failed)
