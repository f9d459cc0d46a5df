"""P1, P2, P3: a member that dies by kill -9 mid-work: the others redo what was not committed, and nothing else.

With commit="each" that is at most one record of each lane.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.journal import Id
from tests.scenarios.member import Member, wait_until
from tests.scenarios.reconcile import LANES, reconcile
from tests.scenarios.scene import Scene, Work

PARTITIONS, KEYS, RECORDS = 4, 24, 400


def _in_hand(scene: Scene, member: Member) -> set[Id]:
    return {span.id for span in scene.journal.spans() if span.start.pid == member.pid and span.outcome is None}


def _kill_mid_work(scene: Scene, victim: Member) -> set[Id]:
    """Freeze it to look: it must have something in hand when it dies. Returns that."""

    def caught() -> set[Id]:
        victim.freeze()
        in_hand = _in_hand(scene, victim)
        if not in_hand:
            victim.thaw()
        return in_hand

    in_hand = wait_until(caught, what="it has something in hand")
    victim.kill()
    return in_hand


@pytest.mark.parametrize(("order", "commit"), [("partition", "each"), ("key", "each"), ("key", "interval")])
def test_a_member_killed_with_kill_9_mid_work_loses_nothing(make_scene: MakeScene, order: str, commit: str) -> None:
    scene = make_scene(partitions=PARTITIONS)
    settings = {"consumer.order": order, "commit.mode": commit}
    victim = scene.member(settings).wait_assigned(PARTITIONS)
    other = scene.member(settings).wait_assigned(PARTITIONS // 2)
    scene.send(Work(key=b"key-%d" % (number % KEYS), sleep_s=0.015) for number in range(RECORDS))
    wait_until(lambda: len(scene.journal.ended(pid=victim.pid)) >= 40, what="the victim has worked for a while")

    in_hand = _kill_mid_work(scene, victim)
    scene.wait_all_ended(timeout_s=30)
    scene.wait_committed()

    findings = reconcile(scene, order=order)
    findings.assert_nothing_lost()
    started = Counter(entry.id for entry in scene.journal.of("start"))
    again = {record for record, count in started.items() if count > 1}
    assert in_hand <= again, "what it had in hand was begun anew"
    assert again <= scene.journal.started(pid=victim.pid), "nobody else repeats anything"
    if commit == "each":
        lanes = {LANES[order](entry) for entry in scene.journal.of("start") if entry.id in again}
        assert len(again) == len(lanes), "at most one record of each lane was repeated"
    assert other.stop() == 0
