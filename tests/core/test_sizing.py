"""How many records a run carries, and how many runs are out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.sizing import (
    DISTRUST_RUNS,
    FAST_S,
    FAST_WORKERS,
    FIRST_TRIAL,
    INLINE_S,
    LONG_INLINE_S,
    MAX_RUN,
    QUICK_S,
    Sizer,
)


def after(handler_s: float, *, consecutive: bool = False, one_by_one: bool = False, runs: int = 100) -> Sizer:
    """A sizer that has seen a handler of this speed for a while."""
    sizer = Sizer(capacity=32, consecutive=consecutive, one_by_one=one_by_one)
    for _ in range(runs):
        records = sizer.size
        sizer.observe(handler_s * records, records)
    return sizer


def test_at_first_nothing_is_known_and_a_key_run_carries_one_record() -> None:
    sizer = Sizer(capacity=32, consecutive=False, one_by_one=False)
    assert (sizer.size, sizer.workers) == (1, 32)


@pytest.mark.parametrize("consecutive", [True, False])
def test_a_handler_that_waits_gets_runs_of_one_and_all_workers(consecutive: bool) -> None:
    sizer = after(0.05, consecutive=consecutive)
    assert (sizer.size, sizer.workers) == (1, 32)


@pytest.mark.parametrize("consecutive", [True, False])
def test_a_handler_of_microseconds_gets_large_runs_on_few_workers(consecutive: bool) -> None:
    sizer = after(1e-6, consecutive=consecutive)
    assert sizer.size > 100
    assert sizer.workers == FAST_WORKERS


def test_a_handler_that_takes_no_time_at_all_gets_the_largest_run() -> None:
    assert after(0.0).size == MAX_RUN


@pytest.mark.parametrize("handler_s", [0.0, 1e-6, 0.05])
def test_one_by_one_stays_one_by_one_on_all_workers(handler_s: float) -> None:
    sizer = after(handler_s, one_by_one=True)
    assert (sizer.size, sizer.workers) == (1, 32)


def test_few_workers_are_never_more_than_there_are() -> None:
    sizer = Sizer(capacity=2, consecutive=False, one_by_one=False)
    for _ in range(100):
        sizer.observe(0.0, 10)
    assert sizer.workers == 2


def test_slowness_is_believed_sooner_than_speed() -> None:
    slowing, quickening = after(1e-5), after(2e-3)
    slowing.observe(2e-3, 1)
    quickening.observe(1e-5, 1)
    assert slowing.size == 1
    assert quickening.size == 1


def test_a_run_that_did_nothing_teaches_nothing() -> None:
    sizer = after(1e-4)
    before = (sizer.size, sizer.workers)
    sizer.observe(10.0, 0)
    assert (sizer.size, sizer.workers) == before


@given(st.booleans(), st.lists(st.tuples(st.floats(0, 100), st.integers(0, MAX_RUN))))
def test_sizes_stay_in_their_bounds(consecutive: bool, observed: list[tuple[float, int]]) -> None:
    sizer = Sizer(capacity=8, consecutive=consecutive, one_by_one=False)
    for elapsed_s, records in observed:
        sizer.observe(elapsed_s, records)
        assert 1 <= sizer.size <= MAX_RUN
        assert sizer.workers in (8, FAST_WORKERS)


@pytest.mark.parametrize("consecutive", [True, False])
def test_many_workers_come_back_when_the_handler_slows_down(consecutive: bool) -> None:
    sizer = after(1e-6, consecutive=consecutive)
    while sizer.workers == FAST_WORKERS:
        sizer.observe(2 * FAST_S, 1)
    assert sizer.workers == 32


def inlined(handler_s: float) -> Sizer:
    sizer = Sizer(capacity=32, consecutive=True, one_by_one=False, may_inline=True)
    for _ in range(100):
        records = sizer.size
        sizer.observe(handler_s * records, records)
    return sizer


def test_only_a_fast_handler_is_walked_on_the_loops_own_thread_and_in_short_runs() -> None:
    fast = inlined(10e-6)
    assert fast.inline
    assert fast.size * 10e-6 <= INLINE_S
    assert not inlined(2 * FAST_S).inline
    assert not after(10e-6).inline, "where the loop cannot"


def test_after_a_long_run_workers_get_the_next_ones() -> None:
    sizer = inlined(1e-6)
    sizer.observe(LONG_INLINE_S, 4_000, here=True)
    assert not sizer.inline
    for _ in range(DISTRUST_RUNS):
        sizer.observe(1e-6, 1)
    assert sizer.inline


WORKERS = 4


def busy(*, computes_s: float = 0.0, waits_s: float = 0.0, consecutive: bool = True, runs: int = 2_000) -> Sizer:
    """A sizer that has seen so many runs of a handler that computes and then waits, with more records than workers
    take. Workers that compute wait for each other.
    """
    sizer = Sizer(capacity=WORKERS, consecutive=consecutive, one_by_one=False, may_inline=True)
    for _ in range(runs):
        records = sizer.size
        if sizer.inline:
            sizer.observe((computes_s + waits_s) * records, records, here=True)
        else:
            elapsed_s = max(computes_s + waits_s, WORKERS * computes_s) * records
            sizer.observe(elapsed_s, records, beside=WORKERS - 1)
    return sizer


@pytest.mark.parametrize("consecutive", [True, False])
@pytest.mark.parametrize("computes_s", [15e-6, 60e-6, 150e-6])
def test_a_handler_that_computes_is_walked_on_the_loops_own_thread(computes_s: float, consecutive: bool) -> None:
    sizer = busy(computes_s=computes_s, consecutive=consecutive)
    assert sizer.inline
    assert sizer.size * computes_s <= INLINE_S


@pytest.mark.parametrize(
    ("computes_s", "waits_s"),
    [(0.0, 100e-6), (0.0, 1e-3), (10e-6, 90e-6), (50e-6, 100e-6), (50e-6, 5e-3), (2 * QUICK_S, 0.0)],
)
def test_a_handler_that_waits_or_computes_for_long_keeps_its_workers(computes_s: float, waits_s: float) -> None:
    for runs in range(1, 300):
        sizer = busy(computes_s=computes_s, waits_s=waits_s, runs=runs)
        assert not sizer.inline or sizer.trial
        assert sizer.workers == (1 if sizer.trial else WORKERS)


def trying() -> Sizer:
    """A sizer that asks for a trial of a handler that waits."""
    sizer = Sizer(capacity=WORKERS, consecutive=True, one_by_one=False, may_inline=True)
    sizer.observe(FIRST_TRIAL * 100e-6, FIRST_TRIAL, beside=WORKERS - 1)
    return sizer


def test_trials_become_rarer_as_they_fail() -> None:
    sizer, trials = Sizer(capacity=WORKERS, consecutive=True, one_by_one=True, may_inline=True), 0
    for _ in range(100_000):
        trials += sizer.trial
        sizer.observe(100e-6, 1, beside=0 if sizer.trial else WORKERS - 1, here=sizer.trial)
    assert 3 <= trials <= 4


def test_a_trial_that_cannot_begin_is_given_up() -> None:
    sizer = trying()
    assert (sizer.trial, sizer.workers) == (True, 1)
    sizer.end_trial()
    assert (sizer.trial, sizer.inline, sizer.workers) == (False, False, WORKERS)


def test_a_trial_that_lost_the_loop_is_over_and_no_run_follows_it_there() -> None:
    sizer = trying()
    sizer.taken_over()
    sizer.observe(0.03, 1)
    assert (sizer.trial, sizer.inline) == (False, False)


def test_a_handler_that_begins_to_wait_gets_its_workers_back() -> None:
    sizer = busy(computes_s=20e-6)
    while sizer.inline:
        sizer.observe(150e-6, 1, here=True)
    assert sizer.workers == WORKERS


def test_runs_that_were_alone_lead_to_no_trial() -> None:
    sizer = Sizer(capacity=WORKERS, consecutive=True, one_by_one=False, may_inline=True)
    for _ in range(1_000):
        sizer.observe(100e-6, 1)
        assert not sizer.trial
