"""Breaker, storm guard and pace: small machines with time as an argument."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.errors import ConfigError
from keepfast.core.guards import (
    Breaker,
    BreakerPolicy,
    BreakerState,
    CallSpacing,
    Pace,
    RatePolicy,
    StormGuard,
    StormPolicy,
)
from keepfast.core.records import TopicPartition

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


def opened(policy: BreakerPolicy | None = None) -> Breaker:
    breaker = Breaker(policy or BreakerPolicy())
    for _ in range(5):
        breaker.failed(0.0)
    assert breaker.state is BreakerState.OPEN
    return breaker


def test_four_outages_do_not_open_the_breaker_and_five_do() -> None:
    breaker = Breaker(BreakerPolicy())
    states = []
    for _ in range(5):
        breaker.failed(0.0)
        states.append(breaker.state)
    assert states == [BreakerState.CLOSED] * 4 + [BreakerState.OPEN]


def test_outages_among_many_successes_do_not_open_it() -> None:
    breaker = Breaker(BreakerPolicy())
    breaker.succeeded(0.0, 100)
    for _ in range(50):
        breaker.failed(0.0)
    assert breaker.state is BreakerState.CLOSED


def test_outages_that_lie_far_apart_do_not_open_it() -> None:
    breaker = Breaker(BreakerPolicy())
    for number in range(20):
        breaker.failed(number * 3.0)
    assert breaker.state is BreakerState.CLOSED


def test_one_probe_at_a_time_and_each_failure_doubles_the_wait() -> None:
    breaker, now, waits = opened(), 0.0, []
    for _ in range(5):
        assert not breaker.may_probe(now)
        waits.append(breaker.probes_in(now))
        now += waits[-1]
        assert breaker.may_probe(now)
        assert not breaker.may_probe(now)
        breaker.failed(now)
    assert waits == [10.0, 20.0, 40.0, 60.0, 60.0]


def test_a_probe_that_goes_through_closes_it_and_forgets_the_past() -> None:
    breaker = opened()
    assert breaker.may_probe(10.0)
    breaker.succeeded(10.0)
    assert breaker.state is BreakerState.CLOSED
    for _ in range(4):
        breaker.failed(10.0)
    assert breaker.state is BreakerState.CLOSED


def test_an_outage_on_the_last_attempt_opens_it_at_once() -> None:
    breaker = Breaker(BreakerPolicy())
    breaker.failed(0.0)
    assert not breaker.serves_others(0.0)
    breaker.force_open(0.0)
    assert breaker.state is BreakerState.OPEN
    assert breaker.probes_in(0.0) == 10.0


def test_it_knows_whether_others_are_served() -> None:
    breaker = Breaker(BreakerPolicy())
    breaker.succeeded(0.0, 3)
    breaker.failed(0.0)
    assert breaker.serves_others(9.0)
    assert not breaker.serves_others(10.0), "what lies further back than the window says nothing any more"


def test_a_probe_that_went_through_is_proof_that_others_are_served() -> None:
    breaker = opened()
    assert breaker.may_probe(10.0)
    breaker.succeeded(10.0)
    breaker.failed(10.1)
    assert breaker.serves_others(10.1)


def test_a_success_beside_them_does_not_reset_the_outages() -> None:
    breaker = Breaker(BreakerPolicy())
    for _ in range(5):
        assert breaker.state is BreakerState.CLOSED
        breaker.succeeded(0.0)
        breaker.failed(0.0)
    assert breaker.state is BreakerState.OPEN


def test_a_person_can_close_it() -> None:
    breaker = opened()
    breaker.close()
    assert breaker.state is BreakerState.CLOSED
    assert breaker.probes_in(0.0) == float("inf")


def test_a_probe_that_vanishes_is_followed_by_another() -> None:
    breaker = opened()
    assert breaker.may_probe(10.0)
    breaker.probe_vanished(10.5)
    assert breaker.may_probe(10.5)


@given(st.lists(st.tuples(st.floats(0, 5), st.sampled_from(["ok", "outage", "probe"])), max_size=60))
def test_the_breaker_never_lets_two_probes_out(moves: list[tuple[float, str]]) -> None:
    breaker, now, out = Breaker(BreakerPolicy(failures=2, open_s=3)), 0.0, False
    for wait, move in moves:
        now += wait
        if move == "probe":
            if breaker.may_probe(now):
                assert not out
                out = True
        elif breaker.state is BreakerState.CLOSED or out:
            breaker.succeeded(now) if move == "ok" else breaker.failed(now)
            out = False


def test_a_storm_trips_the_guard_and_a_few_letters_do_not() -> None:
    guard = StormGuard(StormPolicy())
    for _ in range(199):
        assert guard.may_dead_letter(0.0)
    assert not guard.tripped
    assert guard.may_dead_letter(0.0)
    assert guard.tripped


def test_four_of_five_of_the_last_records_must_be_dead_lettered() -> None:
    guard = StormGuard(StormPolicy())
    for _ in range(500):
        guard.finished()
        assert all(guard.may_dead_letter(0.0) for _ in range(3))
    assert not guard.tripped


def test_a_failed_probe_is_not_dead_lettered_and_one_that_goes_through_releases_the_guard() -> None:
    guard = StormGuard(StormPolicy(last=4, dead_lettered=2, share=0.5))
    guard.may_dead_letter(0.0)
    guard.may_dead_letter(0.0)
    assert guard.tripped
    assert not guard.may_probe(59.0)
    assert guard.may_probe(60.0)
    assert not guard.may_probe(61.0)
    assert not guard.may_dead_letter(61.0)
    guard.probe_failed(61.0)
    assert guard.probes_in(61.0) == 60.0
    assert guard.may_probe(121.0)
    guard.release()
    assert not guard.tripped


def test_what_began_before_the_storm_does_not_release_the_guard() -> None:
    guard = StormGuard(StormPolicy(last=4, dead_lettered=2, share=0.5))
    guard.may_dead_letter(0.0)
    guard.may_dead_letter(0.0)
    guard.finished(100)
    assert guard.tripped
    assert not guard.may_dead_letter(1.0)


@given(st.lists(st.one_of(st.just(-1), st.integers(1, 30)), max_size=80))
def test_the_guard_counts_what_a_plain_list_would(moves: list[int]) -> None:
    guard, plain = StormGuard(StormPolicy(last=20, dead_lettered=5, share=0.5)), [False] * 0
    for move in moves:
        if guard.tripped:
            break
        if move < 0:
            guard.may_dead_letter(0.0)
            plain.append(True)
        else:
            guard.finished(move)
            plain.extend([False] * move)
        last = plain[-20:]
        assert (guard.dead_lettered, guard.seen) == (sum(last), len(last))
        assert guard.tripped == (sum(last) >= 5 and sum(last) * 2 >= len(last) and move < 0)


@given(per_s=st.floats(0.5, 100), burst=st.integers(1, 5), waits=st.lists(st.floats(0, 1), min_size=5, max_size=60))
def test_no_more_starts_than_the_rate_allows_in_any_stretch_of_time(
    per_s: float, burst: int, waits: list[float]
) -> None:
    pace, now, starts = Pace(RatePolicy(per_s=per_s, burst=burst)), 0.0, []
    for wait in waits:
        now += wait
        if pace.wait_s(now) == 0:
            pace.started(HERE, now)
            starts.append(now)
    for index, first in enumerate(starts):
        for count, last in enumerate(starts[index:], 1):
            assert count <= (last - first) * per_s + burst + 1e-6


def test_partitions_have_a_rate_of_their_own_and_a_minimum_delay_holds_for_all() -> None:
    pace = Pace(RatePolicy(partition_per_s=1))
    pace.started(HERE, 0.0)
    assert pace.wait_s(0.0) == 0.0
    assert pace.partition_wait_s(HERE, 0.0) == 1.0
    assert pace.partition_wait_s(THERE, 0.0) == 0.0
    pace.started(HERE, 1.0)
    assert pace.partition_wait_s(HERE, 1.0) == 1.0, "and so on for every further record"
    slow = Pace(RatePolicy(min_delay_ms=12_000, burst=5))
    slow.started(HERE, 0.0)
    assert slow.wait_s(5.0) == 7.0


def test_calls_are_spaced_from_the_end_of_one_to_the_next_attempt() -> None:
    spacing = CallSpacing(min_delay_s=12)
    pace = Pace(RatePolicy(), spacing)
    pace.started(HERE, 0.0)
    pace.ended(1.0)
    assert pace.wait_s(1.0) == 0.0, "it called nothing"
    pace.started(HERE, 1.0)
    spacing.calls += 1
    pace.ended(4.0)
    assert pace.wait_s(5.0) == 11.0
    spacing.min_delay_s = 2
    assert (pace.wait_s(5.0), pace.wait_s(6.0)) == (1.0, 0.0), "it may change at any time"
    parallel = Pace(RatePolicy(), CallSpacing(overlapping=True, min_delay_s=3))
    parallel.started(HERE, 0.0)
    assert parallel.wait_s(1.0) == 2.0


def test_a_rate_catches_up_with_a_loop_that_wakes_up_late() -> None:
    pace, now, starts = Pace(RatePolicy(per_s=1000)), 0.0, 0
    while now < 10.0:
        now += 0.007
        while pace.wait_s(now) == 0:
            pace.started(HERE, now)
            starts += 1
    assert 9_900 <= starts <= 10_050


@pytest.mark.parametrize(
    "make",
    [
        lambda: BreakerPolicy(failures=0),
        lambda: BreakerPolicy(share=0),
        lambda: BreakerPolicy(open_s=70),
        lambda: StormPolicy(dead_lettered=300),
        lambda: RatePolicy(per_s=0),
        lambda: RatePolicy(burst=0),
    ],
)
def test_policies_refuse_what_makes_no_sense(make: object) -> None:
    with pytest.raises(ConfigError):
        make()  # type: ignore[operator]
