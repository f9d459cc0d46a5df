"""P5: a second process takes over a static member's name: the first ends with its exit code, the second continues."""

from __future__ import annotations

from tests.scenarios.conftest import MakeScene
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Work
from tests.support.waiting import DEADLINE_S, wait_until


def test_a_fenced_static_member_ends_with_code_6(make_scene: MakeScene) -> None:
    scene = make_scene(partitions=2)
    gate = scene.gate()
    [in_hand] = scene.send([Work(partition=0, gate=gate)])
    static = {"consumer.group_instance_id": "the-only-one"}
    first = scene.member(static)
    wait_until(scene.journal.started, "the first has a record in flight")

    second = scene.member(static).wait_assigned(2)
    assert first.wait(DEADLINE_S) == 6
    scene.open_gate(gate)
    scene.send(Work(partition=number % 2) for number in range(20))
    scene.wait_all_ended()
    scene.wait_committed()
    assert scene.journal.ended(pid=first.pid) == set(), "it did not outstay its name"
    assert in_hand.id in scene.journal.ended(pid=second.pid)
    reconcile(scene, order="partition", zombies=[first.pid]).assert_exactly_once()
    assert second.stop() == 0
