"""Breaker, storm guard and rate limits in the real loop, moment by moment, in simulated time."""

from __future__ import annotations

from dataclasses import replace
from email.message import Message
from itertools import pairwise
from urllib.error import HTTPError

import pytest

from keepfast.core.errors import Reject, RetryLater
from keepfast.core.guards import BreakerPolicy, BreakerState, RatePolicy, StormPolicy
from keepfast.core.policies import CommitPolicy, RetryPolicy
from simulation import executor
from simulation.oracle import guards as oracle_guards
from tests.simulation.stage import Stage

BREAKER = BreakerPolicy(failures=3, window_s=5, open_s=2, max_open_s=8)
STORM = StormPolicy(last=20, dead_lettered=5, share=0.5, probe_every_s=3)


def away(_: int) -> BaseException:
    return ConnectionRefusedError("none is there")


def refused(_: int) -> BaseException:
    return Reject("not like this")


def fine(_: int) -> None:
    return None


@pytest.mark.parametrize("order", ["partition", "key", "none"])
@pytest.mark.parametrize("mode", ["each", "interval"])
def test_an_outage_with_a_breaker_costs_few_attempts_and_no_letter(order: str, mode: str) -> None:
    stage = Stage(partitions=4, records=80, order=order, commit=CommitPolicy(mode=mode), breaker=BREAKER)  # type: ignore[arg-type]
    stage.error = away
    stage.until(
        lambda: stage.member.loop.guards.status().breaker is BreakerState.OPEN if stage.chaos.members else False
    )
    before = len(stage.starts())
    assert before <= BREAKER.failures + stage.scenario.setup.capacity
    stage.run(28)
    probes = stage.starts()[before:]
    assert [round(after.at - one.at) for one, after in pairwise(probes)] == [4, 8, 8], "each failed probe doubles it"
    stage.error = fine
    assert stage.until(stage.done) < BREAKER.max_open_s + 1
    assert stage.letters() == 0
    assert set(stage.terminals()) == {"handled"}
    assert stage.member.loop.guards.status().breaker is BreakerState.CLOSED


def test_without_a_breaker_the_same_outage_dead_letters() -> None:
    stage = Stage(partitions=4, records=20)
    stage.error = away
    stage.run(30)
    assert stage.letters() == 20


def test_attempts_that_meet_an_open_breaker_do_not_count() -> None:
    stage = Stage(records=1, breaker=BREAKER, retry=RetryPolicy(max_retries=1, initial_delay_ms=100, jitter=False))
    stage.error = away
    stage.run(20)
    assert [start.attempt for start in stage.starts()] == [1, 2, 2, 2, 2], "the last attempt is made again and again"
    stage.error = lambda _: RuntimeError("something else")
    stage.until(stage.done)
    assert stage.starts()[-1].attempt == 2
    assert stage.letters() == 1, "now it has failed twice"


def test_the_time_of_a_retry_policy_stands_still_while_the_breaker_is_open() -> None:
    retry = RetryPolicy(max_retries=9, initial_delay_ms=100, multiplier=1, jitter=False, max_elapsed_s=1.0)
    stage = Stage(records=1, breaker=BREAKER, retry=retry)
    stage.error = away
    stage.run(20)
    failures = iter([OSError("not yet"), OSError("not yet")])
    stage.error = lambda _: next(failures, None)
    stage.until(stage.done)
    assert stage.terminals() == ["handled"], "20 s of waiting are not among the second that it has"
    assert stage.letters() == 0


def test_nothing_spins_while_the_breaker_is_open_and_polling_goes_on() -> None:
    stage = Stage(partitions=4, records=80, breaker=replace(BREAKER, open_s=1000, max_open_s=1000))
    stage.error = away
    stage.run(5)
    steps = stage.chaos.steps
    stage.run(30)
    assert stage.member.loop.guards.status().breaker is BreakerState.OPEN
    assert 30 / 0.11 <= stage.chaos.steps - steps <= 30 / 0.09, "one turn for each wait in the client"


def test_an_outage_that_only_one_record_meets_does_not_stop_the_others() -> None:
    stage = Stage(partitions=4, records=200, breaker=replace(BREAKER, open_s=3), pace=(0.05, 0.05))
    stage.error = lambda number: away(number) if number == 5 else None
    stage.until(lambda: stage.terminals().count("handled") >= 149, 30)
    assert stage.member.loop.guards.status().breaker_opened == 0
    assert stage.letters() == 0
    stage.error = fine
    stage.until(stage.done)


