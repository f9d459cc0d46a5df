"""P5, P2: a member slept through its session and wakes up with old results: they commit nothing, hold up nothing."""

from __future__ import annotations

import time

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.member import wait_until
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Work

PARTITIONS = 4


@pytest.mark.parametrize(("order", "commit"), [("partition", "each"), ("key", "interval")])
def test_a_member_stopped_past_its_session_is_fenced_off(make_scene: MakeScene, order: str, commit: str) -> None:
    scene = make_scene(partitions=PARTITIONS)
    settings = {"consumer.order": order, "commit.mode": commit}
    gate = scene.gate()
    sleeper = scene.member(settings).wait_assigned(PARTITIONS)
    heir = scene.member(settings).wait_assigned(PARTITIONS // 2)
    sleeper.wait_assigned(PARTITIONS // 2)
    own = sorted(partition for _, partition in sleeper.assignment())
    in_hand = scene.send(Work(partition=partition, key=b"%d" % partition, gate=gate) for partition in own)
    scene.send(Work(partition=partition, key=b"%d" % partition) for partition in own for _ in range(5))
    wait_until(lambda: {one.id for one in in_hand} <= scene.journal.started(pid=sleeper.pid), what="it is at work")

    sleeper.freeze()
    scene.open_gate(gate)  # its own handlers will find the gate open when they wake up
    heir.wait_assigned(PARTITIONS, timeout_s=20)
    scene.wait_all_ended()
    scene.wait_committed()
    committed = scene.history().commits
    woken_ms = time.time() * 1000
    sleeper.thaw()
    wait_until(lambda: {one.id for one in in_hand} <= scene.journal.ended(pid=sleeper.pid), what="its late results")
    sleeper.wait_event("lost")
    sleeper.wait_assigned(PARTITIONS // 2)

    late = [commit for commit in scene.history().commits[len(committed) :] if commit.partition in own]
    assert late == [], "the late results commit nothing"
    again = [entry for entry in scene.journal.of("start", pid=sleeper.pid) if entry.wall_ms > woken_ms]
    assert again == [], "it starts nothing that is no longer its own"

    scene.send(Work(partition=partition, key=b"%d" % partition) for partition in range(PARTITIONS) for _ in range(10))
    scene.wait_all_ended()
    scene.wait_committed()
    assert scene.journal.ended(pid=sleeper.pid) > {one.id for one in in_hand}, "it is a good member again"
    findings = reconcile(scene, order=order, zombies=[sleeper.pid])
    findings.assert_nothing_lost()
    assert set(findings.repeated) == {one.id for one in in_hand}, "repeated is what it had in hand, and nothing else"
    assert [sleeper.stop(), heir.stop()] == [0, 0]
