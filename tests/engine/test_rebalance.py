"""Where partitions begin: one question for all of them, and a doubt holds up nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from keepfast.core.commit_metadata import CompletionMap, encode, origin_of
from keepfast.core.errors import Fault, SourceError
from keepfast.core.events import PartitionReset
from keepfast.core.ports import BEGINNING, CommittedOffset, Position
from keepfast.core.records import TopicPartition
from keepfast.deadletters.publisher import Publisher
from keepfast.engine.loop import Loop
from keepfast.engine.parts import Ports, Workers
from keepfast.engine.plan import Plan
from keepfast.engine.topic_ids import CONFIRM_S, TopicIdsAnswer
from tests.engine.test_topic_ids import Asked
from tests.support.fakes import ListMailbox

PLACES = [TopicPartition("t", number) for number in range(40)]


class Positions:
    """A client that remembers what it was asked and told."""

    def __init__(self, committed: dict[TopicPartition, CommittedOffset]) -> None:
        self.stored = committed
        self.asked: list[int] = []
        self.started: list[Position] = []
        self.moved: list[Position] = []
        self.paused: set[TopicPartition] = set()
        self.commits: list[Position] = []

    def committed(self, places: Sequence[TopicPartition], timeout_s: float) -> list[CommittedOffset]:
        return [self.stored.get(place, CommittedOffset(place, None)) for place in places]

    def commit(self, positions: Sequence[Position]) -> None:
        self.commits += positions

    def ends(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        self.asked.append(len(places))
        return {place: 100 + place.partition for place in places}

    def beginnings(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        return {place: place.partition for place in places}

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
    unused: Any = None
    client: Any = source
    ports = Ports(source=client, sink=unused, clock=clock, random=Random(0), topic_ids=asked)
    publisher = Publisher(unused, topics={}, partitions={}, group="g", handler="h", app_version="")
    return Loop(plan, Workers(unused, ListMailbox()), ports, publisher)


def reported(loop: Loop, clock: Stood, topic_id: str) -> None:
    """The topic's id, answered twice, so that it counts."""
    for _ in range(2):
        loop.assignment.ids_answered(TopicIdsAnswer({"t": topic_id}, clock.now), clock.now)
        clock.now += CONFIRM_S


def commit_of(number: int, offset: int, **printed: Any) -> dict[TopicPartition, CommittedOffset]:
    place = PLACES[number]
    return {place: CommittedOffset(place, offset, encode(CompletionMap(offset), **{"topic_id": "A"} | printed))}


def test_the_ends_of_all_new_partitions_are_one_question() -> None:
    source = Positions({PLACES[7]: CommittedOffset(PLACES[7], 3)})
    loop = loop_of(source, Asked(), Stood(), reset="latest", partition_counts={"t": 40})
    loop.on_assigned(PLACES)
    assert source.asked == [39]
    assert {one.place: one.offset for one in source.started} == {
        place: 3 if place == PLACES[7] else 100 + place.partition for place in PLACES
    }


def test_a_first_start_at_the_end_records_how_many_partitions_there_are() -> None:
    source, clock = Positions({}), Stood()
    loop = loop_of(source, Asked(), clock, reset="latest", partition_counts={"t": 4})
    loop.on_assigned(PLACES[:1])
    loop.committer.push(clock.now, list(loop.ownership))
    assert source.commits == [Position(PLACES[0], 100, encode(CompletionMap(100), topic_id="A", partitions=4))]


def test_a_partition_that_was_added_later_is_read_from_its_beginning_and_that_is_committed_at_once() -> None:
    source, clock = Positions(commit_of(0, 9, partitions=2)), Stood()
    loop = loop_of(source, Asked(), clock, reset="latest", partition_counts={"t": 4})
    loop.on_assigned(PLACES[1:4])
    starts = {one.place.partition: one.offset for one in source.started}
    assert starts == {1: 101, 2: 2, 3: 3}, "the second one was there when the group started"
    loop.committer.push(clock.now, list(loop.ownership))
    assert {origin_of(one.metadata, offset=one.offset).partitions for one in source.commits} == {2}


def test_an_assignment_without_a_partition_asks_for_the_topics() -> None:
    """They may have been deleted."""
    asked, clock = Asked(), Stood()
    loop = loop_of(Positions({}), asked, clock)
    loop.identities.step(clock.now)
    assert asked.questions == []
    loop.on_assigned([])
    loop.identities.step(clock.now)
    assert len(asked.questions) == 1


