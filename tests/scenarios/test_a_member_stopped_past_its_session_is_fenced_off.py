"""P5, P2: a member slept through its session and wakes up with old results: they commit nothing, hold up nothing.

In one group the results come when the member has been back for a while, in the other before it knows of its loss. With
commit="each" it does not start anything of its lost partitions either: its lanes wait for commits that never come. With
interval commits it may continue with what it has in memory until it hears of the loss. Two groups sleep at the same
time, so that the test waits for one session only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from tests.scenarios.conftest import MakeScene
from tests.scenarios.member import Member
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Scene, Sent, Work
from tests.support.waiting import wait_until

PARTITIONS = 4
OWN = ".sleeper"


def positions(scene: Scene) -> list[tuple[int, int]]:
    """The steps that the group has taken: what is committed once more, with other metadata, is none."""
    steps: dict[int, list[int]] = {}
    for commit in scene.history().commits:
        steps.setdefault(commit.partition, []).append(commit.offset)
    return [(partition, offset) for partition, all_ in sorted(steps.items()) for offset, _ in groupby(all_)]


@dataclass(slots=True)
class Group:
    """One member that falls asleep, one that inherits its partitions."""

    order: str
    commit: str
    scene: Scene
    sleeper: Member
    heir: Member
    gate: Path
    in_hand: list[Sent] = field(default_factory=list)

    @property
    def own_gate(self) -> Path:
        return self.gate.with_name(self.gate.name + OWN)

    def fall_asleep_at_work(self) -> None:
        scene = self.scene
        self.heir.wait_assigned(PARTITIONS // 2)
        self.sleeper.wait_assigned(PARTITIONS // 2)
        own = sorted(partition for _, partition in self.sleeper.assignment())
        self.in_hand = scene.send(Work(partition=partition, key=b"%d" % partition, gate=self.gate) for partition in own)
        scene.send(Work(partition=partition, key=b"%d" % partition) for partition in own for _ in range(5))
        wanted = {one.id for one in self.in_hand}
        wait_until(lambda: wanted <= scene.journal.started(pid=self.sleeper.pid), "it is at work")
        self.sleeper.freeze()
        scene.open_gate(self.gate)  # for the heir; the sleeper has gates of its own

    def wake_up(self) -> None:
        scene = self.scene
        self.heir.wait_assigned(PARTITIONS)
        scene.wait_all_ended()
        scene.wait_committed()
        committed = positions(scene)
        woken_ms = time.time() * 1000
        if self.commit == "interval":  # its handlers end the moment it wakes, before it knows; else when it is back
            scene.open_gate(self.own_gate)
        self.sleeper.thaw()
        self.sleeper.wait_event("partitions_lost")
        self.sleeper.wait_assigned(PARTITIONS // 2)
        scene.open_gate(self.own_gate)
        wanted = {one.id for one in self.in_hand}
        wait_until(lambda: wanted <= scene.journal.ended(pid=self.sleeper.pid), "its late results")
        assert positions(scene) == committed, "the late results commit nothing"
        again = [entry for entry in scene.journal.of("start", pid=self.sleeper.pid) if entry.wall_ms > woken_ms]
        assert again == [] or self.commit == "interval", "it starts nothing that is no longer its own"

    def go_on(self) -> None:
        scene = self.scene
        before = scene.journal.ended(pid=self.sleeper.pid)
        scene.send(Work(partition=number % PARTITIONS, key=b"%d" % number) for number in range(40))
        scene.wait_all_ended()
        scene.wait_committed()
        assert scene.journal.ended(pid=self.sleeper.pid) > before, "it is a good member again"
        findings = reconcile(scene, order=self.order, zombies=[self.sleeper.pid])
        findings.assert_nothing_lost()
        assert set(findings.repeated) >= {one.id for one in self.in_hand}
        if self.commit == "each":
            assert set(findings.repeated) == {one.id for one in self.in_hand}, "nothing but what it had in flight"
        assert [self.sleeper.stop(), self.heir.stop()] == [0, 0]


def test_a_member_stopped_past_its_session_is_fenced_off(make_scene: MakeScene) -> None:
    groups = []
    for order, commit in [("partition", "each"), ("key", "interval")]:
        scene = make_scene(partitions=PARTITIONS)
        settings = {"consumer.order": order, "commit.mode": commit}
        sleeper = scene.member(settings, variables={"SCENARIO_GATES": OWN})
        groups.append(Group(order, commit, scene, sleeper, scene.member(settings), scene.gate()))
    for group in groups:
        group.fall_asleep_at_work()
    for group in groups:
        group.wake_up()
    for group in groups:
        group.go_on()