def test_the_time_of_a_retry_policy_stands_still_for_a_record_that_waits_on_its_own() -> None:
    retry = RetryPolicy(max_retries=9, initial_delay_ms=300, multiplier=1, jitter=False, max_elapsed_s=1.0)
    stage = Stage(partitions=4, records=400, breaker=replace(BREAKER, open_s=3), retry=retry, pace=(0.05, 0.05))
    failures = iter([*[ConnectionRefusedError("only this one")] * 3, RetryLater(after_s=0.0)])
    stage.error = lambda number: next(failures, None) if number == 5 else None
    stage.until(stage.done)
    assert set(stage.terminals()) == {"handled"}
    assert stage.member.loop.guards.status().breaker_opened == 0


def test_a_probe_that_fails_by_itself_says_nothing_about_the_service() -> None:
    stage = Stage(partitions=2, records=40, breaker=BREAKER)
    stage.error = away
    stage.run(3)
    stage.error = refused
    stage.until(lambda: stage.letters() >= 10)
    status = stage.member.loop.guards.status()
    assert status.breaker is not BreakerState.CLOSED, "one after another, until one goes through"
    stage.error = fine
    stage.until(stage.done)


def test_what_was_out_when_it_opened_decides_nothing() -> None:
    stage = Stage(partitions=4, records=1, breaker=BREAKER)
    stage.workload.entries[0].takes_s = 1.5
    stage.error = lambda number: None if number == 0 else away(number)
    stage.until(stage.starts)
    stage.produce(12)
    stage.until(lambda: stage.terminals()[0] == "handled", 3)
    assert stage.member.loop.guards.status().breaker is BreakerState.OPEN
    stage.error = fine
    stage.until(stage.done)


def test_a_probe_whose_partition_goes_is_followed_by_another() -> None:
    stage = Stage(partitions=2, records=20, breaker=BREAKER)
    stage.error = away
    stage.run(1)
    for entry in stage.workload.entries:
        entry.takes_s = 30.0  # whichever becomes the probe hangs
    stage.until(lambda: stage.member.loop.guards.status().breaker is BreakerState.HALF_OPEN)
    for entry in stage.workload.entries:
        entry.takes_s = 0.001
    stage.error = fine
    silent_s = stage.world.broker.settings.session_s + 1
    stage.world.broker.freeze(silent_s, data=False, expire_first=True)  # so all its partitions are lost
    assert stage.until(lambda: stage.member.loop.guards.status().breaker is BreakerState.CLOSED) < 20
    stage.until(stage.done)


def test_a_run_that_is_out_stops_after_its_record_when_the_breaker_opens() -> None:
    """The oracle notices a record that starts under the hold and is no probe that is due."""
    quick = BreakerPolicy(failures=1, window_s=0.01, open_s=2, max_open_s=2)
    stage = Stage(partitions=2, records=400, commit=CommitPolicy(mode="interval"), breaker=quick, pace=(0.002, 0.002))
    stage.until(lambda: stage.terminals().count("handled") >= 100)
    assert max(len(run.messages) for run in stage.member.executor.out) > 2
    bad = next(entry.number for entry in stage.workload.entries if not entry.terminal and entry.place.partition == 0)
    stage.error = lambda number: away(number) if number == bad + 10 else None
    stage.until(lambda: stage.member.loop.guards.status().breaker is BreakerState.OPEN)
    stage.run(1)
    assert stage.member.executor.out == []
    stage.error = fine
    stage.until(stage.done)