def test_a_sibling_that_says_nothing_of_partitions_tells_nothing() -> None:
    for commit in (CommittedOffset(PLACES[0], 9), CommittedOffset(PLACES[0], 9, "written by another tool")):
        source = Positions({PLACES[0]: commit})
        loop = loop_of(source, Asked(), Stood(), reset="latest", partition_counts={"t": 2})
        loop.on_assigned(PLACES[1:2])
        assert source.started == [Position(PLACES[1], 101)]


def test_a_sibling_with_a_commit_of_the_topic_before_tells_that_the_group_is_not_new() -> None:
    asked, clock = Asked(), Stood()
    source = Positions(commit_of(0, 9, topic_id="old", partitions=4))
    loop = loop_of(source, asked, clock, reset="latest", partition_counts={"t": 4})
    loop.on_assigned(PLACES[1:2])
    assert source.paused == {PLACES[1]}, "it waits for an answer that was asked for after this"
    clock.now += 0.1
    loop.assignment.ids_answered(TopicIdsAnswer({"t": "A"}, clock.now), clock.now)
    loop.assignment.step(clock.now, loop.handover)
    assert source.moved == [Position(PLACES[1], 1)]
    assert source.paused == set()


def test_a_topic_that_was_recreated_while_this_process_ran_is_not_new_although_its_commits_are_gone() -> None:
    source, clock = Positions({}), Stood()
    loop = loop_of(source, Asked(), clock, reset="latest", partition_counts={"t": 4})
    reported(loop, clock, "B")
    loop.on_assigned(PLACES[1:2])
    assert source.started == [Position(PLACES[1], 1)]


def test_an_offset_outside_the_log_goes_on_at_the_beginning_whatever_the_policy() -> None:
    for reset, offset in (("earliest", BEGINNING), ("latest", 1)):
        source, clock = Positions(commit_of(1, 9, partitions=2)), Stood()
        loop = loop_of(source, Asked(), clock, reset=reset)
        loop.on_assigned(PLACES[1:2])
        loop.on_error(SourceError("outside", fault=Fault.OUT_OF_RANGE, code="X"), PLACES[1])
        loop.assignment.step(clock.now, loop.handover)
        assert source.moved == [Position(PLACES[1], offset)]


def test_a_commit_under_an_unknown_id_waits_for_the_answer_and_the_others_begin() -> None:
    asked, clock = Asked(), Stood()
    doubtful = encode(CompletionMap(5), topic_id="B")
    source = Positions({PLACES[0]: CommittedOffset(PLACES[0], 5, doubtful), PLACES[1]: CommittedOffset(PLACES[1], 6)})
    loop = loop_of(source, asked, clock)
    clock.now = 11.0
    loop.on_assigned(PLACES[:2])
    assert source.paused == {PLACES[0]}
    assert [place.place for place in loop.ownership] == [PLACES[1]]
    loop.assignment.step(clock.now, loop.handover)
    assert len(asked.questions) == 1
    reported(loop, clock, "B")  # it is our own id that was the old one
    loop.assignment.step(clock.now, loop.handover)
    assert source.moved == [Position(PLACES[1], BEGINNING), Position(PLACES[0], 5)]
    assert source.paused == set()


def test_a_question_that_failed_decides_nothing() -> None:
    asked, clock = Asked(), Stood()
    source = Positions({PLACES[0]: CommittedOffset(PLACES[0], 5, encode(CompletionMap(5), topic_id="B"))})
    loop = loop_of(source, asked, clock)
    loop.on_assigned(PLACES[:1])
    for _ in range(5):
        clock.now += 3.0
        loop.assignment.ids_answered(TopicIdsAnswer({}, clock.now), clock.now)
        loop.assignment.step(clock.now, loop.handover)
    assert source.paused == {PLACES[0]}
    assert source.moved == []


def test_a_commit_of_the_old_topic_is_not_gone_on_from() -> None:
    clock = Stood()
    source = Positions({PLACES[0]: CommittedOffset(PLACES[0], 5, encode(CompletionMap(5), topic_id="old"))})
    loop = loop_of(source, Asked(), clock)
    loop.on_assigned(PLACES[:1])
    loop.assignment.ids_answered(TopicIdsAnswer({"t": "A"}, clock.now), clock.now)
    loop.assignment.step(clock.now, loop.handover)
    assert source.moved == [Position(PLACES[0], BEGINNING)]


