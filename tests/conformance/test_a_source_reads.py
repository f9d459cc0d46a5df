"""Conformance of sources: what is read, in which order, and what pausing and resetting do to it."""

from __future__ import annotations

from functools import partial

import pytest

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import BEGINNING, Position
from keepfast.core.records import TopicPartition
from tests.conformance.backend import Backend
from tests.conformance.member import Member
from tests.support.members import drive, drive_for


@pytest.fixture
def place(backend: Backend) -> TopicPartition:
    return TopicPartition(backend.topic(), 0)


def drive_until_records(member: Member, count: int) -> None:
    drive([member], lambda: len(member.records) >= count)


def member_of(backend: Backend, place: TopicPartition) -> Member:
    return Member(backend, backend.group(), place.topic)


def test_records_of_a_partition_come_once_and_in_order(backend: Backend, place: TopicPartition) -> None:
    backend.fill(place, 200)
    member = member_of(backend, place)
    drive([member], lambda: len(member.records) >= 200)
    assert member.offsets(place) == list(range(200))
    assert [m.value() for m in member.records] == [b"%d" % n for n in range(200)]
    assert member.heard("assigned") == [(place,)]


def test_nothing_comes_before_the_assignment_and_all_partitions_come_after_it(backend: Backend) -> None:
    topic = backend.topic(partitions=3)
    places = [TopicPartition(topic, n) for n in range(3)]
    for each in places:
        backend.fill(each, 40)
    member = Member(backend, backend.group(), topic)
    drive([member], lambda: len(member.records) >= 120)
    assert [member.offsets(each) for each in places] == [list(range(40))] * 3
    assert [each for heard in member.heard("assigned") for each in heard] == places


def test_a_start_offset_is_where_reading_begins(backend: Backend, place: TopicPartition) -> None:
    backend.fill(place, 20)
    member = member_of(backend, place)
    member.start_offset = 13
    drive([member], lambda: len(member.records) >= 7)
    assert member.offsets(place) == list(range(13, 20))


def test_the_beginning_is_the_first_record_there_is(backend: Backend, place: TopicPartition) -> None:
    backend.fill(place, 20)
    backend.delete_records(place, 8)
    member = member_of(backend, place)
    member.start_offset = BEGINNING
    drive([member], lambda: len(member.records) >= 12)
    assert member.offsets(place) == list(range(8, 20))


def test_tombstones_empty_values_null_keys_and_headers_come_as_they_were_written(
    backend: Backend, place: TopicPartition
) -> None:
    backend.produce(place, None, key=b"gone")
    backend.produce(place, b"", key=None)
    backend.produce(place, b"v", key=b"", headers=[("a", b"1"), ("a", None), ("", b"\xff")])
    member = member_of(backend, place)
    drive([member], lambda: len(member.records) >= 3)
    assert [(m.key(), m.value(), len(m)) for m in member.records] == [
        (b"gone", None, 0),
        (None, b"", 0),
        (b"", b"v", 1),
    ]
    assert [m.headers() for m in member.records] == [None, None, [("a", b"1"), ("a", None), ("", b"\xff")]]
    assert all(m.timestamp()[0] == 1 and m.timestamp()[1] > 0 for m in member.records)


def test_markers_and_aborted_transactions_are_gaps(backend: Backend, place: TopicPartition) -> None:
    backend.produce_transaction(place, [b"a", b"b"])
    backend.produce_transaction(place, [b"never", b"seen"], commit=False)
    backend.produce_transaction(place, [b"c"])
    backend.produce(place, b"d")
    member = member_of(backend, place)
    drive([member], lambda: len(member.records) >= 4)
    assert [m.value() for m in member.records] == [b"a", b"b", b"c", b"d"]
    offsets = [m.offset() for m in member.records]  # a marker may be written a moment after its transaction has ended
    assert offsets == sorted(offsets)
    assert offsets[:2] == [0, 1]
    assert offsets[-1] >= 6, "two aborted records and at least two markers lie between"


def test_the_end_of_a_partition_is_reported_behind_its_last_record(backend: Backend, place: TopicPartition) -> None:
    backend.produce_transaction(place, [b"a", b"b"])
    backend.produce_transaction(place, [b"never", b"seen"], commit=False)
    member = member_of(backend, place)
    drive([member], lambda: member.ends.get(place, 0) >= 6)
    assert member.offsets(place) == [0, 1]
    assert member.source.edges(place, 10.0)[1] == member.ends[place] == 6, "two markers, and two aborted records"
    backend.produce(place, b"c")
    drive([member], lambda: member.ends[place] >= 7)
    assert member.offsets(place) == [0, 1, 6]


