"""P3, P4, P5: a second member joins: what moves is handed over when its record in flight is done and committed.

Meanwhile the partitions that stay continue, commits included.
"""

from __future__ import annotations

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Work
from tests.support.waiting import wait_until

PARTITIONS = 4


def test_a_revoke_during_work_waits_for_the_record_in_hand(make_scene: MakeScene) -> None:
    scene = make_scene(partitions=PARTITIONS)
    gates = [scene.gate(f"gate-{partition}") for partition in range(PARTITIONS)]
    in_hand = scene.send(Work(partition=partition, gate=gate) for partition, gate in enumerate(gates))
    scene.send(Work(partition=number % PARTITIONS) for number in range(40))
    first = scene.member({"consumer.revoke_timeout_s": 120}).wait_assigned(PARTITIONS)
    wait_until(lambda: len(scene.journal.started()) == PARTITIONS, "each partition has a record in flight")

    second = scene.member()
    moving = {int(place.rpartition("[")[2][:-1]) for place in first.wait_event("partitions_revoking")["partitions"]}
    staying = set(range(PARTITIONS)) - moving
    assert len(moving) == len(staying) == 2

    for partition in staying:
        scene.open_gate(gates[partition])
    stay = {one.id for one in scene.sent if one.id.partition in staying}
    wait_until(lambda: stay <= scene.journal.ended(), "the partitions that stay continue")
    wait_until(lambda: scene.committed() == dict.fromkeys(staying, 11), "and commit")
    assert first.events("partitions_revoked") == [], "the others are still waited for"
    assert second.assignment() == set()
    assert scene.journal.started(pid=second.pid) == set()

    for partition in moving:
        scene.open_gate(gates[partition])
    scene.wait_all_ended()
    scene.wait_committed()
    assert second.assignment() == {(scene.topic, partition) for partition in moving}
    assert {one.id for one in in_hand} <= scene.journal.ended(pid=first.pid), "who began them has ended them"
    reconcile(scene, order="partition").assert_exactly_once()
    assert [first.stop(), second.stop()] == [0, 0]


@pytest.mark.timing
def test_a_signal_during_a_revoke_is_heard(make_scene: MakeScene) -> None:
    """P6: the deadline of the shutdown goes before that of the revoke, and the group is left in good order."""
    scene = make_scene(partitions=2)
    gate = scene.gate()
    scene.send(Work(partition=partition, gate=gate) for partition in range(2))
    first = scene.member({"shutdown.timeout_s": 4, "consumer.revoke_timeout_s": 30}).wait_assigned(2)
    wait_until(lambda: len(scene.journal.started()) == 2, "each partition has a record in flight")
    # When its revoke ends, the first joins again, and its leave waits until all have joined. The second hears of that
    # with its next heartbeat, which must come within the last second before the deadline of the first.
    second = scene.member({"consumer.heartbeat_interval_ms": 200} if scene.group_protocol == "classic" else {})
    first.wait_event("partitions_revoking")

    first.terminate()
    code, took_s = first.end()
    assert code == 5
    assert took_s < 4.5
    second.wait_assigned(2, timeout_s=4)  # a member that dies without a word is missed only after its session, 6 s
    scene.open_gate(gate)
    scene.wait_all_ended()
    scene.wait_committed()
    reconcile(scene, order="partition").assert_exactly_once()
