"""P3, P4, P6: two consumers of one app: a stuck handler of one does not concern the other; a signal drains both."""

from __future__ import annotations

from tests.scenarios.conftest import MakeScene
from tests.scenarios.scene import Work
from tests.support.waiting import DEADLINE_S, wait_until


def test_two_consumers_of_one_app_run_side_by_side(make_scene: MakeScene) -> None:
    left, right = make_scene(partitions=1), make_scene(partitions=2)
    gate = left.gate()
    [stuck, _] = left.send([Work(gate=gate), Work()])
    sent = right.send(Work(partition=number % 2, sleep_s=0.002) for number in range(100))
    member = left.member(
        {
            "consumer.topics": None,
            "consumer.group": None,
            "consumers.left.topics": left.topic,
            "consumers.left.group": left.group,
            "consumers.right.topics": right.topic,
            "consumers.right.group": right.group,
            "consumers.right.commit_mode": "each",
        },
        app="pair.py",
    )
    journal = left.journal
    wait_until(lambda: {one.id for one in sent} <= journal.ended(), "the right one is through")
    right.wait_committed()
    assert journal.started() - journal.ended() == {stuck.id}, "while the left one is still at its first record"

    more = right.send([Work(partition=0)])
    member.terminate()
    member.wait_event("drain_started", consumer="left", in_flight=1)
    member.wait_event("drain_started", consumer="right")
    left.open_gate(gate)
    assert member.wait(DEADLINE_S) == 0
    assert stuck.id in journal.ended()
    assert left.committed() == {0: 1}
    ended = journal.ended() - {stuck.id}
    assert ended <= {one.id for one in [*sent, *more]}
    assert sum(right.committed().values()) == len(ended), "what was finished is committed, and no more"
    assert {(entry.consumer, entry.id.topic) for entry in journal.entries()} == {
        ("left", left.topic),
        ("right", right.topic),
    }