def test_an_end_is_not_reported_before_the_records_below_it_were_returned(
    backend: Backend, place: TopicPartition
) -> None:
    backend.fill(place, 1_500)
    member = member_of(backend, place)
    member.on_end = partial(_assert_returned, member)  # type: ignore[method-assign]
    drive([member], lambda: member.ends.get(place, 0) >= 1_500)
    member.source.reset(Position(place, 700))
    member.records, member.ends = [record for record in member.records if record.offset() < 700], {}
    drive([member], lambda: member.ends.get(place, 0) >= 1_500)
    member.source.pause([place])
    member.source.resume([place])
    backend.fill(place, 20)
    drive([member], lambda: member.ends.get(place, 0) >= 1_520)


def _assert_returned(member: Member, place: TopicPartition, offset: int, _: int | None = None) -> None:
    assert member.offsets(place) == list(range(offset))
    member.ends[place] = offset


def test_edges_tell_the_first_offset_and_the_next_one(backend: Backend, place: TopicPartition) -> None:
    backend.fill(place, 10)
    backend.delete_records(place, 4)
    member = member_of(backend, place)
    drive([member], lambda: member.owned)
    assert member.source.edges(place, 10.0) == (4, 10)


def test_the_ends_of_many_partitions_are_one_question(backend: Backend) -> None:
    topic = backend.topic(partitions=3)
    places = [TopicPartition(topic, number) for number in range(3)]
    for number, place in enumerate(places):
        backend.fill(place, number)
    member = member_of(backend, places[0])
    drive([member], lambda: len(member.owned) == len(places))
    assert member.source.ends(places, 10.0) == {place: number for number, place in enumerate(places)}
    assert member.source.ends([], 10.0) == {}


def test_the_beginnings_of_many_partitions_are_one_question(backend: Backend) -> None:
    topic = backend.topic(partitions=3)
    places = [TopicPartition(topic, number) for number in range(3)]
    for number, place in enumerate(places[1:], start=1):
        backend.fill(place, 5)
        backend.delete_records(place, number)
    member = member_of(backend, places[0])
    drive([member], lambda: len(member.owned) == len(places))
    assert member.source.beginnings(places, 10.0) == {place: number for number, place in enumerate(places)}
    assert member.source.beginnings([], 10.0) == {}


def test_a_time_is_the_offset_of_the_first_record_that_is_not_older(backend: Backend, place: TopicPartition) -> None:
    backend.produce(place, b"0")
    began = backend.now()
    backend.until(lambda: backend.now() - began > 0.05, 1.0)
    backend.produce(place, b"1")
    member = member_of(backend, place)
    drive([member], lambda: len(member.records) == 2)
    first_ms, second_ms = (record.timestamp()[1] for record in member.records)
    assert first_ms < second_ms
    assert [member.source.at_time(place, at_ms, 10.0) for at_ms in (first_ms, first_ms + 1, second_ms)] == [0, 1, 1]
    assert member.source.at_time(place, second_ms + 1, 10.0) is None


def test_the_end_of_a_missing_topic_is_an_error_whatever_else_was_asked_for(
    backend: Backend, place: TopicPartition
) -> None:
    member = member_of(backend, place)
    drive([member], lambda: member.owned)
    with pytest.raises(SourceError):
        member.source.ends([place, TopicPartition(backend.missing_topic(), 0)], 3.0)
    with pytest.raises(SourceError):
        member.source.beginnings([place, TopicPartition(backend.missing_topic(), 0)], 3.0)


def test_the_edges_of_a_missing_topic_are_an_error(backend: Backend, place: TopicPartition) -> None:
    member = member_of(backend, place)
    drive([member], lambda: member.owned)
    with pytest.raises(SourceError) as caught:
        member.source.edges(TopicPartition(backend.missing_topic(), 0), 10.0)
    assert caught.value.fault is Fault.MISSING


def test_a_pause_holds_and_a_resume_goes_on_without_loss(backend: Backend, place: TopicPartition) -> None:
    backend.fill(place, 100)
    member = member_of(backend, place)
    drive([member], lambda: member.records)
    member.source.pause([place])
    got = len(member.records)
    backend.fill(place, 50)
    drive_for([member], 1.0)
    assert len(member.records) == got
    member.source.resume([place])
    drive([member], lambda: len(member.records) >= 150)
    assert member.offsets(place) == list(range(150))


def test_pausing_twice_and_resuming_twice_neither_loses_nor_repeats(backend: Backend, place: TopicPartition) -> None:
    backend.fill(place, 300)
    member = member_of(backend, place)
    for wanted in range(20, 120, 20):
        drive_until_records(member, wanted)
        member.source.pause([place])
        member.source.pause([place])
        member.source.resume([place])
        member.source.resume([place])
    drive([member], lambda: len(member.records) >= 300)
    assert member.offsets(place) == list(range(300))


def test_a_pause_before_the_first_record_keeps_the_start(backend: Backend, place: TopicPartition) -> None:
    backend.fill(place, 20)
    member = member_of(backend, place)
    member.during_assign = member.source.pause
    member.start_offset = 5
    drive([member], lambda: member.owned)
    drive_for([member], 1.0)
    assert member.records == []
    member.source.resume([place])
    drive([member], lambda: len(member.records) >= 15)
    assert member.offsets(place) == list(range(5, 20))


