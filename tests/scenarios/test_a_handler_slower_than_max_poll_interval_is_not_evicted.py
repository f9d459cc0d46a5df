"""P4: a handler that takes longer than the poll interval is no reason for the group to give up its member."""

from __future__ import annotations

from tests.scenarios.conftest import MakeScene
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Work
from tests.support.waiting import wait_until

POLL_INTERVAL_MS = 6_000
HANDLER_S = 9.0


def test_a_handler_slower_than_max_poll_interval_is_not_evicted(make_scene: MakeScene) -> None:
    scene = make_scene(partitions=2)
    member = scene.member({"consumer.max_poll_interval_ms": POLL_INTERVAL_MS, "consumer.revoke_timeout_s": 2})
    member.wait_assigned(2)
    scene.send([Work(partition=0, sleep_s=HANDLER_S), Work(partition=0)])
    scene.send(Work(partition=1, sleep_s=0.1) for _ in range(70))
    wait_until(lambda: len(scene.journal.ended()) >= 70, "the other partition continues")

    scene.wait_all_ended()
    scene.wait_committed()
    [slow] = [span for span in scene.journal.spans() if span.until - span.start.at > POLL_INTERVAL_MS / 1000]
    assert slow.id.offset == 0
    reconcile(scene, order="partition").assert_exactly_once()
    assert len(member.events("partitions_assigned")) == 1
    assert member.events("partitions_revoked") == member.events("partitions_lost") == []
    assert len(scene.history().generations) == 1, "no rebalance since the first"
    assert member.stop() == 0
