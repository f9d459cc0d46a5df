"""P5: a static member is killed while it revokes partitions, and is back within its session: the group does not
rebalance, and no member begins the second round, in which these partitions get an owner. So the member does.
"""

from __future__ import annotations

from tests.scenarios.conftest import MakeScene
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Work
from tests.support.waiting import wait_until

PARTITIONS = 4


def test_a_static_member_killed_between_two_rounds_leaves_no_partition_without_an_owner(make_scene: MakeScene) -> None:
    scene = make_scene(partitions=PARTITIONS)
    gate = scene.gate()
    scene.send(Work(partition=partition, gate=gate) for partition in range(PARTITIONS))
    one, two = ({"consumer.group_instance_id": name, "consumer.session_timeout_ms": 60_000} for name in ("one", "two"))
    first = scene.member(one | {"consumer.revoke_timeout_s": 120}).wait_assigned(PARTITIONS)
    wait_until(lambda: len(scene.journal.started()) == PARTITIONS, "each partition has a record in flight")
    second = scene.member(two | {"consumer.revoke_timeout_s": 120})  # it would notice, too, but much later
    moving = first.wait_event("partitions_revoking")["partitions"]
    first.kill()

    again = scene.member(one | {"consumer.revoke_timeout_s": 2})
    assert again.wait_event("partitions_without_owner")["partitions"] == sorted(moving)
    again.wait_event("partitions_revoking")
    scene.open_gate(gate)
    scene.send(Work(partition=number % PARTITIONS) for number in range(20))
    scene.wait_all_ended()
    scene.wait_committed()
    assert (len(again.assignment()), len(second.assignment())) == (2, 2)
    reconcile(scene, order="partition").assert_nothing_lost()
    assert len(again.events("partitions_without_owner")) == 1
    assert second.events("partitions_without_owner") == []
    assert [again.stop(), second.stop()] == [0, 0]
