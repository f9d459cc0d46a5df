"""The thread that drives the loop walks runs of fast handlers itself, and loses the loop when one of them hangs."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import pytest

from keepfast.core.records import Message
from keepfast.core.runs import Run
from keepfast.engine.calls import RecordCall
from keepfast.engine.loop import TRIAL_WAIT_S
from keepfast.engine.mailbox import QueueMailbox
from keepfast.engine.workers import HANG_S, Inline, Superseded
from tests.engine.test_workers import collect, run_of
from tests.engine.world import World
from tests.support.waiting import DEADLINE_S, wait_until


class Driven:
    """An Inline whose handler hangs at offset 1 until it is let go."""

    def __init__(self) -> None:
        self.mailbox = QueueMailbox()
        self.let_go = threading.Event()
        self.taken = threading.Event()
        self.seen: list[int] = []
        self.inline = Inline(RecordCall(self._call), self.mailbox, name="test")
        self.inline.start(self.taken.set)

    def _call(self, message: Message, run: Run) -> None:
        self.seen.append(message.offset())
        if message.offset() == 1:
            self.let_go.wait(DEADLINE_S)


def test_a_quick_run_is_walked_here_without_a_takeover() -> None:
    driven = Driven()
    driven.let_go.set()
    run = run_of(5)
    driven.inline.walk(run)
    assert (run.done, run.failure, driven.seen) == (5, None, [0, 1, 2, 3, 4])
    assert sum(sum(tally.counts) for own in driven.inline.tallies for tally in own.values()) == 5
    assert not driven.taken.wait(5 * HANG_S)
    assert driven.mailbox.collect(0) == []


def test_a_run_that_hangs_loses_the_loop_and_comes_back_through_the_mailbox() -> None:
    driven, superseded = Driven(), threading.Event()
    run = run_of(3)

    def drive() -> None:
        try:
            driven.inline.walk(run)
        except Superseded:
            superseded.set()

    threading.Thread(target=drive, daemon=True).start()
    assert driven.taken.wait(DEADLINE_S), "somebody drives on while the handler hangs"
    assert run.current == 1
    driven.let_go.set()
    assert superseded.wait(DEADLINE_S)
    assert collect(driven.mailbox, 1) == [run]
    assert (run.done, driven.seen) == (3, [0, 1, 2])


def test_who_has_taken_over_can_lose_the_loop_as_well() -> None:
    driven = Driven()
    for _ in range(3):
        hung = run_of(2)
        thread = threading.Thread(target=pytest.raises, args=(Superseded, driven.inline.walk, hung), daemon=True)
        thread.start()
        assert driven.taken.wait(DEADLINE_S)
        driven.taken.clear()
    driven.let_go.set()
    assert len(collect(driven.mailbox, 3)) == 3
    assert driven.inline.takeovers == 3
    assert len(driven.inline.tallies) == 4, "each driver counts for itself"


def test_a_handler_that_hangs_a_little_now_and_then_does_not_fill_the_memory_with_tallies() -> None:
    driven = Driven()
    for _ in range(3):
        thread = threading.Thread(target=pytest.raises, args=(Superseded, driven.inline.walk, run_of(2)), daemon=True)
        thread.start()
        assert driven.taken.wait(DEADLINE_S)
        driven.taken.clear()
        driven.let_go.set()
        assert len(collect(driven.mailbox, 1)) == 1
        driven.let_go.clear()
    assert driven.inline.takeovers == 3
    assert len(driven.inline.tallies) == 2, "whoever is back from its handler leaves its tally to the next one"
    assert sum(sum(tally.counts) for own in driven.inline.tallies for tally in own.values()) == 6


def test_a_watcher_that_has_gone_to_sleep_wakes_up_for_the_next_run() -> None:
    driven = Driven()
    driven.inline.walk(run_of(1))
    wait_until(lambda: not driven.inline._awake.is_set(), "it goes to sleep")
    threading.Thread(target=pytest.raises, args=(Superseded, driven.inline.walk, run_of(2)), daemon=True).start()
    assert driven.taken.wait(DEADLINE_S)
    driven.let_go.set()
    assert len(collect(driven.mailbox, 1)) == 1


def test_a_thread_that_comes_back_late_does_not_hide_that_the_next_one_hangs() -> None:
    first, second = threading.Event(), threading.Event()
    taken: SimpleQueue[None] = SimpleQueue()
    mailbox = QueueMailbox()

    def call(message: Message, run: Run) -> None:
        (first if message.offset() == 0 else second).wait(DEADLINE_S)

    inline = Inline(RecordCall(call), mailbox, name="test")
    inline.start(lambda: taken.put(None))
    threading.Thread(target=pytest.raises, args=(Superseded, inline.walk, run_of(1)), daemon=True).start()
    taken.get(timeout=DEADLINE_S)
    threading.Thread(target=pytest.raises, args=(Superseded, inline.walk, run_of(1, first=1)), daemon=True).start()
    first.set()
    assert len(collect(mailbox, 1)) == 1
    taken.get(timeout=DEADLINE_S)
    second.set()
    assert len(collect(mailbox, 1)) == 1


def test_a_trial_waits_for_the_runs_that_are_out_but_not_for_one_that_hangs() -> None:
    world = World(lambda values: None, batch=None, partitions=3)
    for partition in range(3):
        world.feed("..", partition=partition)
    world.step()
    world.step()
    assert world.out == [["0:0"], ["1:0"], ["2:0"]]
    sizer = world.loop.sizer
    sizer.observe(1.0, 1)
    sizer.trial, sizer.workers = True, 1
    world.workers.out.pop(0)  # it never comes back
    for _ in range(2):
        world.work()
    for _ in range(5):
        world.step()
    assert (world.out, sizer.trial) == ([], True), "nothing starts beside it"
    world.step(pass_s=2 * TRIAL_WAIT_S)
    assert (world.out, sizer.trial) == ([["1:1"], ["2:1"]], False)
