"""order="queue": six members work on two partitions. Two of them die by kill -9 mid-work, and a record fails for good:
each of the others is processed, that one is a dead letter that says why, and a member that comes later finds nothing
left.
"""

from __future__ import annotations

from tests.scenarios.conftest import MakeScene
from tests.scenarios.dead_letter_topic import letters
from tests.scenarios.scene import Work
from tests.support.waiting import wait_until

PARTITIONS, MEMBERS, CONCURRENCY = 2, 6, 2
SETTINGS: dict[str, object] = {
    "consumer.order": "queue",
    "consumer.lock_s": 6,
    "consumer.configure_group": True,
    "consumer.concurrency": CONCURRENCY,
    "dead_letter.topic": "{topic}.dlq",
}


def test_a_queue_with_more_members_than_partitions_loses_nothing(make_scene: MakeScene) -> None:
    scene = make_scene(partitions=PARTITIONS)
    members = [scene.member(SETTINGS) for _ in range(MEMBERS)]
    for member in members:
        member.wait_event("queue_is_experimental")
    [poison] = scene.send([Work(failures=99)])

    def all_work() -> bool:
        # Small batches: the broker gives a batch of the producer to one member.
        for _ in range(MEMBERS):
            scene.send([Work(sleep_s=0.05, partition=number % PARTITIONS) for number in range(CONCURRENCY)])
        return {entry.pid for entry in scene.journal.of("end")} == {member.pid for member in members}

    wait_until(all_work, "all members have worked, on two partitions")
    victims, others = members[:2], members[2:]

    def more_work() -> None:
        scene.send([Work(sleep_s=0.4, partition=number % PARTITIONS) for number in range(2 * MEMBERS)])

    more_work()
    in_hand = [scene.freeze_with_records_in_flight(victim, more_work) for victim in victims]
    for victim in victims:
        victim.kill()
    scene.wait_all_ended([one for one in scene.sent if one != poison])

    by_others = {entry.id for entry in scene.journal.of("end") if entry.pid in {member.pid for member in others}}
    assert set().union(*in_hand) <= by_others, "what they had in flight was done by others"
    dead = letters(scene.broker, f"{scene.topic}.dlq", PARTITIONS)
    assert {(one.partition, one.offset) for one in dead} == {(poison.id.partition, poison.id.offset)}
    assert (dead[0].error_type, dead[0].error_message) == ("RuntimeError", "the record says so")
    for member in others:
        assert member.stop() == 0
    late = scene.member(SETTINGS)
    [last] = scene.send([Work()])
    scene.wait_all_ended([last])
    assert scene.journal.started(pid=late.pid) == {last.id}, "everything before it is acknowledged"
    assert late.stop() == 0
