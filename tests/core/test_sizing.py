"""How many records a run carries, and how many runs are out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.sizing import (
    COMPUTES_S,
    CONSECUTIVE_S,
    DISTRUST_RUNS,
    FAST_S,
    FAST_WORKERS,
    INLINE_S,
    LONG_INLINE_S,
    MAX_RUN,
    TRUST_S,
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
    sizer.observe(LONG_INLINE_S, 4_000, inline=True)
    assert not sizer.inline
    for _ in range(DISTRUST_RUNS):
        sizer.observe(1e-6, 1)
    assert sizer.inline


class Played:
    """A sizer and the time. Each turn is a run of 5 ms of processor time, walked where the sizer wants it."""

    def __init__(self, *, busy_s: float, waits_s: float = 0.0, processors: float = 1.0) -> None:
        self.sizer = Sizer(capacity=4, consecutive=True, one_by_one=False, may_inline=True)
        self.now = 100.0
        self._busy_s = busy_s
        self._waits_s = waits_s
        self._processors = processors

    def play(self, for_s: float) -> float:
        """For so long; returns the share of its runs that were walked on the loop's own thread."""
        until, runs, inline = self.now + for_s, 0, 0
        while self.now < until:
            records = max(1, int(0.005 / self._busy_s))
            here, busy_s = self.sizer.inline, self._busy_s * records
            alone_s = busy_s + self._waits_s * records
            took_s = alone_s if here else max(alone_s, 4 * busy_s / self._processors)
            self.now += took_s if here else took_s / 4  # with four of them out, one comes back after the other
            self.sizer.observe(took_s, records, busy_s=busy_s, now=self.now, inline=here)
            runs, inline = runs + 1, inline + here
        return inline / runs


def test_a_handler_that_computes_is_found_among_workers_that_wait_for_the_interpreter() -> None:
    played = Played(busy_s=20e-6)
    played.sizer.observe(0.004, 1, busy_s=0.004, now=played.now)  # its first record: nothing was loaded yet
    played.play(0.2)
    assert played.play(10.0) == 1.0
    assert played.sizer.size * 20e-6 <= INLINE_S


def test_one_that_computes_for_longer_than_a_fast_one_stays_with_the_loop_but_for_a_look_now_and_then() -> None:
    played = Played(busy_s=2 * FAST_S)
    played.play(0.2)
    assert 0.95 < played.play(4 * TRUST_S) < 1.0


@pytest.mark.parametrize("processors", [2.0, 4.0])
def test_a_handler_that_computes_outside_the_interpreter_keeps_its_threads(processors: float) -> None:
    assert Played(busy_s=2 * FAST_S, processors=processors).play(10.0) == 0.0


def test_a_handler_that_computes_for_long_keeps_its_threads() -> None:
    played = Played(busy_s=2 * COMPUTES_S)
    assert played.play(10.0) == 0.0
    assert played.sizer.size * 4 * 2 * COMPUTES_S <= CONSECUTIVE_S, "by what a run takes among four"


def test_a_handler_that_waits_as_well_gets_its_threads_back_at_once() -> None:
    played = Played(busy_s=30e-6, waits_s=60e-6)  # four of them keep the interpreter busy
    assert 0.0 < played.play(4 * TRUST_S) < 0.05
    assert not played.sizer.inline
