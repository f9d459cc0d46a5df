"""Where partitions begin: one question for all of them, and a doubt holds up nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from holdfast.core.completion import CompletionMap, encode
from holdfast.core.ports import BEGINNING, Committed, Position
from holdfast.core.records import TopicPartition
from holdfast.deadletter.publisher import Publisher
from holdfast.runtime.identities import FRESH_S, TopicsTold
from holdfast.runtime.loop import Loop
from holdfast.runtime.plan import Plan
from tests.runtime.test_identities import Asked, Box

PLACES = [TopicPartition("t", number) for number in range(40)]


class Positions:
    """A client that remembers what it was asked and told."""

    def __init__(self, committed: dict[TopicPartition, Committed]) -> None:
        self.stored = committed
        self.asked: list[int] = []
        self.started: list[Position] = []
        self.moved: list[Position] = []
        self.paused: set[TopicPartition] = set()
        self.commits: list[Position] = []

    def committed(self, places: Sequence[TopicPartition], timeout_s: float) -> list[Committed]:
        return [self.stored.get(place, Committed(place, None)) for place in places]

    def commit(self, positions: Sequence[Position]) -> None:
        self.commits += positions

    def ends(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        self.asked.append(len(places))
        return {place: 100 + place.partition for place in places}

    def seen_ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {}

    def start(self, positions: Sequence[Position]) -> None:
        self.started += positions

    def reset(self, position: Position) -> None:
        self.moved.append(position)

    def pause(self, places: Sequence[TopicPartition]) -> None:
        self.paused.update(places)

    def resume(self, places: Sequence[TopicPartition]) -> None:
        self.paused.difference_update(places)


class Stood:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


def loop_of(source: Positions, asked: Asked, clock: Stood, **options: Any) -> Loop:
    plan = Plan(name="c", group="g", topics=("t",), topic_ids={"t": "A"}, **options)
    nobody: Any = None
    client: Any = source
    return Loop(
        plan,
        source=client,
        executor=nobody,
        mailbox=Box(),
        publisher=Publisher(nobody, topics={}, partitions={}, group="g", handler="h", app_version=""),
        clock=clock,
        random=Random(0),
        topic_ids=asked,
    )


def test_the_ends_of_all_new_partitions_are_one_question() -> None:
    source = Positions({PLACES[7]: Committed(PLACES[7], 3)})
    loop = loop_of(source, Asked(), Stood(), reset="latest")
    loop.on_assigned(PLACES)
    assert source.asked == [39]
    assert {one.place: one.offset for one in source.started} == {
        place: 3 if place == PLACES[7] else 100 + place.partition for place in PLACES
    }


def test_a_commit_under_an_unknown_id_waits_for_the_answer_and_the_others_begin() -> None:
    asked, clock = Asked(), Stood()
    doubtful = encode(CompletionMap(5), topic_id="B")
    source = Positions({PLACES[0]: Committed(PLACES[0], 5, doubtful), PLACES[1]: Committed(PLACES[1], 6)})
    loop = loop_of(source, asked, clock)
    clock.now = FRESH_S + 1
    loop.on_assigned(PLACES[:2])
    assert source.paused == {PLACES[0]}
    assert [place.place for place in loop.ownership] == [PLACES[1]]
    loop.assignment.step(clock.now, loop.handover)
    assert len(asked.questions) == 1
    clock.now += 0.1
    loop.assignment.told(TopicsTold({"t": "B"}), clock.now)  # it is our own id that was the old one
    loop.assignment.step(clock.now, loop.handover)
    assert source.moved == [Position(PLACES[1], BEGINNING), Position(PLACES[0], 5)]
    assert source.paused == set()


def test_a_commit_of_the_old_topic_is_not_gone_on_from() -> None:
    source = Positions({PLACES[0]: Committed(PLACES[0], 5, encode(CompletionMap(5), topic_id="old"))})
    loop = loop_of(source, Asked(), Stood())
    loop.on_assigned(PLACES[:1])
    assert source.started == [Position(PLACES[0], BEGINNING)]


def test_a_position_in_the_old_topic_is_never_committed_under_the_id_of_the_new_one() -> None:
    source, clock = Positions({PLACES[0]: Committed(PLACES[0], 5)}), Stood()
    loop = loop_of(source, Asked(), clock)
    loop.on_assigned(PLACES[:1])
    [partition] = loop.ownership
    loop.assignment.told(TopicsTold({"t": "B"}), clock.now)  # it begins again in a moment; a commit may be sent before
    loop.committer.touch(partition)
    loop.committer.push(clock.now, [partition])
    assert source.commits == [Position(PLACES[0], 5, encode(CompletionMap(5), topic_id="A"))]
    loop.assignment.step(clock.now, loop.handover)
    [anew] = loop.ownership
    assert anew.topic_id == "B"


def test_while_it_drains_a_partition_that_begins_again_stays_paused() -> None:
    source, clock = Positions({PLACES[0]: Committed(PLACES[0], 5)}), Stood()
    loop = loop_of(source, Asked(), clock)
    loop.on_assigned(PLACES[:1])
    loop.intake.close()
    loop.assignment.told(TopicsTold({"t": "B"}), clock.now)
    loop.assignment.step(clock.now, loop.handover)
    assert source.moved == [Position(PLACES[0], BEGINNING)]
    assert source.paused == {PLACES[0]}
