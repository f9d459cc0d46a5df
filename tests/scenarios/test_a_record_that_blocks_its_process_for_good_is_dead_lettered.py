"""P7 under orderly restarts: liveness fails, SIGTERM, the drain passes its deadline, exit 5, again and again.

The record that blocks the event loop ends in the dead-letter topic; one that is only slow never does.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from keepfast.testing.topics import TopicAdmin
from tests.scenarios.conftest import MakeScene
from tests.scenarios.dead_letter_topic import letters
from tests.scenarios.member import Member
from tests.scenarios.scene import Scene, Sent, Work
from tests.support.waiting import DEADLINE_S, wait_until

BEFORE_ANYBODY_COUNTS, MOST = 2, 1
STUCK_S = 1.0


def start(scene: Scene, folder: Path, *, threads: bool = False) -> Member:
    own: dict[str, object] = {
        "consumer.group_instance_id": f"static-{scene.topic}",
        "consumer.max_deliveries": MOST,
        "consumer.stuck_after_s": STUCK_S,
        "dead_letter.topic": "{topic}.dlq",
        "shutdown.timeout_s": 2.0,
        "state.dir": folder,
    }
    return scene.member(own, variables={} if threads else {"SCENARIO_ASYNC": "1"})


def dead_lettered(broker: TopicAdmin, scene: Scene) -> list[tuple[str, int | None, int | None]]:
    """Code, partition and offset of each letter."""
    name = f"{scene.topic}.dlq"
    partitions = len(broker.admin.list_topics(name, timeout=DEADLINE_S).topics[name].partitions)
    return [(letter.error_code, letter.partition, letter.offset) for letter in letters(broker, name, partitions)]


def in_hand_again(scene: Scene, member: Member, *wanted: Sent) -> bool:
    return {one.id for one in wanted} <= scene.journal.started(pid=member.pid)


def test_a_record_that_blocks_the_event_loop_is_dead_lettered_and_those_beside_it_are_not(
    kafka: TopicAdmin, make_scene: MakeScene, tmp_path: Path
) -> None:
    scene = make_scene(partitions=2)
    [beside] = scene.send([Work(partition=1, sleep_s=0.5)])
    [blocker] = scene.send([Work(partition=0, gate=scene.gate(), manners="blocking", sleep_s=0.1)])
    for life in range(BEFORE_ANYBODY_COUNTS + MOST):
        member = start(scene, tmp_path)
        wait_until(lambda m=member: in_hand_again(scene, m, blocker), "it blocks the loop")  # type: ignore[misc]
        member.wait_event("event_loop_blocked")
        assert member.stop() == 5
        assert member.events("handlers_never_ended")[0]["offsets"] == [blocker.id.offset], life
        assert len(member.events("handlers_never_ended")) == 1, "it is on the stack, so nothing else is to blame"
    last = start(scene, tmp_path)
    scene.wait_committed()
    assert last.stop() == 0
    assert dead_lettered(kafka, scene) == [("CRASHED", 0, blocker.id.offset)]
    assert beside.id in scene.journal.ended()


def test_a_slow_record_is_never_counted_however_often_a_deploy_interrupts_it(
    kafka: TopicAdmin, make_scene: MakeScene, tmp_path: Path
) -> None:
    scenes = {threads: make_scene() for threads in (True, False)}
    gates = {threads: scene.gate() for threads, scene in scenes.items()}
    slow = {threads: scene.send([Work(gate=gates[threads])])[0] for threads, scene in scenes.items()}
    for _ in range(BEFORE_ANYBODY_COUNTS + MOST + 1):
        members = {threads: start(scene, tmp_path, threads=threads) for threads, scene in scenes.items()}
        for threads, member in members.items():
            wait_until(partial(in_hand_again, scenes[threads], member, slow[threads]), "it is in flight")
            member.wait_event("handler_stuck")
        for member in members.values():
            member.terminate()
        for member in members.values():
            assert member.wait(DEADLINE_S) == 5
    for threads, scene in scenes.items():
        scene.open_gate(gates[threads])
        last = start(scene, tmp_path, threads=threads)
        scene.wait_committed()
        assert last.stop() == 0
        assert dead_lettered(kafka, scene) == []
        seen = [event for member in scene.members for event in member.events()]
        assert [
            one
            for one in seen
            if one["event"] in ("previous_owner_crashed", "handlers_never_ended", "probation_started")
        ] == []
