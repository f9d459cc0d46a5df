"""P1, P4: every second record is dead-lettered when the only broker is killed; it comes back after 20 s. Nothing is
lost, and each letter is there once, but for those whose acknowledgement the outage may have swallowed.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from keepfast.testing import KafkaBroker
from tests.scenarios.dead_letter_topic import copies, letters
from tests.scenarios.member import Member
from tests.scenarios.scene import Scene, Work
from tests.support.waiting import wait_until

RECORDS = 400
AWAY_S = 20.0
SETTINGS = {
    "consumer.order": "key",
    "consumer.session_timeout_ms": 45_000,
    "dead_letter.topic": "{topic}.dlq",
}


def begin(scene: Scene, settings: dict[str, object]) -> Member:
    scene.send(
        Work(key=b"%d" % (number % 30), failures=number % 2, error="reject", sleep_s=0.01) for number in range(RECORDS)
    )
    return scene.member({**SETTINGS, **settings})


def test_nothing_is_lost_with_and_without_a_spool(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with KafkaBroker() as broker, ExitStack() as stack:
        scenes = []
        for name in ("plain", "spooled"):
            (tmp_path / name).mkdir()
            topic = broker.create_topic(name, partitions=3)
            scenes.append(stack.enter_context(Scene(broker, tmp_path / name, topic=topic)))
        members = [begin(scenes[0], {}), begin(scenes[1], {"spool.url": f"file://{spool}"})]
        for scene in scenes:
            wait_until(lambda scene=scene: len(scene.journal.ended()) >= 30, "the members are at work")  # type: ignore[misc]
        broker.kill()
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began >= AWAY_S, "the outage lasts", timeout_s=AWAY_S + 5)
        assert all(member.running for member in members)
        broker.restart()
        for scene, member in zip(scenes, members, strict=True):
            scene.wait_committed()
            assert member.stop() == 0
            found = letters(broker, f"{scene.topic}.dlq", partitions=3)
            bad = {(one.id.partition, one.id.offset) for one in scene.sent if one.work.failures}
            assert {(letter.partition, letter.offset) for letter in found} == bad
            assert copies(found) <= 32, "at most the letters that were on their way when the broker died"
        assert not list(spool.glob("*/part-*/*.letters")), "whatever was spooled was sent on"
