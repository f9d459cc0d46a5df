"""P1, P6: a handler says Halt: every consumer of the app drains, the exit code is 4, the record stays unfinished."""

from __future__ import annotations

from tests.scenarios.conftest import MakeScene
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Work
from tests.support.waiting import DEADLINE_S, wait_until


def test_a_member_that_halts_ends_the_app_with_code_4(make_scene: MakeScene) -> None:
    scene = make_scene(partitions=2)
    gate = scene.gate()
    [in_hand] = scene.send([Work(partition=1, gate=gate)])
    member = scene.member()
    wait_until(scene.journal.started, "a record is in flight")
    [halting, _] = scene.send([Work(partition=0, failures=1, error="halt"), Work(partition=0)])
    member.wait_event("consumer_halted", partition=0, offset=0)
    member.wait_event("drain_started")
    scene.open_gate(gate)

    assert member.wait(DEADLINE_S) == 4
    assert scene.journal.ended() == {in_hand.id}, "what was in flight was finished, nothing new was started"
    assert scene.committed() == {1: 1}, "and committed; the record that halted is not"

    after = scene.member({"consumer.order": "partition"})
    assert after.wait(DEADLINE_S) == 4, "it comes again, and halts again"
    assert [entry.id for entry in scene.journal.of("fail")] == [halting.id] * 2
    findings = reconcile(scene, order="partition")
    assert findings.ahead == findings.backwards == findings.order == findings.needless == []


def test_a_halt_of_one_consumer_drains_the_others(make_scene: MakeScene) -> None:
    left, right = make_scene(partitions=1), make_scene(partitions=1)
    gate = left.gate()
    [in_hand] = left.send([Work(gate=gate)])
    member = left.member(
        {
            "consumer.topics": None,
            "consumer.group": None,
            "consumers.left.topics": left.topic,
            "consumers.left.group": left.group,
            "consumers.right.topics": right.topic,
            "consumers.right.group": right.group,
        },
        app="pair.py",
    )
    wait_until(left.journal.started, "the left consumer has a record in flight")
    right.send([Work(failures=1, error="halt")])
    member.wait_event("drain_started", consumer="left", in_flight=1)
    left.open_gate(gate)

    assert member.wait(DEADLINE_S) == 4
    assert left.journal.ended() == {in_hand.id}
    assert left.committed() == {0: 1}
    assert right.committed() == {}
