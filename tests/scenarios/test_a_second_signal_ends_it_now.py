"""P6: the second signal does not wait for handlers, brokers or deadlines; the exit code says which it was."""

from __future__ import annotations

import signal

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.scene import Work
from tests.support.waiting import DEADLINE_S, wait_until

EXIT_WITHIN_S = 0.5


@pytest.mark.timing
@pytest.mark.parametrize(("second", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_it_now(make_scene: MakeScene, second: signal.Signals, code: int) -> None:
    scene = make_scene()
    scene.send([Work(gate=scene.gate()), Work()])
    member = scene.member()
    wait_until(scene.journal.started, "a record is in flight")

    member.terminate()
    member.wait_event("drain_started", in_flight=1)
    assert member.running
    member.signal(second)

    found, took_s = member.end()
    assert found == code
    assert took_s < EXIT_WITHIN_S
    assert scene.committed() == {}, "what was not finished is not committed"


def test_two_signals_at_once_are_two_signals(make_scene: MakeScene) -> None:
    scene = make_scene()
    scene.send([Work(gate=scene.gate())])
    member = scene.member()
    wait_until(scene.journal.started, "a record is in flight")

    member.terminate()
    member.signal(signal.SIGINT)
    assert member.wait(DEADLINE_S) in {130, 143}, "whichever was heard last"
    assert scene.committed() == {}
