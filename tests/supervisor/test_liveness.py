"""When a child that fails its probes is restarted, and when its failures are not its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from keepfast.core.errors import ConfigError
from keepfast.http.local_app import LocalApp
from keepfast.http.pages import Pages
from keepfast.http.server import Server
from keepfast.supervisor import ChildWatch, LivenessPolicy
from keepfast.supervisor.liveness import LATE_S, STATE_TIMEOUT_S, Liveness, Outcome
from keepfast.telemetry.state import HealthReport, Reason

POLICY = LivenessPolicy()


def known_after(*outcomes: Outcome, every_s: float = 5.0) -> Liveness:
    """Probes that take their whole time."""
    known = Liveness()
    for number, outcome in enumerate(outcomes):
        known = known.after(outcome, sent_at=number * every_s, ended_at=(number + 1) * every_s)
    return known


def times(count: int, outcome: Outcome) -> list[Outcome]:
    return [outcome] * count


def test_a_child_is_restarted_after_thirty_seconds_without_an_answer() -> None:
    assert not known_after("live", *times(5, "silent")).restart_due(POLICY)
    assert known_after("live", *times(6, "silent")).restart_due(POLICY)


def test_also_one_that_never_answered_though_its_server_listens() -> None:
    assert known_after("away", *times(6, "silent")).restart_due(POLICY)


def test_an_answer_in_between_counts_again_from_there() -> None:
    assert not known_after("live", *times(5, "silent"), "live", *times(5, "silent")).restart_due(POLICY)


def test_few_slow_probes_are_not_enough() -> None:
    assert not known_after("live", "silent", "silent", every_s=30.0).restart_due(POLICY)


def test_a_child_that_starts_may_take_its_time() -> None:
    known = known_after(*times(100, "away"))
    assert (known.up, known.restart_due(POLICY)) == (False, False)


def test_one_whose_server_is_gone_is_restarted_if_it_does_not_exit() -> None:
    assert known_after("live", *times(6, "away")).restart_due(POLICY)


def test_one_that_says_itself_that_it_is_not_live_is_restarted_after_as_long() -> None:
    assert not known_after("live", *times(5, "not live")).restart_due(POLICY)
    assert known_after("live", *times(6, "not live")).restart_due(POLICY)
    assert not known_after("live", *times(5, "silent"), "not live").restart_due(POLICY)


def test_what_the_supervisor_could_not_ask_counts_for_nothing() -> None:
    assert not known_after("live", *times(5, "silent"), "not asked", *times(5, "silent")).restart_due(POLICY)
    known = known_after(*times(100, "not asked"))
    assert (known.up, known.failures) == (False, 0)


@pytest.mark.parametrize("wrong", [{"every_s": 0}, {"timeout_s": -1}, {"failures": 0}, {"restart_after_s": 0}])
def test_limits_that_every_child_would_exceed_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="above 0"):
        LivenessPolicy(**wrong)  # type: ignore[arg-type]


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    """The address of a child that accepts connections and answers none of them."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "0.sock"))
        listening.listen(64)
        yield f"unix:{tmp_path}/0.sock"


def rounds(watch: ChildWatch, clock: Clock, pauses: list[float]) -> Liveness:
    """One round of probes after each pause."""
    with ThreadPoolExecutor(1) as threads:
        for pause_s in pauses:
            clock.now += pause_s
            watch.ask_all(threads)
    return watch.of(0)


def watching(address: str, clock: Clock) -> ChildWatch:
    watch = ChildWatch({0: address}, LivenessPolicy(timeout_s=0.05, every_s=5.0), clock=clock)
    watch.started(0, pid=1)
    return watch


def test_probes_that_are_not_answered_add_up(silent: str) -> None:
    clock = Clock()
    known = rounds(watching(silent, clock), clock, [5.0] * 7)
    assert (known.up, known.silent, known.failures, known.failing_s) == (True, True, 7, 30.0)
    assert known.restart_due(POLICY)


@pytest.mark.parametrize("gap_s", [5.0 + LATE_S + 0.1, 3600.0])
def test_counting_begins_again_after_a_time_in_which_the_supervisor_did_not_run(silent: str, gap_s: float) -> None:
    clock = Clock()
    watch = watching(silent, clock)
    assert rounds(watch, clock, [5.0] * 6).failures == 6
    assert rounds(watch, clock, [gap_s]).failures == 0
    known = rounds(watch, clock, [5.0] * 6)
    assert (known.failures, known.restart_due(POLICY)) == (6, False)


def test_also_after_a_round_that_took_longer_than_it_can(silent: str) -> None:
    """The supervisor was stopped while it waited for the answers: its timeouts have passed, whatever the child did."""

    class Stopped(Clock):
        def __call__(self) -> float:
            self.now += jump_s
            return self.now

    jump_s = 0.0
    clock = Stopped()
    watch = watching(silent, clock)
    assert rounds(watch, clock, [5.0] * 6).failures == 6
    jump_s = POLICY.timeout_s + STATE_TIMEOUT_S + LATE_S + 1
    with ThreadPoolExecutor(1) as threads:
        watch.ask_all(threads)
    assert watch.of(0).failures == 0


def test_an_address_that_cannot_be_used_is_no_fault_of_the_child(tmp_path: Path) -> None:
    clock = Clock()
    known = rounds(watching(f"unix:{tmp_path}/{'x' * 200}.sock", clock), clock, [5.0] * 10)
    assert (known.up, known.failures) == (False, 0)


def test_a_child_that_drains_is_left_to_its_own_deadline(tmp_path: Path) -> None:
    class Draining(LocalApp):
        def health(self) -> HealthReport:
            blocked = Reason(code="event_loop_blocked", level="failing", text="…", fails_live=True, fails_ready=True)
            drains = Reason(code="draining", level="degraded", text="…", fails_ready=True)
            return HealthReport(status="failing", live=False, ready=False, started=True, reasons=(blocked, drains))

    server = Server(Pages(Draining("shop")))
    server.start(f"unix:{tmp_path}/0.sock", 0)
    try:
        clock = Clock()
        assert rounds(watching(f"unix:{tmp_path}/0.sock", clock), clock, [5.0] * 3).failures == 0
    finally:
        server.stop()


def test_answers_of_a_child_that_has_ended_are_not_those_of_the_next(silent: str) -> None:
    clock = Clock()
    watch = watching(silent, clock)
    rounds(watch, clock, [5.0] * 6)
    watch.ended(0)
    watch.started(0, pid=2)
    assert watch.of(0) == Liveness()


def test_a_running_app_is_live(tmp_path: Path) -> None:
    server = Server(Pages(LocalApp("shop")))
    server.start(f"unix:{tmp_path}/0.sock", 0)
    try:
        clock = Clock()
        watch = ChildWatch({0: f"unix:{tmp_path}/0.sock"}, clock=clock)
        watch.started(0, pid=1)
        known = rounds(watch, clock, [5.0])
    finally:
        server.stop()
    assert (known.up, known.silent, known.failures, known.answered_at) == (True, False, 0, 5.0)


def test_the_next_child_has_the_partitions_of_the_last_one(silent: str) -> None:
    """It is a static member, and may hang before it has answered once."""
    watch = watching(silent, Clock())
    watch._watched[0].known = Liveness(up=True, partitions=("orders[3]",))
    watch.ended(0)
    watch.started(0, pid=2)
    assert watch.of(0) == Liveness(partitions=("orders[3]",))
