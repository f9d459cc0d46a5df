"""The clock of the simulator, and processes that are killed, stopped and continued."""

from __future__ import annotations

import pytest

from keepfast.testing.fakes.clock import SimClock
from keepfast.testing.fakes.process import Process, ProcessDied
from keepfast.testing.fakes.trace import Trace
from keepfast.testing.fakes.world import FINISHED, Seat, SimMailbox, Step, World


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def process(clock: SimClock) -> Process:
    return Process("p", clock, Trace())


def test_events_run_in_order_of_time_and_then_of_scheduling(clock: SimClock) -> None:
    ran: list[str] = []
    clock.after(2, lambda: ran.append("c"))
    clock.after(1, lambda: ran.append("a"))
    clock.after(1, lambda: ran.append("b"))
    clock.after(1, lambda: ran.append("never")).cancel()
    clock.advance(1.5)
    assert ran == ["a", "b"]
    clock.advance(0.5)
    assert ran == ["a", "b", "c"]


def test_a_wait_ends_with_its_condition_or_at_its_deadline(clock: SimClock) -> None:
    start, seen = clock.monotonic(), list[int]()
    clock.after(3, lambda: seen.append(1))
    assert not clock.wait(start + 2, lambda: seen)
    assert clock.monotonic() == start + 2
    assert clock.wait(start + 10, lambda: seen)
    assert clock.monotonic() == start + 3


def test_an_event_that_waits_makes_the_outer_wait_late_but_never_moves_time_back(clock: SimClock) -> None:
    start = clock.monotonic()
    clock.after(1, lambda: clock.advance(5))
    assert not clock.wait(start + 2, lambda: False)
    assert clock.monotonic() == start + 6


def test_waiting_for_ever_for_nothing_is_an_error(clock: SimClock) -> None:
    with pytest.raises(RuntimeError, match="nothing is scheduled"):
        clock.wait(float("inf"), lambda: False)


def test_the_wall_clock_may_jump_and_the_monotonic_one_does_not(clock: SimClock) -> None:
    before = clock.monotonic(), clock.wall()
    clock.shift_wall(-3600)
    assert (clock.monotonic(), clock.wall()) == (before[0], before[1] - 3600)


def test_a_process_killed_in_a_wait_never_returns_from_it(clock: SimClock, process: Process) -> None:
    mailbox = SimMailbox(process)
    clock.after(1, process.crash)
    clock.after(2, lambda: mailbox.post("word"))
    with pytest.raises(ProcessDied):
        mailbox.collect(10)
    with pytest.raises(ProcessDied):
        mailbox.collect(0)


def test_a_stopped_process_waits_on_and_its_background_work_is_done_when_it_continues(
    clock: SimClock, process: Process
) -> None:
    mailbox, done = SimMailbox(process), list[float]()
    start = clock.monotonic()
    process.later(2, lambda: done.append(clock.monotonic() - start))
    clock.after(1, lambda: process.stop(30))
    assert mailbox.collect(3) == []
    assert clock.monotonic() - start == pytest.approx(31)
    assert done == [pytest.approx(31)]


def test_crash_after_counts_port_calls(process: Process) -> None:
    mailbox = SimMailbox(process)
    process.crash_after(2)
    mailbox.collect(0)
    mailbox.collect(0)
    with pytest.raises(ProcessDied):
        mailbox.collect(0)


def test_others_run_while_a_process_waits_inside_its_step() -> None:
    world, steps = World(1), list[str]()

    def sleeper(seat: Seat) -> Step:
        def step(now: float) -> object:
            seat.mailbox.collect(5.0)
            steps.append("slept")
            return FINISHED

        return step

    def busy(seat: Seat) -> Step:
        def step(now: float) -> object:
            seat.mailbox.collect(0.1)
            steps.append("busy")
            return None

        return step

    world.spawn("a", sleeper, group="g")
    world.spawn("b", busy, group="g")
    world.run(6.0)
    assert steps.count("slept") == 1
    assert steps.index("slept") > 10
    assert world.finished == ["a.1"]
    assert [seat.process.name for seat in world.living()] == ["b.1"]


def test_what_leaves_a_process_is_kept_as_a_finding_and_ends_it() -> None:
    world = World(1)

    def broken(seat: Seat) -> Step:
        raise LookupError("a bug")

    world.spawn("a", broken, group="g")
    world.run(1.0)
    assert [(name, str(error)) for name, error in world.failures] == [("a.1", "a bug")]
    assert world.living() == []


def test_a_process_whose_wait_is_over_is_held_up_by_another_one_that_waits_above_it(clock: SimClock) -> None:
    below, above = Process("below", clock, Trace()), Process("above", clock, Trace())
    ready, seen = list[bool](), list[tuple[bool, bool]]()

    def look() -> None:
        seen.append((bool(ready), below.held_up_at == clock.monotonic()))

    clock.after(1, lambda: above.wait(5, lambda: False))
    clock.after(2, look)
    clock.after(3, lambda: ready.append(True))
    clock.after(4, look)
    below.wait(20, lambda: ready)
    assert seen == [(False, False), (True, True)]


@pytest.mark.parametrize(("wait_s", "held_up"), [(20.0, False), (4.0, True)], ids=["ends in time", "ends late"])
def test_a_wait_above_that_is_over_in_time_has_held_nobody_up(clock: SimClock, wait_s: float, held_up: bool) -> None:
    below, above = Process("below", clock, Trace()), Process("above", clock, Trace())
    clock.after(1, lambda: above.wait(5, lambda: False))
    begun = clock.monotonic()
    below.wait(wait_s, lambda: False)
    assert clock.monotonic() == begun + max(wait_s, 6.0)
    assert (below.held_up_at == clock.monotonic()) == held_up
    assert (below.held_up_at > begun) == held_up
