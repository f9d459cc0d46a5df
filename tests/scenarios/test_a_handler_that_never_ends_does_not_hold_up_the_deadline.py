"""P6: a shutdown is over by its deadline, whatever the handler does; the exit code is 5, the record comes again."""

from __future__ import annotations

import time

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Work
from tests.support.waiting import wait_until

TIMEOUT_S = 1.5
SLACK_S = 0.5  # for the interpreter's own end


@pytest.mark.timing
@pytest.mark.parametrize("manners", ["thread", "coroutine", "stubborn coroutine", "blocking coroutine"])
def test_a_handler_that_never_ends_does_not_hold_up_the_deadline(make_scene: MakeScene, manners: str) -> None:
    scene = make_scene(partitions=2)
    gate = scene.gate()
    [finished] = scene.send([Work(partition=1)])
    variables = {} if manners == "thread" else {"SCENARIO_ASYNC": "1"}
    member = scene.member({"shutdown.timeout_s": TIMEOUT_S}, variables=variables)
    scene.wait_all_ended([finished])
    [stuck] = scene.send([Work(partition=0, gate=gate, manners=manners.partition(" ")[0])])
    wait_until(lambda: stuck.id in scene.journal.started(), "the handler is at it")

    asked_at = member.terminate()
    code, took_s = member.end()
    assert time.monotonic() - asked_at > TIMEOUT_S / 2, "it had its time"
    assert code == 5
    assert took_s < TIMEOUT_S + SLACK_S
    assert scene.committed() == {1: 1}

    scene.open_gate(gate)
    scene.member(variables=variables)
    scene.wait_all_ended()
    scene.wait_committed()
    reconcile(scene, order="partition").assert_exactly_once()
