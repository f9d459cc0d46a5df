"""P1: a process is killed while it writes letters to its spool, and its last segment is torn as by a power cut. After
the restart every record has its letter: those that were acknowledged from the spool, the others once more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.dead_letter_topic import NOTHING, PLENTY, copies, letters, limit
from tests.scenarios.scene import Work
from tests.support.waiting import wait_until

RECORDS = 300
AT_WORK = 32
"""Lanes that may be at work in one process."""


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/part-*/*.letters"))


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_nothing_is_lost(make_scene: MakeScene, processes: int) -> None:
    scene = make_scene(partitions=2)
    dead_letter_topic = scene.broker.create_topic(f"{scene.topic}.dlq", partitions=2)
    limit(scene.broker, dead_letter_topic, NOTHING)
    spool = scene.folder / "spool"
    settings = {"dead_letter.topic": "{topic}.dlq", "spool.url": f"file://{spool}", "consumer.order": "key"}
    members = [scene.member(settings) for _ in range(processes)]
    for member in members:
        member.wait_assigned(2 // processes)
    scene.send(
        Work(key=b"%d" % (number % 20), partition=number % 2, failures=1, error="reject") for number in range(RECORDS)
    )
    wait_until(
        lambda: sum(scene.committed().values()) > RECORDS // 4 and len(segments(spool)) >= processes, "they are at work"
    )
    for member in members:
        member.kill()
    committed = scene.committed()
    assert sum(committed.values()) < RECORDS, "killed in the middle"
    _tear(segments(spool)[-1])

    limit(scene.broker, dead_letter_topic, PLENTY)
    again = scene.member(settings)
    scene.wait_committed()
    wait_until(lambda: segments(spool) == [], "the spool is empty, also what the other process left")
    assert again.stop() == 0
    found = letters(scene.broker, dead_letter_topic, partitions=2)
    assert {(letter.partition, letter.offset) for letter in found} == {
        (one.id.partition, one.id.offset) for one in scene.sent
    }
    # What the other process had spooled and not committed is known only when its part of the spool is taken over.
    assert copies(found) <= (processes - 1) * AT_WORK


def _tear(segment: Path) -> None:
    """As if the last write had only half arrived: behind everything that was acknowledged."""
    with segment.open("ab") as file:
        file.write(segment.read_bytes()[17:60])
