"""A lock that runs take in the order in which they asked for it, and that a run cannot keep which was abandoned."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from keepfast.core.records import TopicPartition
from keepfast.core.runs import NotBegun, Partition, Run
from keepfast.core.serial_gate import SerialGate
from tests.support.waiting import DEADLINE_S, wait_until


def run() -> Run:
    return Run(Partition(TopicPartition("t", 0), epoch=1, start=0), [], (), {})


class Line:
    """Threads that want the turn; each keeps it until it may go."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self.gate = SerialGate()
        self.had = list[Run]()
        self.may_go = dict[Run, threading.Event]()
        self.errors = dict[Run, BaseException]()
        self.over = dict[Run, Future[None]]()

    def join(self, one: Run) -> None:
        """Returns when it has the turn or waits for it."""
        self.may_go[one] = threading.Event()
        self.over[one] = self._pool.submit(self._take, one)
        wait_until(lambda: one.waits or one in self.had, "it has the turn or waits for it")

    def _take(self, one: Run) -> None:
        try:
            with self.gate.of(one):
                self.had.append(one)
                assert self.may_go[one].wait(DEADLINE_S)
        except BaseException as error:  # noqa: BLE001 - for the test's thread
            self.errors[one] = error


def test_they_have_it_in_the_order_in_which_they_asked() -> None:
    with ThreadPoolExecutor(8) as pool:
        line, runs = Line(pool), [run() for _ in range(8)]
        for one in runs:
            line.join(one)
        for number, one in enumerate(runs, 1):
            wait_until(lambda: len(line.had) >= number, "the next one has it")  # noqa: B023 - called at once
            assert line.had == runs[:number]
            line.may_go[one].set()


def test_one_that_is_asked_to_stop_leaves_the_line() -> None:
    with ThreadPoolExecutor(3) as pool:
        line, (first, second, third) = Line(pool), (run(), run(), run())
        for one in (first, second, third):
            line.join(one)
        second.stop = True
        wait_until(lambda: second in line.errors, "it does not wait any more")
        line.may_go[first].set()
        wait_until(lambda: third in line.had, "the one behind it is the next")
        line.may_go[third].set()
    assert (line.had, list(map(type, line.errors.values()))) == ([first, third], [NotBegun])
    assert not second.waits


def test_one_that_is_asked_to_stop_does_not_begin_when_its_turn_comes_at_that_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("keepfast.core.serial_gate.POLL_INTERVAL_S", DEADLINE_S)  # it does not look by itself
    with ThreadPoolExecutor(2) as pool:
        line, (first, second) = Line(pool), (run(), run())
        line.join(first)
        line.join(second)
        second.stop = True
        line.may_go[first].set()
        line.over[second].result(DEADLINE_S)
    assert (line.had, list(map(type, line.errors.values()))) == ([first], [NotBegun])


def test_one_that_was_abandoned_loses_it_and_changes_nothing_when_it_ends() -> None:
    with ThreadPoolExecutor(4) as pool:
        line, (hangs, second, third, fourth) = Line(pool), (run(), run(), run(), run())
        for one in (hangs, second, third):
            line.join(one)
        hangs.abandoned = True
        wait_until(lambda: second in line.had, "the next one has it")
        line.may_go[hangs].set()
        line.over[hangs].result(DEADLINE_S)
        line.join(fourth)
        assert (line.had, third.waits) == ([hangs, second], True), "its end gives the turn to no other"
        for one in (second, third, fourth):
            line.may_go[one].set()
    assert (line.had, line.errors) == ([hangs, second, third, fourth], {})


def test_without_a_run_it_is_never_taken_away_and_the_wait_may_be_limited() -> None:
    gate = SerialGate()
    with gate.of(None):
        with pytest.raises(TimeoutError), gate.of(None, timeout_s=0.0):
            raise AssertionError("two have it")
        with pytest.raises(TimeoutError), gate.of(None, timeout_s=0.0):
            raise AssertionError("the one that left was taken for the holder")
    with gate.of(None, timeout_s=0.0):
        pass