def test_other_partitions_go_on_while_one_is_paused(backend: Backend) -> None:
    topic = backend.topic(partitions=2)
    still, going = TopicPartition(topic, 0), TopicPartition(topic, 1)
    member = Member(backend, backend.group(), topic)
    drive([member], lambda: len(member.owned) == 2)
    member.source.pause([still])
    backend.fill(still, 30)
    backend.fill(going, 30)
    drive([member], lambda: len(member.offsets(going)) == 30)
    assert member.offsets(still) == []


@pytest.mark.parametrize("target", [0, 37, 99])
def test_a_reset_goes_on_exactly_there_and_nothing_fetched_before_leaks(
    backend: Backend, place: TopicPartition, target: int
) -> None:
    backend.fill(place, 100)
    member = member_of(backend, place)
    drive([member], lambda: len(member.records) >= 10)
    member.records.clear()
    member.source.reset(Position(place, target))
    drive([member], lambda: len(member.records) >= 100 - target)
    assert member.offsets(place) == list(range(target, 100))


def test_a_reset_of_a_paused_partition_keeps_it_paused(backend: Backend, place: TopicPartition) -> None:
    backend.fill(place, 60)
    member = member_of(backend, place)
    drive([member], lambda: member.records)
    member.source.pause([place])
    member.source.reset(Position(place, 20))
    member.records.clear()
    drive_for([member], 1.0)
    assert member.records == []
    member.source.resume([place])
    drive([member], lambda: len(member.records) >= 40)
    assert member.offsets(place) == list(range(20, 60))


def test_a_partition_that_is_fetched_again_goes_on_at_its_position(backend: Backend, place: TopicPartition) -> None:
    backend.fill(place, 20)
    member = member_of(backend, place)
    drive_until_records(member, 20)
    member.source.refetch(Position(place, 20))
    backend.fill(place, 5)
    drive_until_records(member, 25)
    drive_for([member], 0.3)
    assert member.offsets(place) == list(range(25))


def test_a_new_client_begins_where_the_last_one_was_when_it_gave_its_partitions_up(
    backend: Backend, place: TopicPartition
) -> None:
    backend.fill(place, 20)
    member = member_of(backend, place)
    drive_until_records(member, 20)
    if not member.source.renew():
        assert type(member.source).__name__ in ("AdoptedSource", "KafkaPythonSource"), "it is the user's own"
        return
    member.start_offset = 20
    backend.fill(place, 5)
    drive_until_records(member, 25)
    assert (member.offsets(place), member.replaced) == (list(range(25)), 1)
    assert (member.heard("revoked"), member.heard("lost")) == ([(place,)], [])
    assert member.heard("assigned") == [(place,), (place,)]


@pytest.mark.parametrize(("deleted", "start"), [(30, 10), (0, 1000)])
def test_an_offset_out_of_range_is_reported_once_and_never_reset_silently(
    backend: Backend, place: TopicPartition, deleted: int, start: int
) -> None:
    backend.fill(place, 50)
    backend.delete_records(place, deleted)
    member = member_of(backend, place)
    member.start_offset = start
    drive([member], lambda: member.errors)
    drive_for([member], 1.0)
    assert [(error.fault, at) for error, at in member.errors] == [(Fault.OUT_OF_RANGE, place)]
    assert member.records == []
    member.source.reset(Position(place, 40))
    drive([member], lambda: len(member.records) >= 10)
    assert member.offsets(place) == list(range(40, 50))


@pytest.mark.timing
def test_a_poll_of_zero_and_a_sweep_do_not_wait(backend: Backend, place: TopicPartition) -> None:
    member = member_of(backend, place)
    drive([member], lambda: member.owned)
    before = backend.now()
    assert member.source.poll(0) is None
    assert member.source.sweep(10) == []
    assert backend.now() - before < 0.5


def test_a_sweep_takes_no_more_than_its_limit(backend: Backend, place: TopicPartition) -> None:
    backend.fill(place, 100)
    member = member_of(backend, place)
    drive([member], lambda: member.owned)
    got = [m.offset() for m in member.records]
    deadline = backend.now() + 30
    while len(got) < 100 and backend.now() < deadline:
        first = member.source.poll(0.05)
        batch = member.source.sweep(7)
        assert len(batch) <= 7
        got += [m.offset() for m in ([first] if first is not None else []) + batch]
    assert got == list(range(100))


def test_the_end_of_what_was_fetched_is_known_without_asking(backend: Backend, place: TopicPartition) -> None:
    backend.fill(place, 30)
    member = member_of(backend, place)
    drive_until_records(member, 30)
    other = TopicPartition(place.topic, 99)
    drive([member], lambda: member.source.seen_ends([place]) == {place: 30})
    assert member.source.seen_ends([place, other]) == {place: 30}, "of others it knows nothing"
