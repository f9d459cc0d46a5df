"""P7, precise: the flight recorder tells which records a dead process had in flight, and whether it died at all."""

from __future__ import annotations

import signal
from pathlib import Path

from keepfast.core import commit_metadata, crash_guard
from tests.scenarios.conftest import MakeScene
from tests.scenarios.dead_letter_topic import letters
from tests.scenarios.member import Member
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Scene, Work
from tests.support.waiting import DEADLINE_S, wait_until

WORKERS = 8
KILLS = 4


def settings(scene: Scene, folder: Path, **more: object) -> dict[str, object]:
    """A static member gets its partitions back at once when it is started again."""
    return {
        "consumer.group_instance_id": f"static-{scene.topic}",
        "dead_letter.topic": "{topic}.dlq",
        "state.dir": folder,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def letters_of(scene: Scene) -> list[object]:
    """What was dead-lettered; the topic has the source's partitions."""
    name = f"{scene.topic}.dlq"
    partitions = len(scene.broker.admin.list_topics(name, timeout=DEADLINE_S).topics[name].partitions)
    return list(letters(scene.broker, name, partitions))


def guard_of(scene: Scene, partition: int = 0) -> crash_guard.Guard:
    """What the group's commit says about crashes."""
    offset, metadata = scene.committed_with_metadata().get(partition, (0, ""))
    return crash_guard.read(commit_metadata.read(metadata, offset=offset)[1], offset)


def test_after_four_kills_with_a_backlog_no_more_run_alone_than_were_in_hand(
    make_scene: MakeScene, tmp_path: Path
) -> None:
    """Interval commits lease thousands of offsets: that many ran one by one when only the lease was known."""
    scene = make_scene(partitions=2)
    scene.send(Work(key=b"%d" % (number % 50), partition=number % 2, sleep_s=0.002) for number in range(4_000))
    own = settings(
        scene,
        tmp_path,
        consumer__order="key",
        consumer__concurrency=WORKERS,
        commit__mode="interval",
        commit__every_s=0.2,
    )
    members: list[Member] = []
    for _ in range(KILLS):
        done = len(scene.journal.ended())
        members.append(scene.member(own))
        wait_until(lambda n=done: len(scene.journal.ended()) >= n + 60, "it has done some more")  # type: ignore[misc]
        members[-1].kill()
    members.append(scene.member(own))
    scene.wait_all_ended()
    scene.wait_committed()
    assert members[-1].stop() == 0
    deaths = [event for member in members for event in member.events("previous_owner_crashed")]
    assert all("in_flight" in event for event in deaths), "each death was read from the recorder"
    suspects = [event["suspects"] for member in members for event in member.events("probation_started")]
    assert sum(suspects) <= KILLS * WORKERS, suspects
    assert letters_of(scene) == []
    reconcile(scene, order="key").assert_nothing_lost()


def test_a_death_with_nothing_in_hand_leaves_no_mark(make_scene: MakeScene, tmp_path: Path) -> None:
    scene = make_scene()
    scene.send([Work(), Work()])
    first = scene.member(settings(scene, tmp_path))
    scene.wait_committed()
    first.kill()
    assert guard_of(scene).lease is not None
    scene.send([Work()])
    second = scene.member(settings(scene, tmp_path))
    scene.wait_all_ended()
    assert second.wait_event("previous_owner_crashed")["in_flight"] == 0
    guard = guard_of(scene)
    assert (guard.mark, guard.in_hand) == (None, ())
    assert second.stop() == 0
    assert list(tmp_path.glob("*.flight")) != [], "what the dead one noted"
    assert len(list(tmp_path.glob("*.flight"))) == 1, "a clean end removes its own"


def test_an_owner_that_lost_its_session_and_lives_has_not_died(make_scene: MakeScene, tmp_path: Path) -> None:
    scene = make_scene()
    gate = scene.gate()
    scene.send([Work(gate=gate)])
    own = settings(scene, tmp_path, consumer__group_instance_id=None)
    sleeper = scene.member(own)
    wait_until(scene.journal.started, "it is at work")
    sleeper.freeze()
    heir = scene.member(own)
    heir.wait_event("lease_not_released")
    assert heir.events("previous_owner_crashed") == []
    guard = guard_of(scene)
    assert (guard.mark, guard.in_hand) == (None, ())
    sleeper.thaw()
    scene.open_gate(gate)
    scene.wait_committed()


def test_a_second_signal_is_not_the_crash_of_the_record_in_hand(make_scene: MakeScene, tmp_path: Path) -> None:
    """Without the recorder's word it would be dead-lettered at the fourth start."""
    here, elsewhere = make_scene(), make_scene()
    gates = {scene.topic: scene.gate() for scene in (here, elsewhere)}
    for scene in (here, elsewhere):
        scene.send([Work(gate=gates[scene.topic])])
    for life in range(4):
        # One group is started again on the same host, the other one each time on a new one.
        members = {
            here.topic: here.member(settings(here, tmp_path / "here", consumer__max_deliveries=1)),
            elsewhere.topic: elsewhere.member(settings(elsewhere, tmp_path / f"{life}", consumer__max_deliveries=1)),
        }
        for scene in (here, elsewhere):
            member = members[scene.topic]
            started = wait_until(lambda s=scene, m=member: s.journal.started(pid=m.pid), "it is in flight")  # type: ignore[misc]
            assert started
            member.terminate()
        wait_until(lambda: guard_of(elsewhere).draining, "the commit says that it drains")
        for member in members.values():
            member.signal(signal.SIGINT)
            assert member.wait(DEADLINE_S) == 130
    for scene in (here, elsewhere):
        scene.open_gate(gates[scene.topic])
        last = scene.member(settings(scene, tmp_path / ("here" if scene is here else "last")))
        scene.wait_committed()
        assert last.stop() == 0
        assert letters_of(scene) == []
        assert [event for member in scene.members for event in member.events("previous_owner_crashed")] == []


def test_partitions_without_work_report_no_death_after_a_clean_stop(make_scene: MakeScene, tmp_path: Path) -> None:
    scene = make_scene(partitions=6)
    scene.send([Work(partition=0), Work(partition=1)])
    for _ in range(3):
        pair = [
            scene.member(settings(scene, tmp_path, consumer__group_instance_id=f"{number}-{scene.topic}"))
            for number in range(2)
        ]
        wait_until(lambda two=pair: sum(len(one.assignment()) for one in two) == 6, "all are assigned")  # type: ignore[misc]
        scene.wait_committed()
        for member in pair:
            assert member.stop() == 0
    assert [event for member in scene.members for event in member.events("previous_owner_crashed")] == []