@pytest.mark.parametrize("seed", range(5))
def test_a_retry_that_was_stopped_before_it_began_is_made_later(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(executor, "HAND_OVER_S", (0.0, 0.3))  # workers are slow to begin
    monkeypatch.setattr(oracle_guards, "LATE_S", 0.31)
    stage = Stage(partitions=8, records=8, breaker=replace(BREAKER, failures=seed + 9, window_s=60))
    stage.error = away
    stage.until(lambda: stage.chaos.members and stage.member.loop.guards.status().breaker is BreakerState.OPEN)
    stage.error = fine
    stage.until(stage.done)
    assert set(stage.terminals()) == {"handled"}


def test_one_bad_record_is_not_every_probe() -> None:
    stage = Stage(partitions=2, records=1, breaker=BREAKER, retry=RetryPolicy(max_retries=0))
    stage.error = lambda number: away(number) if number == 0 else None
    stage.until(lambda: stage.chaos.members and stage.member.loop.guards.status().breaker is BreakerState.OPEN)
    stage.produce(20)
    stage.until(lambda: stage.terminals().count("handled") == 10, 30)
    assert stage.letters() == 0
    stage.error = fine
    stage.until(stage.done)


def test_a_probe_is_one_record_of_what_is_left_of_a_bundle() -> None:
    """The oracle notices a second record that starts under the hold."""
    commit, retry = CommitPolicy(mode="interval"), RetryPolicy(initial_delay_ms=60_000, max_delay_ms=60_000)
    stage = Stage(records=2000, order="key", commit=commit, retry=retry, breaker=BREAKER, pace=(2e-5, 2e-5))
    stage.until(lambda: stage.terminals().count("handled") >= 20)
    stage.error = away
    stage.until(lambda: stage.member.loop.guards.status().breaker is BreakerState.OPEN)
    assert any(len(run.messages) > 1 for run in stage.member.loop.lanes._resumed)  # type: ignore[attr-defined]
    stage.member.loop.failures.ready.clear()  # so that the bundle is what a probe is taken from
    stage.error = fine
    stage.until(lambda: stage.member.loop.guards.status().breaker is BreakerState.CLOSED)


def test_nothing_spins_when_there_is_nothing_to_probe() -> None:
    stage = Stage(records=1, breaker=BREAKER, retry=RetryPolicy(max_retries=0))
    headers = Message()
    headers["Retry-After"] = "100"
    stage.error = lambda _: HTTPError("http://service", 503, "busy", headers, None)
    stage.until(lambda: stage.chaos.members and stage.member.loop.guards.status().breaker is BreakerState.OPEN)
    stage.run(10)
    steps = stage.chaos.steps
    stage.run(30)
    assert stage.chaos.steps - steps <= 30 / 0.09
    assert len(stage.starts()) == 1, "the service asked for 100 s"


def test_a_drain_does_not_wait_for_the_breaker() -> None:
    stage = Stage(partitions=4, records=80, breaker=replace(BREAKER, open_s=1000, max_open_s=1000))
    stage.error = away
    stage.run(5)
    stage.member.stop()
    assert stage.until(lambda: stage.member.loop.ending) < 0.5


def test_a_storm_stops_the_consumer_and_a_probe_lets_it_go_on() -> None:
    stage = Stage(partitions=4, records=80, storm_guard=STORM)
    stage.error = refused
    stage.run(20)
    assert stage.letters() == STORM.dead_lettered, "failed probes are not dead-lettered"
    assert stage.member.loop.guards.status().storm == "tripped"
    waited = [start for start in stage.starts() if start.at > stage.now - 15]
    assert 4 <= len(waited) <= 5, "one probe every 3 s"
    stage.error = fine
    assert stage.until(stage.done) < STORM.probe_every_s + 1
    assert stage.letters() == STORM.dead_lettered
    assert stage.member.loop.guards.status().storm == "watching"


def test_a_storm_is_over_for_a_new_process() -> None:
    stage = Stage(partitions=4, records=80, storm_guard=STORM)
    stage.error = refused
    stage.run(5)
    first = stage.member
    stage.error = fine
    first.stop()
    stage.until(lambda: stage.member is not first and stage.done(), 30)
    assert stage.letters() == STORM.dead_lettered


def test_a_person_can_release_a_storm() -> None:
    stage = Stage(partitions=4, records=80, storm_guard=replace(STORM, probe_every_s=10_000))
    stage.error = refused
    stage.run(5)
    assert set(stage.member.loop.guards.status().holds) == {"storm"}
    stage.error = fine
    stage.member.release("storm")
    assert stage.until(stage.done) < 2
    assert stage.member.loop.guards.status().holds == {}


def test_a_person_can_close_the_breaker() -> None:
    stage = Stage(partitions=4, records=80, breaker=replace(BREAKER, open_s=1000, max_open_s=1000))
    stage.error = away
    stage.run(5)
    stage.error = fine
    stage.member.release("breaker")
    assert stage.until(stage.done) < 2


def test_records_of_a_storm_are_retried_by_the_policy_before_they_wait() -> None:
    stage = Stage(partitions=4, records=40, storm_guard=STORM)
    stage.error = lambda _: RuntimeError("unknown")
    stage.run(60)
    assert stage.letters() == STORM.dead_lettered
    assert max(start.attempt for start in stage.starts()) == 3


@pytest.mark.parametrize("order", ["partition", "key", "none"])
@pytest.mark.parametrize("mode", ["each", "interval"])
def test_a_rate_for_the_consumer_is_kept_and_used(order: str, mode: str) -> None:
    stage = Stage(partitions=4, records=400, order=order, commit=CommitPolicy(mode=mode), rate=RatePolicy(per_s=50))  # type: ignore[arg-type]
    stage.until(stage.done)
    times = [start.at for start in stage.starts()]
    assert 400 / 50 - 0.2 <= times[-1] - times[0] <= 400 / 50 * 1.1


def test_runs_that_are_out_do_not_grow_beyond_the_rate() -> None:
    """The oracle notices starts that come too early."""
    commit, rate = CommitPolicy(mode="interval"), RatePolicy(per_s=200, burst=1)
    stage = Stage(partitions=3, commit=commit, rate=rate, pace=(0.007, 0.007))
    for _ in range(100):
        stage.produce(3)
        stage.run(0.01)
    stage.until(stage.done)
    assert min(after.at - one.at for one, after in pairwise(stage.starts())) >= 0.0045


def test_each_partition_has_its_rate() -> None:
    stage = Stage(partitions=4, records=200, order="key", rate=RatePolicy(partition_per_s=10, burst=1))
    stage.until(stage.done)
    for partition in range(4):
        times = [start.at for start in stage.starts() if start.place.partition == partition]
        assert len(times) == 50
        assert min(after - one for one, after in pairwise(times)) >= 0.099
        assert times[-1] - times[0] <= 50 / 10 * 1.1


def test_a_minimum_delay_lies_between_all_starts_and_under_every_retry() -> None:
    retry = RetryPolicy(max_retries=2, initial_delay_ms=1, max_delay_ms=1, jitter=False)
    stage = Stage(partitions=4, records=12, retry=retry, rate=RatePolicy(min_delay_ms=200))
    failed: set[int] = set()

    def once(number: int) -> BaseException | None:
        first = number not in failed
        failed.add(number)
        return OSError("not now") if first else None

    stage.error = once
    stage.until(stage.done)
    starts = stage.starts()
    assert len(starts) == 24
    assert min(after.at - one.at for one, after in pairwise(starts)) >= 0.1995


def test_a_low_rate_does_not_keep_the_loop_busy() -> None:
    stage = Stage(partitions=4, records=200, rate=RatePolicy(per_s=2))
    stage.run(3)
    steps = stage.chaos.steps
    stage.run(30)
    assert stage.chaos.steps - steps <= 30 * (10 + 2 * 10), "ten waits in the client, and what a record takes"


def test_a_probe_keeps_to_the_rate() -> None:
    stage = Stage(partitions=4, records=80, breaker=replace(BREAKER, open_s=0.1), rate=RatePolicy(min_delay_ms=700))
    stage.error = away
    stage.run(20)
    assert min(after.at - one.at for one, after in pairwise(stage.starts())) >= 0.6995
    stage.error = fine
    stage.until(stage.done, 120)


def test_the_status_says_what_holds_and_since_when() -> None:
    stage = Stage(partitions=4, records=80, breaker=BREAKER, storm_guard=STORM)
    stage.until(stage.done)
    stage.run(BREAKER.window_s)
    status = stage.member.loop.guards.status()
    assert (status.breaker, status.storm, dict(status.holds)) == (BreakerState.CLOSED, "watching", {})
    stage.error = away
    stage.produce(20)
    stage.run(5)
    status = stage.member.loop.guards.status()
    assert (status.breaker_opened, status.storm_tripped) == (2, 0)
    assert status.waits >= 1
    assert 0 < stage.now - status.holds["breaker"] < 5.1
