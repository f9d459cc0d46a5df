"""Partitions that the client does not fetch though it should: fetched again, or by a new client, on a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition as ClientPlace

from keepfast.core.errors import SourceError
from keepfast.core.ports import Position
from keepfast.core.records import TopicPartition
from keepfast.testing.broker import KafkaBroker
from tests.support.members import GroupMember, Places, drive, drive_for, new_group, produce
from tests.support.waiting import wait_until

Join = Callable[..., GroupMember]
Topic = Callable[..., str]

MEMBERS = [
    {"group_protocol": "classic"},
    {"group_protocol": "consumer"},
    {"group_protocol": "classic", "group_instance_id": "one"},
]


def that_reads(join: Join, kafka: KafkaBroker, name: str, **options: object) -> tuple[GroupMember, TopicPartition]:
    """A member that has read the first record of its only partition."""
    produce(kafka, name, 1)
    member, place = join(name, new_group(), **options), TopicPartition(name, 0)
    drive([member], lambda: member.offsets(place) == [0])
    return member, place


def test_a_partition_that_the_client_has_paused_by_itself_is_fetched_anew(
    kafka: KafkaBroker, topic: Topic, join: Join
) -> None:
    member, place = that_reads(join, kafka, topic())
    member.source._open.pause([ClientPlace(*place)])
    drive_for([member], 1.0)  # the last fetch is answered
    produce(kafka, place.topic, 2)
    drive_for([member], 1.0)
    assert member.offsets(place) == [0]
    assert member.source.seen_ends([place]) == {place: 1}, "the client knows nothing of what it does not fetch"
    member.source.refetch(Position(place, 1))
    drive([member], lambda: member.offsets(place) == [0, 1, 2])


@pytest.mark.parametrize("options", MEMBERS)
def test_a_new_client_commits_leaves_and_fetches_what_the_last_one_has_given_up(
    kafka: KafkaBroker, topic: Topic, join: Join, options: dict[str, object]
) -> None:
    member, place = that_reads(join, kafka, topic(), **options)
    client = member.source._open
    client.incremental_unassign([ClientPlace(*place)])
    produce(kafka, place.topic, 2)
    with pytest.raises(SourceError):
        member.source.refetch(Position(place, 1))

    def commit(_: Places) -> None:
        member.source.commit([Position(place, 1, "before")])
        member.source.serve(10.0)

    member.during_revoke, member.start_at = commit, 1
    assert member.source.renew()
    drive([member], lambda: member.offsets(place) == [0, 1, 2])
    assert member.source._open is not client
    assert (member.heard("revoked"), member.heard("lost"), member.replaced) == ([(place,)], [], 1)
    assert [outcome.confirmed for outcome in member.outcomes] == [(Position(place, 1, "before"),)]
    assert member.commit(Position(place, 3)).confirmed == (Position(place, 3),), "the new one is a member"


def test_a_source_is_emptied_when_neither_records_nor_ends_of_partitions_wait(
    kafka: KafkaBroker, topic: Topic, join: Join
) -> None:
    produce(kafka, name := topic(), 3)
    member, place = join(name, new_group()), TopicPartition(name, 0)
    source = member.source
    sweeps: list[tuple[int, bool, bool]] = []

    def sweep() -> None:
        taken = len(source.sweep(1))
        sweeps.append((taken, place in source._ends, source.emptied))

    wait_until(lambda: any(has_end for _, has_end, _ in sweeps), "the end", between=sweep)
    assert sum(taken for taken, _, _ in sweeps) == 3
    assert all(emptied == (not taken and not has_end) for taken, has_end, emptied in sweeps)
    assert source.poll(0) is None
    assert source.emptied
    source.commit([Position(place, 3)])
    while not member.outcomes:
        assert source.poll(0.09) is None
    assert not source.emptied, "the answer ended the wait"
