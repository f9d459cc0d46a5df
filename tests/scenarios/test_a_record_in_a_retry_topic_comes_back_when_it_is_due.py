"""A record that failed in place waits in a retry topic: its partition continues, a restart does not matter, and it
comes back when it is due and not before. Nobody is evicted for waiting (P1, P4).
"""

from __future__ import annotations

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.journal import Entry
from tests.scenarios.scene import Scene, Sent, Work
from tests.support.waiting import wait_until

DELAY_S = 4.0
SETTINGS = {
    "retry.max_retries": 1,
    "retry.initial_delay_ms": 20,
    "retry_topics.delays": "4s",
    "retry_topics.allow_reorder": True,
}


def retry_topic(scene: Scene) -> str:
    return f"{scene.topic}.{scene.group}.retry.4s"


def of(scene: Scene, what: str, sent: Sent) -> list[Entry]:
    return [entry for entry in scene.journal.of(what) if entry.id == sent.id]


@pytest.mark.parametrize("way", ["killed", "stopped"])
def test_it_waits_out_a_restart(make_scene: MakeScene, way: str) -> None:
    scene = make_scene()
    [bad, *others] = scene.send([Work(failures=2), Work(), Work()])
    first = scene.member(SETTINGS)
    printed = first.wait_event("moved_to_retry_topic", offset=bad.id.offset)
    assert printed["to"] == retry_topic(scene)
    scene.wait_all_ended(others)
    scene.wait_committed()
    assert first.kill() if way == "killed" else first.stop() == 0

    second = scene.member(SETTINGS)
    second.wait_assigned(2)
    scene.wait_all_ended([bad])
    assert [entry.attempt for entry in of(scene, "fail", bad)] == [1, 2]
    [end] = of(scene, "end", bad)
    assert end.attempt == 3, "the count continues, and the handler sees the record where it came from"
    assert all(of(scene, "end", other)[0].at < end.at for other in others), "the partition did not wait for it"
    waited_s = end.at - of(scene, "fail", bad)[-1].at
    assert waited_s >= DELAY_S, "not before it is due"
    wait_until(lambda: scene.committed(retry_topic(scene)) == {0: 1}, "the retry topic is committed, too")
    assert second.stop() == 0


@pytest.mark.timing
def test_the_main_partition_continues_and_no_member_is_evicted_meanwhile(make_scene: MakeScene) -> None:
    scene = make_scene()
    settings = SETTINGS | {"consumer.max_poll_interval_ms": 6_000, "retry_topics.delays": "8s"}
    member = scene.member(settings).wait_assigned(2)
    [bad] = scene.send([Work(failures=2)])
    member.wait_event("moved_to_retry_topic")
    during = scene.send(Work(sleep_s=0.01) for _ in range(300))
    scene.wait_all_ended(during)
    scene.wait_all_ended([bad])
    [end] = of(scene, "end", bad)
    assert 8.0 <= end.at - of(scene, "fail", bad)[-1].at < 12.0
    ended = [entry.at for entry in scene.journal.of("end") if entry.id != bad.id]
    assert sum(at < end.at for at in ended) == len(during), "the others did not wait for it"
    assert member.events("partitions_revoked") == member.events("partitions_lost") == []
    assert len(member.events("partitions_assigned")) == 1
    assert member.stop() == 0
