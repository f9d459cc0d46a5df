"""Conformance of sources: how members of one group take, give and lose partitions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from keepfast.core.errors import Fault
from keepfast.core.ports import CommittedOffset, Position
from keepfast.core.records import TopicPartition
from tests.conformance.backend import Backend
from tests.conformance.member import Member
from tests.support.members import Call, GroupMember, drive, drive_for

Journal = list[tuple[GroupMember, Call]]


def places_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for n in range(count)]


def pair(backend: Backend, topic: str, journal: Journal) -> tuple[Member, Member]:
    """Two members; the first owned everything before the second came and has not been polled since."""
    group = backend.group()
    first = Member(backend, group, topic, journal=journal)
    drive([first], lambda: first.owned)
    return first, Member(backend, group, topic, journal=journal)


def test_a_second_member_gets_its_share_only_after_the_first_let_go(backend: Backend) -> None:
    topic, journal = backend.topic(partitions=4), Journal()
    first, second = pair(backend, topic, journal)
    drive([first, second], lambda: len(second.owned) == 2 and len(first.owned) == 2)
    assert sorted(first.owned | second.owned) == places_of(topic, 4)
    for place in second.owned:
        let_go = next(
            i for i, (who, (what, at)) in enumerate(journal) if who is first and what == "let go" and place in at
        )
        taken = next(
            i for i, (who, (what, at)) in enumerate(journal) if who is second and what == "assigned" and place in at
        )
        assert let_go < taken
    assert first.heard("lost") == []


@pytest.mark.needs("incremental assignment")
def test_partitions_that_stay_are_never_revoked(backend: Backend) -> None:
    topic = backend.topic(partitions=4)
    first, second = pair(backend, topic, [])
    drive([first, second], lambda: len(second.owned) == 2)
    assert {place for places in first.heard("revoked") for place in places} == second.owned
    for place in first.owned:
        backend.fill(place, 5)
    drive([first, second], lambda: all(first.offsets(place) for place in first.owned))


def test_a_commit_inside_on_revoked_is_confirmed_there_and_seen_by_the_next_owner(backend: Backend) -> None:
    topic = backend.topic(partitions=2)
    for place in places_of(topic, 2):
        backend.fill(place, 10)
    first, second = pair(backend, topic, [])
    drive([first], lambda: len(first.records) == 20)
    confirmed: list[int] = []

    def commit(places: Sequence[TopicPartition]) -> None:
        first.source.commit([Position(place, 7, "half way") for place in places])
        deadline = backend.now() + 10
        while not first.outcomes and backend.now() < deadline:
            first.source.serve(0.5)
        confirmed.append(len(first.outcomes))

    first.during_revoke = commit
    drive([first, second], lambda: second.records)
    assert confirmed == [1]
    (moved,) = second.owned
    assert second.started_at[moved] == 7
    assert second.source.committed([moved], 10.0) == [CommittedOffset(moved, 7, "half way")]
    drive([first, second], lambda: len(second.records) == 3)
    drive_for([first, second], 0.5)
    read = second.offsets(moved)
    assert (read[:3], set(read)) == ([7, 8, 9], {7, 8, 9})  # again after a second round, on a busy machine
    assert len(first.outcomes) <= len(confirmed)


def test_a_commit_sent_in_on_revoked_and_not_waited_for_is_answered_later_exactly_once(backend: Backend) -> None:
    topic = backend.topic(partitions=2)
    first, second = pair(backend, topic, [])
    first.during_revoke = lambda places: first.source.commit([Position(place, 4) for place in places])
    drive([first, second], lambda: second.owned and first.outcomes)
    drive_for([first, second], 0.5)
    assert len(first.outcomes) == 1
    (moved,) = second.owned
    assert second.started_at[moved] == 4


def test_nothing_of_a_revoked_partition_is_handed_out_afterwards(backend: Backend) -> None:
    topic = backend.topic(partitions=2)
    first, second = pair(backend, topic, [])
    counts: list[dict[TopicPartition, int]] = []
    first.during_revoke = lambda places: counts.append({place: len(first.offsets(place)) for place in places})
    for place in places_of(topic, 2):
        backend.fill(place, 200)
    drive([first, second], lambda: second.records)
    drive_for([first, second], 2.0)
    (moved,) = second.owned
    # What the call that served the callback had taken before it may not come back from it, either.
    last = [count[moved] for count in counts if moved in count][-1]  # on a busy machine it takes several rounds
    assert len(first.offsets(moved)) == last


def test_when_a_member_closes_the_other_takes_over_where_it_committed(backend: Backend) -> None:
    topic = backend.topic(partitions=2)
    for place in places_of(topic, 2):
        backend.fill(place, 10)
    first, second = pair(backend, topic, [])
    drive([first, second], lambda: second.owned and len(first.owned) == 1)
    (left,) = first.owned
    while first.commit(Position(left, 6), beside=[second]).failed:
        pass  # a member that comes and goes may cause another round, in which commits are refused
    first.source.close()
    assert first.heard("revoked")[-1] == (left,)
    assert first.owned == set()
    drive([second], lambda: len(second.owned) == 2)
    assert second.started_at[left] == 6


@pytest.mark.parametrize("wait_s", [0.0, 10.0])
def test_a_commit_inside_on_revoked_during_close_is_confirmed_once_and_seen_by_the_next_owner(
    backend: Backend, wait_s: float
) -> None:
    topic, group = backend.topic(), backend.group()
    (place,) = places_of(topic, 1)
    first = Member(backend, group, topic)
    drive([first], lambda: first.owned)

    def commit(places: Sequence[TopicPartition]) -> None:
        first.source.commit([Position(place, 0, "last words")])
        first.source.serve(wait_s)

    first.during_revoke = commit
    first.source.close()
    assert [outcome.confirmed for outcome in first.outcomes] == [(Position(place, 0, "last words"),)]
    second = Member(backend, group, topic)
    drive([second], lambda: second.owned)
    assert second.source.committed([place], 10.0) == [CommittedOffset(place, 0, "last words")]


def test_a_commit_of_which_some_is_refused_is_answered_inside_on_revoked(backend: Backend) -> None:
    """A client that gives the error of one partition to all of them may report the stored one as failed."""
    topic, group = backend.topic(partitions=2), backend.group()
    taken, refused = places_of(topic, 2)
    member = Member(backend, group, topic)
    drive([member], lambda: len(member.owned) == 2)
    good, bad = Position(taken, 0, "ok"), Position(refused, 0, "x" * 5000)
    heard: list[int] = []

    def commit(places: Sequence[TopicPartition]) -> None:
        assert set(places) == {taken, refused}
        member.source.commit([good, bad])
        deadline = backend.now() + 10
        while not member.outcomes and backend.now() < deadline:
            member.source.serve(0.1)
        heard.append(len(member.outcomes))

    member.during_revoke = commit
    member.source.close()
    assert heard == [1]
    [outcome] = member.outcomes
    failed = {position: error.fault for position, error in outcome.failed}
    assert failed.pop(bad) in (Fault.REFUSED, Fault.TOO_LARGE)
    assert [*outcome.confirmed, *failed] == [good]
    after = Member(backend, group, topic)
    drive([after], lambda: len(after.owned) == 2)
    assert after.source.committed([taken, refused], 10.0) == [
        CommittedOffset(taken, 0, "ok"),
        CommittedOffset(refused, None, ""),
    ]


def test_a_member_that_does_not_poll_loses_its_partitions_and_hears_it_at_its_next_poll(backend: Backend) -> None:
    topic = backend.topic(partitions=2)
    first, second = pair(backend, topic, [])
    drive([first, second], lambda: len(second.owned) == 1 and len(first.owned) == 1)
    (place,) = first.owned
    drive([second], lambda: len(second.owned) == 2, timeout_s=120)
    assert first.heard("lost") == []
    drive([first], lambda: first.heard("lost"))
    assert first.heard("lost") == [(place,)]
    assert first.owned == set()
    drive([first, second], lambda: len(first.owned) == 1 and len(second.owned) == 1, timeout_s=120)


def test_a_commit_of_a_member_that_was_evicted_is_refused(backend: Backend) -> None:
    topic = backend.topic(partitions=2)
    first, second = pair(backend, topic, [])
    drive([first, second], lambda: len(second.owned) == 1 and len(first.owned) == 1)
    (place,) = first.owned
    drive([second], lambda: len(second.owned) == 2, timeout_s=120)
    first.source.commit([Position(place, 9)])
    drive([first, second], lambda: first.outcomes)
    (outcome,) = first.outcomes
    assert outcome.confirmed == ()
    assert [error.fault for _, error in outcome.failed] == [Fault.REBALANCING]
    assert second.source.committed([place], 10.0) == [CommittedOffset(place, None, "")]


def test_an_exception_in_on_revoked_still_lets_go_and_is_raised_at_the_next_poll(backend: Backend) -> None:
    topic = backend.topic(partitions=2)
    first, second = pair(backend, topic, [])

    def fail(places: Sequence[TopicPartition]) -> None:
        first.owned.difference_update(places)
        raise LookupError("in on_revoked")

    first.during_revoke = fail
    with pytest.raises(LookupError, match="in on_revoked"):
        drive([first, second], lambda: False, timeout_s=60)
    drive([first, second], lambda: len(second.owned) == 1)
    assert first.heard("lost") == []


def test_a_listener_that_raises_during_close_does_not_keep_it_from_leaving(backend: Backend) -> None:
    topic = backend.topic(partitions=2)
    first, second = pair(backend, topic, [])
    drive([first, second], lambda: len(second.owned) == 1)

    def fail(places: Sequence[TopicPartition]) -> None:
        raise LookupError("in on_revoked")

    first.during_revoke = fail
    first.source.close()
    drive([second], lambda: len(second.owned) == 2)


def test_a_commit_of_which_all_is_refused_is_seen_to_be_absent_inside_on_revoked(backend: Backend) -> None:
    """Unless the client is heard there: then it is answered."""
    topic, group = backend.topic(), backend.group()
    (place,) = places_of(topic, 1)
    member = Member(backend, group, topic)
    drive([member], lambda: member.owned)
    absent_s: list[float] = []

    def commit(places: Sequence[TopicPartition]) -> None:
        member.source.commit([Position(place, 0, "x" * 5000)])
        deadline = backend.now() + 10
        while not member.outcomes and max(absent_s, default=0.0) < 1.0 and backend.now() < deadline:
            absent_s.append(member.source.serve(0.1))
        assert backend.now() < deadline

    member.during_revoke = commit
    member.source.close()
    assert absent_s == sorted(absent_s)
    assert [outcome.confirmed for outcome in member.outcomes] == [()]


@pytest.mark.needs("another subscription")
def test_a_member_that_subscribes_to_another_topic_too_keeps_what_it_has(backend: Backend) -> None:
    topic, other = backend.topic(partitions=2), backend.topic()
    backend.fill(TopicPartition(other, 0), 3)
    member = Member(backend, backend.group(), topic)
    drive([member], lambda: len(member.owned) == 2)
    member.source.subscribe([topic, other], member)
    drive([member], lambda: member.offsets(TopicPartition(other, 0)) == [0, 1, 2])
    assert sorted(member.owned) == sorted([*places_of(topic, 2), TopicPartition(other, 0)])
    assert member.heard("revoked") == []


@pytest.mark.needs("another subscription")
def test_a_member_that_leaves_a_topic_out_gives_up_that_one_only(backend: Backend) -> None:
    topic, other = backend.topic(partitions=2), backend.topic()
    member = Member(backend, backend.group(), topic)
    member.source.subscribe([topic, other], member)
    drive([member], lambda: len(member.owned) == 3)
    member.source.subscribe([topic], member)
    drive([member], lambda: len(member.owned) == 2)
    assert member.heard("revoked") == [(TopicPartition(other, 0),)]
    backend.fill(TopicPartition(topic, 1), 2)
    drive([member], lambda: member.offsets(TopicPartition(topic, 1)) == [0, 1])


@pytest.mark.needs("another subscription")
def test_a_member_without_topics_gives_all_up_and_may_come_back(backend: Backend) -> None:
    topic = backend.topic(partitions=2)
    group = backend.group()
    member, other = Member(backend, group, topic), Member(backend, group, topic)
    drive([member, other], lambda: len(member.owned) == 1 and len(other.owned) == 1)
    member.source.subscribe([], member)
    drive([member, other], lambda: not member.owned and len(other.owned) == 2)
    member.source.subscribe([topic], member)
    drive([member, other], lambda: len(member.owned) == 1 and len(other.owned) == 1)
