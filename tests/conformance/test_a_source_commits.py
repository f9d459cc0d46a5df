"""Conformance of sources: commits are answered exactly once, and what was stored comes back."""

from __future__ import annotations

import pytest

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import CommittedOffset, Position
from keepfast.core.records import TopicPartition
from tests.conformance.backend import Backend
from tests.conformance.member import Member
from tests.support.members import drive, drive_for


@pytest.fixture
def topic(backend: Backend) -> str:
    return backend.topic(partitions=2)


@pytest.fixture
def member(backend: Backend, topic: str) -> Member:
    member = Member(backend, backend.group(), topic)
    drive([member], lambda: len(member.owned) == 2)
    return member


def test_without_a_commit_the_offset_is_none(member: Member, topic: str) -> None:
    place = TopicPartition(topic, 0)
    assert member.source.committed([place], 10.0) == [CommittedOffset(place, None, "")]


def test_a_commit_is_answered_once_and_stored_with_its_metadata(member: Member, topic: str) -> None:
    positions = [Position(TopicPartition(topic, 0), 3, "map α"), Position(TopicPartition(topic, 1), 0, "")]
    outcome = member.commit(*positions)
    drive_for([member], 0.5)
    assert len(member.outcomes) == 1
    assert outcome.failed == ()
    assert sorted(outcome.confirmed, key=lambda p: p.place) == positions
    stored = member.source.committed([p.place for p in positions], 10.0)
    assert sorted(stored, key=lambda c: c.place) == [CommittedOffset(p.place, p.offset, p.metadata) for p in positions]


def test_a_leader_epoch_is_stored_with_its_commit(member: Member, topic: str) -> None:
    known, unknown = Position(TopicPartition(topic, 0), 3, leader_epoch=0), Position(TopicPartition(topic, 1), 3)
    assert member.commit(known, unknown).failed == ()
    stored = member.source.committed([known.place, unknown.place], 10.0)
    assert {one.place: one.leader_epoch for one in stored} == {known.place: 0, unknown.place: None}


def test_the_answer_never_comes_from_inside_commit(member: Member, topic: str) -> None:
    member.source.commit([Position(TopicPartition(topic, 0), 1)])
    assert member.outcomes == []
    drive([member], lambda: member.outcomes)


def test_the_same_offset_with_new_metadata_is_stored(member: Member, topic: str) -> None:
    place = TopicPartition(topic, 0)
    member.commit(Position(place, 5, "first"))
    member.commit(Position(place, 5, "second"))
    assert member.source.committed([place], 10.0) == [CommittedOffset(place, 5, "second")]


def test_metadata_of_4000_characters_comes_back_whole(member: Member, topic: str) -> None:
    place = TopicPartition(topic, 0)
    text = "0123456789" * 400
    assert member.commit(Position(place, 1, text)).failed == ()
    assert member.source.committed([place], 10.0) == [CommittedOffset(place, 1, text)]


@pytest.mark.needs("reasons of refused commits")
def test_metadata_that_is_too_large_is_refused_and_the_rest_of_the_request_is_stored(
    member: Member, topic: str
) -> None:
    """The client gives the error of one partition to all of them, so a stored one may be reported as failed."""
    good, bad = Position(TopicPartition(topic, 0), 2, "ok"), Position(TopicPartition(topic, 1), 2, "x" * 5000)
    outcome = member.commit(good, bad)
    failed = {position: error.fault for position, error in outcome.failed}
    assert failed.pop(bad) is Fault.TOO_LARGE
    assert [*outcome.confirmed, *failed] == [good]
    stored = member.source.committed([good.place, bad.place], 10.0)
    assert stored == [CommittedOffset(good.place, 2, "ok"), CommittedOffset(bad.place, None, "")]


def test_a_listener_that_raises_is_heard_at_the_next_poll_and_loses_nothing(
    member: Member, backend: Backend, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TopicPartition(topic, 0)

    def fail(outcome: object) -> None:
        raise LookupError("from the listener")

    with monkeypatch.context() as patch:
        patch.setattr(member, "on_committed", fail)
        backend.fill(place, 20)
        member.source.commit([Position(place, 0)])
        with pytest.raises(LookupError, match="from the listener"):
            drive([member], lambda: False, timeout_s=30)
    drive([member], lambda: len(member.records) >= 20)
    assert member.offsets(place) == list(range(20))


def test_commits_go_on_after_a_listener_raised(member: Member, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = TopicPartition(topic, 0)

    def fail(outcome: object) -> None:
        raise LookupError("once")

    with monkeypatch.context() as patch:
        patch.setattr(member, "on_committed", fail)
        member.source.commit([Position(place, 1)])
        with pytest.raises(LookupError):
            drive([member], lambda: False, timeout_s=30)
    assert member.commit(Position(place, 2)).confirmed == (Position(place, 2),)


def test_after_close_the_source_says_so(member: Member) -> None:
    member.source.close()
    with pytest.raises(SourceError):
        member.source.poll(0)
