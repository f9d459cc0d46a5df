"""P7: two kills from outside suspect whatever was in flight, which is a lot with batches. They are tried by halves, and
what other consumers of the process do goes on beside that; a record that kills is still found, and no other.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from keepfast.core.crash_guard import ONE_BY_ONE
from tests.scenarios.conftest import MakeScene
from tests.scenarios.dead_letter_topic import letters
from tests.scenarios.member import Member
from tests.scenarios.scene import Sent, Work
from tests.support.waiting import wait_until

BATCH, LANES = 500, 3
OVER_S = 30.0
KEPT, WINDOW_S = 0.8, 3.0
"""Of its rate, by the neighbour, over so long at least."""


class Story:
    """A consumer of batches and its neighbour in one process, which is killed and started again."""

    def __init__(self, make_scene: MakeScene, folder: Path, *, partitions: int) -> None:
        self.scene, self.other = make_scene(partitions=partitions), make_scene()
        self.hold = folder / "hold"
        self.state = folder / "state"

    def member(self, **more: object) -> Member:
        settings: dict[str, object] = {"consumer.topics": None, "consumer.group": None, "state.dir": self.state}
        for name, scene in (("batched", self.scene), ("neighbour", self.other)):
            settings |= {f"consumers.{name}.topics": scene.topic, f"consumers.{name}.group": scene.group}
            settings |= {f"consumers.{name}.group_instance_id": f"{name}-{scene.topic}"}
        settings["consumers.batched.dead_letter_topic"] = f"{self.scene.topic}.dlq"
        settings |= {name.replace("__", "."): value for name, value in more.items()}
        return self.scene.member(settings, app="searched.py", variables={"SCENARIO_HOLD": self.hold})

    def of(self, what: str, member: Member, name: str = "batched") -> list[float]:
        """When records of a consumer started or ended in this process."""
        return [entry.at for entry in self.scene.journal.of(what, pid=member.pid) if entry.consumer == name]

    def kill_twice(self, in_flight: int, **more: object) -> None:
        self.hold.touch()
        for _ in range(2):
            member = self.member(**more)
            wait_until(lambda m=member: len(self.of("start", m)) >= in_flight, "they are in flight")  # type: ignore[misc]
            member.kill()
        self.hold.unlink()

    def wait_ended(self, sent: list[Sent]) -> None:
        wanted = {one.id for one in sent}
        wait_until(lambda: wanted <= self.scene.journal.ended(), "all are through", timeout_s=120)


def test_a_killer_among_the_suspects_is_dead_lettered_and_no_other(make_scene: MakeScene, tmp_path: Path) -> None:
    story = Story(make_scene, tmp_path, partitions=1)
    count = 2 * ONE_BY_ONE + 10
    sent = story.scene.send(Work(error="exit", failures=1) if number == 50 else Work() for number in range(count))
    killer, more = sent[50], {"consumers__batched__max_deliveries": 1}
    story.kill_twice(count, **more)
    lives: list[Member] = []
    others = [one for one in sent if one is not killer]
    while not {one.id for one in others} <= story.scene.journal.ended():
        lives.append(story.member(**more))
        member = lives[-1]
        wait_until(lambda m=member: not m.running or {one.id for one in others} <= story.scene.journal.ended())  # type: ignore[misc]
    story.scene.wait_committed()
    assert lives[-1].stop() == 0
    assert [letter.offset for letter in letters(story.scene.broker, f"{story.scene.topic}.dlq")] == [killer.id.offset]
    starts = Counter(entry.id for entry in story.scene.journal.of("start"))
    assert starts[killer.id] == 2 + 1 + 1, "two kills, a half that killed, and one start alone"
    assert len(lives) == 2 + 1


@pytest.mark.timing
def test_1500_suspects_are_over_in_30_s_and_a_neighbour_keeps_its_rate(make_scene: MakeScene, tmp_path: Path) -> None:
    story = Story(make_scene, tmp_path, partitions=LANES)
    sent = story.scene.send(Work(partition=number % LANES) for number in range(BATCH * LANES))
    story.kill_twice(BATCH * LANES)
    story.other.send(Work() for _ in range(4_000))
    member = story.member()
    suspects = sum(member.wait_event("probation_started", partition=number)["suspects"] for number in range(LANES))
    assert suspects == BATCH * LANES
    story.wait_ended(sent)
    for number in range(LANES):
        member.wait_event("probation_ended", partition=number)
    begun, over = min(story.of("start", member)), max(story.of("end", member))
    assert over - begun < OVER_S
    window_s = max(WINDOW_S, over - begun)
    wait_until(lambda: max(story.of("end", member, "neighbour")) > begun + 2 * window_s, "the neighbour goes on")
    ends = story.of("end", member, "neighbour")
    beside = sum(begun <= at < begun + window_s for at in ends)
    alone = sum(begun + window_s <= at < begun + 2 * window_s for at in ends)
    assert beside >= KEPT * alone, f"{beside} beside the search of {over - begun:.2f} s, {alone} in the same time later"
