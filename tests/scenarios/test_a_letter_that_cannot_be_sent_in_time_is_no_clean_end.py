"""P6, P1: a drain that ends before a letter is acknowledged has not finished its record: exit code 5, no commit."""

from __future__ import annotations

import pytest

from keepfast.testing.pytest_plugin import TopicFactory
from tests.scenarios.conftest import MakeScene
from tests.scenarios.scene import Work

TIMEOUT_S = 2.0


@pytest.mark.timing
def test_a_letter_that_cannot_be_sent_in_time_is_no_clean_end(make_scene: MakeScene, topic: TopicFactory) -> None:
    scene = make_scene(partitions=2)
    letters = topic(config={"max.message.bytes": "10"}, suffix=".dlq")  # takes no letter, ever
    scene.send([Work(partition=0, failures=1, error="reject"), Work(partition=1)])
    member = scene.member({"shutdown.timeout_s": TIMEOUT_S, "dead_letter.topic": letters})
    member.wait_event("dead_letter_publish_failed", partition=0, offset=0)
    scene.wait_all_ended(scene.sent[1:])

    member.terminate()
    code, took_s = member.end()
    assert code == 5
    assert took_s < TIMEOUT_S + 0.5
    assert scene.committed() == {1: 1}
