"""P1, P2, P3: key order, interval commits: one slow key pins the committed offset, the map in the commit tells more.

After kill -9 the next owner skips what the map says is finished, although the committed offset lies below it.
"""

from __future__ import annotations

from keepfast.core.commit_metadata import decode
from tests.scenarios.conftest import MakeScene
from tests.scenarios.journal import Id
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Work
from tests.support.waiting import wait_until

SETTINGS = {"consumer.order": "key", "commit.mode": "interval", "commit.every_s": 0.2}


def test_records_in_flight_beside_a_dead_process_with_completion_map_are_not_repeated(make_scene: MakeScene) -> None:
    scene = make_scene()
    gate = scene.gate()
    [slow, *_] = scene.send([Work(key=b"slow", gate=gate), Work(key=b"slow")])
    quick = {one.id for one in scene.send(Work(key=b"key-%d" % (number % 20)) for number in range(200))}
    behind = scene.sent[1]
    victim = scene.member(SETTINGS)
    wait_until(lambda: quick <= scene.journal.ended(), "the quick keys are through")

    def reported() -> set[Id]:
        offset, metadata = scene.committed_with_metadata().get(0, (0, ""))
        assert offset == 0, "the slow record is not finished"
        finished = decode(metadata, offset=offset)
        return {record for record in quick if record.offset in finished}

    wait_until(lambda: reported() == quick, "the commit tells of all of them")
    victim.kill()

    scene.open_gate(gate)
    heir = scene.member(SETTINGS)
    scene.wait_all_ended()
    scene.wait_committed()
    assert scene.journal.started(pid=heir.pid) == {slow.id, behind.id}, "only what was not finished is done"
    reconcile(scene, order="key").assert_exactly_once()
    assert heir.stop() == 0
