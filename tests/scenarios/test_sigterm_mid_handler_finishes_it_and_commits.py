"""P6, P1: SIGTERM while a handler runs: it finishes, that is committed, nothing new starts, the exit code is 0."""

from __future__ import annotations

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Work
from tests.support.waiting import DEADLINE_S, wait_until


@pytest.mark.parametrize("handler", ["thread", "coroutine"])
def test_sigterm_mid_handler_finishes_it_and_commits(make_scene: MakeScene, handler: str) -> None:
    scene = make_scene(partitions=2)
    gate = scene.gate()
    in_hand = scene.send([Work(partition=0, gate=gate), Work(partition=1, gate=gate)])
    behind = scene.send([Work(partition=0), Work(partition=1)])
    variables = {"SCENARIO_ASYNC": "1"} if handler == "coroutine" else {}
    member = scene.member(variables=variables)
    wait_until(lambda: len(scene.journal.started()) == 2, "both records are in flight")

    member.terminate()
    member.wait_event("drain_started")
    scene.open_gate(gate)

    assert member.wait(DEADLINE_S) == 0
    assert scene.journal.ended() == {one.id for one in in_hand}
    assert scene.journal.started() == scene.journal.ended(), "nothing new was started"
    assert scene.committed() == {0: 1, 1: 1}

    scene.member(variables=variables)
    scene.wait_all_ended(behind)
    scene.wait_committed()
    reconcile(scene, order="partition").assert_exactly_once()
