"""Storms: at most so many entries a window, the rest counted, memory bounded."""

from __future__ import annotations

import io
import json
import logging
import threading

from hypothesis import given
from hypothesis import strategies as st

from keepfast.telemetry.logs import JsonFormatter, Logger, Sampler


def test_a_storm_of_one_event_is_logged_once_a_window_with_the_number_left_out() -> None:
    stream = io.StringIO()
    own = logging.Logger("keepfast.test", logging.INFO)  # noqa: LOG001  of its own, outside the tree of loggers
    output = logging.StreamHandler(stream)
    output.setFormatter(JsonFormatter())
    own.addHandler(output)
    log = Logger(own, bound={}, sampler=Sampler())
    for tick in range(25):
        log.sampled(logging.WARNING, "storm", now=float(tick), key="p0", every_s=10.0, at_most=2, tick=tick)
    log.sampled(logging.WARNING, "storm", now=25.0, key="p1", every_s=10.0)
    log.sampled(logging.DEBUG, "storm", now=26.0, key="p2", every_s=10.0)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line.get("tick"), line.get("suppressed")) for line in lines] == [
        (0, None),
        (1, None),
        (10, 8),
        (11, None),
        (20, 8),
        (21, None),
        (None, None),
    ]


def test_a_storm_of_keys_is_bounded_in_memory_and_in_output() -> None:
    sampler = Sampler(capacity=100)
    admitted = sum(
        sampler.admit(("event", key), now=0.0, every_s=10.0, at_most=1) is not None for key in range(100_000)
    )
    assert admitted == 101
    assert len(sampler._windows) == 101
    assert sampler.suppressed_total == 100_000 - 101
    assert sampler.admit(("event", "new"), now=10.0, every_s=10.0, at_most=1) == 0
    assert len(sampler._windows) == 1


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 5)), max_size=60), st.integers(1, 3))
def test_a_sampler_admits_at_most_n_per_window_and_counts_the_rest(
    calls: list[tuple[int, float]], at_most: int
) -> None:
    sampler, now, reported = Sampler(), 0.0, 0
    times: dict[int, list[float]] = {}
    for key, pause_s in calls:
        now += pause_s
        left_out = sampler.admit(key, now=now, every_s=4.0, at_most=at_most)
        if left_out is not None:
            reported += left_out
            times.setdefault(key, []).append(now)
    for admitted in times.values():
        # Windows are fixed, so any span of one window's length touches at most two of them.
        for first, beyond in zip(admitted, admitted[2 * at_most :], strict=False):
            assert beyond - first >= 4.0
    waiting = sum(int(window[2]) for window in sampler._windows.values())
    assert reported + waiting == sampler.suppressed_total
    assert sum(map(len, times.values())) + sampler.suppressed_total == len(calls)


def test_a_sampler_is_exact_under_threads() -> None:
    sampler = Sampler()
    answers: list[int | None] = []

    def run() -> None:
        for _ in range(5_000):
            answers.append(sampler.admit("k", now=1.0, every_s=10.0, at_most=7))  # noqa: PERF401  interleaved on purpose

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer for answer in answers if answer is not None] == [0] * 7
    assert sampler.suppressed_total == 20_000 - 7