def test_a_position_in_the_old_topic_is_never_committed_under_the_id_of_the_new_one() -> None:
    source, clock = Positions({PLACES[0]: CommittedOffset(PLACES[0], 5)}), Stood()
    loop = loop_of(source, Asked(), clock)
    loop.on_assigned(PLACES[:1])
    [partition] = loop.ownership
    reported(loop, clock, "B")  # it begins again in a moment; a commit may be sent before
    loop.committer.mark_dirty(partition)
    loop.committer.push(clock.now, [partition])
    assert source.commits == [Position(PLACES[0], 5, encode(CompletionMap(5), topic_id="A", partitions=0))]
    loop.assignment.step(clock.now, loop.handover)
    [renewed] = loop.ownership
    assert renewed.topic_id == "B"


def test_while_it_drains_a_partition_that_begins_again_stays_paused() -> None:
    source, clock = Positions({PLACES[0]: CommittedOffset(PLACES[0], 5)}), Stood()
    loop = loop_of(source, Asked(), clock)
    loop.on_assigned(PLACES[:1])
    loop.intake.close()
    reported(loop, clock, "B")
    loop.assignment.step(clock.now, loop.handover)
    assert source.moved == [Position(PLACES[0], BEGINNING)]
    assert source.paused == {PLACES[0]}


def test_while_it_drains_a_partition_that_gets_its_position_late_stays_paused() -> None:
    source, clock = (
        Positions({PLACES[0]: CommittedOffset(PLACES[0], 5, encode(CompletionMap(5), topic_id="B"))}),
        Stood(),
    )
    loop = loop_of(source, Asked(), clock)
    loop.on_assigned(PLACES[:1])
    assert loop.assignment.unpositioned
    loop.intake.close()
    reported(loop, clock, "B")
    loop.assignment.step(clock.now, loop.handover)
    assert source.moved == [Position(PLACES[0], 5)]
    assert source.paused == {PLACES[0]}


def resets_of(loop: Loop) -> list[PartitionReset]:
    """The resets that it reports from now on."""
    resets: list[PartitionReset] = []
    emit = loop.events.emit
    loop.events.emit = lambda event: (resets.append(event) if type(event) is PartitionReset else None, emit(event))  # type: ignore[method-assign, func-returns-value, assignment]
    return resets


def late(places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
    raise SourceError("no answer", fault=Fault.RETRY, code="_TIMED_OUT")


def test_a_reset_is_reported_once_and_not_before_the_partition_begins() -> None:
    clock = Stood()
    source = Positions({PLACES[0]: CommittedOffset(PLACES[0], 5, encode(CompletionMap(5), topic_id="old"))})
    loop = loop_of(source, Asked(), clock, reset="latest")
    resets, beginnings = resets_of(loop), source.beginnings
    source.beginnings = late  # type: ignore[method-assign]

    def look() -> None:
        for _ in range(2):
            clock.now += 5.0
            loop.assignment.step(clock.now, loop.handover)
            loop.assignment.ids_answered(TopicIdsAnswer({"t": "A"}, clock.now), clock.now)

    loop.on_assigned(PLACES[:1])
    look()
    assert resets == []
    source.beginnings = beginnings  # type: ignore[method-assign]
    look()
    assert [(one.partition, one.offset, one.reason) for one in resets] == [(0, 5, "topic_recreated")]


def test_a_reset_of_a_partition_that_was_read_is_reported_once_although_the_broker_does_not_answer() -> None:
    source, clock = Positions(commit_of(0, 5)), Stood()
    loop = loop_of(source, Asked(), clock, reset="latest")
    resets, beginnings = resets_of(loop), source.beginnings
    loop.on_assigned(PLACES[:1])
    source.beginnings = late  # type: ignore[method-assign]
    reported(loop, clock, "B")
    loop.assignment.step(clock.now, loop.handover)
    assert source.paused == {PLACES[0]}, "nothing of it is taken in without a position"
    source.beginnings = beginnings  # type: ignore[method-assign]
    reported(loop, clock, "B")  # it is asked once more, because the commit has the former id
    loop.assignment.step(clock.now, loop.handover)
    assert source.moved == [Position(PLACES[0], 0)]
    assert source.paused == set()
    assert [(one.partition, one.reason) for one in resets] == [(0, "topic_recreated")]
