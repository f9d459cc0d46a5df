"""P1, P2, P3: a member that dies by kill -9 mid-work: the others redo what was not committed, and nothing else.

With commit="each" that is at most one record of each lane. Three groups lose a member at the same time, so that the
test waits for one session only.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.journal import Id
from tests.scenarios.member import Member
from tests.scenarios.reconcile import LANES, reconcile
from tests.scenarios.scene import Scene, Work
from tests.support.waiting import wait_until

PARTITIONS, KEYS, RECORDS = 4, 24, 400


@dataclass(slots=True)
class Group:
    """Two members, one of which will die."""

    order: str
    commit: str
    scene: Scene
    victim: Member
    heir: Member

    def kill_mid_work(self) -> set[Id]:
        """Freeze it to look: it must have something in flight when it dies. Returns that. The last record of each key
        waits at a gate until then, should it get so far.
        """
        gate, last = self.scene.gate(), RECORDS - KEYS
        self.scene.send(
            Work(key=b"key-%d" % (number % KEYS), **({"sleep_s": 0.03} if number < last else {"gate": gate}))
            for number in range(RECORDS)
        )
        wait_until(lambda: len(self.scene.journal.ended(pid=self.victim.pid)) >= 40, "it has worked for a while")
        in_hand = self.scene.freeze_with_records_in_flight(self.victim)
        self.victim.kill()
        self.scene.open_gate(gate)
        return in_hand

    def judge(self, in_hand: set[Id]) -> None:
        journal = self.scene.journal
        findings = reconcile(self.scene, order=self.order)
        findings.assert_nothing_lost()
        started = Counter(entry.id for entry in journal.of("start"))
        again = {record for record, count in started.items() if count > 1}
        assert in_hand <= again, "what it had in flight was begun again"
        assert again <= journal.started(pid=self.victim.pid), "nobody else repeats anything"
        if self.commit == "each":
            findings.assert_committed_each()
            lanes = {LANES[self.order](entry) for entry in journal.of("start") if entry.id in again}
            assert len(again) == len(lanes), "at most one record of each lane was repeated"


@pytest.fixture
def groups(make_scene: MakeScene) -> list[Group]:
    made = []
    for order, commit in [("partition", "each"), ("key", "each"), ("key", "interval")]:
        scene = make_scene(partitions=PARTITIONS)
        settings = {"consumer.order": order, "commit.mode": commit}
        made.append(Group(order, commit, scene, scene.member(settings), scene.member(settings)))
    return made


def test_a_member_killed_with_kill_9_mid_work_loses_nothing(groups: list[Group]) -> None:
    for group in groups:
        group.victim.wait_assigned(PARTITIONS // 2)
        group.heir.wait_assigned(PARTITIONS // 2)
    in_hand = [group.kill_mid_work() for group in groups]
    for group, lost_in_hand in zip(groups, in_hand, strict=True):
        group.scene.wait_all_ended()
        group.scene.wait_committed()
        group.judge(lost_in_hand)
        assert group.heir.stop() == 0
