"""P6: while a member joins its group, its other requests wait for the answer; also the commit that announces its end.
If nothing else is left to commit, that is no missed deadline.
"""

from __future__ import annotations

from typing import Any

from tests.scenarios.conftest import MakeScene
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Work
from tests.support.members import connection, kafka_member
from tests.support.waiting import DEADLINE_S, wait_until


def test_a_stop_while_the_group_rebalances_is_clean_if_all_is_committed(make_scene: MakeScene) -> None:
    scene = make_scene(partitions=2)
    scene.send(Work(partition=number % 2) for number in range(10))
    member = scene.member({"shutdown.timeout_s": 3}).wait_assigned(2)  # before the client gives the commit up
    scene.wait_all_ended()
    scene.wait_committed()

    # One that joins and is not polled: it does not take part in the second round, for which the others wait.
    timings: dict[str, Any] = {"session_timeout_ms": 30_000, "max_poll_interval_ms": 120_000}
    with kafka_member(connection(scene.broker.bootstrap), scene.topic, scene.group, **timings):
        wait_until(lambda: member.events("partitions_revoked"), "the member gives a partition up, and joins again")
        member.terminate()
        assert member.wait(DEADLINE_S) == 0
    assert member.events("deadline_passed") == []
    assert len(member.events("group_not_left")) == 1

    again = scene.member()
    scene.send(Work(partition=number % 2) for number in range(10))
    scene.wait_all_ended()
    scene.wait_committed()
    reconcile(scene, order="partition").assert_exactly_once()
    assert again.stop() == 0
