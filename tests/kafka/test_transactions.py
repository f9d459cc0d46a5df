"""Commits as transactions on a real broker: who may commit, and a producer whose call does not return."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import PRODUCER_HANGS, Position
from keepfast.core.records import TopicPartition
from keepfast.kafka import Consuming, TransactionalSource, source_properties, transaction_properties, transactions
from keepfast.kafka.transactions import is_of_a_member
from keepfast.testing.broker import KafkaBroker
from tests.support.broker_client import Client
from tests.support.broker_proxy import TXN_OFFSET_COMMIT, BrokerProxy
from tests.support.members import SESSION_MS, GroupMember, connection, drive, new_group, produce
from tests.support.waiting import wait_until
from tests.support.wire import evict

Topic = Callable[..., str]
PROTOCOLS = pytest.mark.parametrize("group_protocol", ["classic", "consumer"])


@pytest.fixture
def proxy(kafka: KafkaBroker) -> Iterator[BrokerProxy]:
    with BrokerProxy(kafka.bootstrap) as proxy:
        yield proxy


def transacting(bootstrap: str, topic: str, group: str, protocol: str = "classic") -> GroupMember:
    """A member whose producer is behind the same address. A call whose reply is lost does not return for 10 s."""
    to = connection(bootstrap, properties={"log_level": 0, "socket.timeout.ms": 10_000})
    consuming = Consuming(
        group=group,
        group_protocol=protocol,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1_000,
        max_poll_interval_ms=SESSION_MS,
    )
    producer = transaction_properties(to, group, "member")
    return GroupMember(TransactionalSource(source_properties(to, consuming), producer=producer), topic)


@PROTOCOLS
def test_a_producer_that_hangs_is_replaced_and_the_member_begins_at_what_is_committed(
    kafka: KafkaBroker,
    topic: Topic,
    proxy: BrokerProxy,
    monkeypatch: pytest.MonkeyPatch,
    group_protocol: str,
) -> None:
    """After a lost reply the call returns long after its timeout: as long as that takes, it hangs."""
    monkeypatch.setattr(transactions, "GIVE_UP_S", 2.0)
    name, group = topic(), new_group()
    place = TopicPartition(name, 0)
    produce(kafka, name, 10)
    with transacting(proxy.bootstrap, name, group, group_protocol) as member:
        drive([member], lambda: len(member.records) == 10)
        assert member.commit(Position(place, 2, "")).failed == ()
        proxy.lose_reply(TXN_OFFSET_COMMIT)
        outcome = member.commit(Position(place, 5, ""))
        assert proxy.lost == [TXN_OFFSET_COMMIT]
        assert [error.code for _, error in outcome.failed] == ["CLOSED"]
        assert [(error.code, error.fault) for error, _ in member.errors] == [(PRODUCER_HANGS, Fault.RETRY)]
        assert member.heard("lost") == [(place,)]
        drive([member], lambda: len(member.heard("assigned")) == 2)
        assert [one.offset for one in member.source.committed([place], 30)] == [2], "the open one was aborted"
        assert member.commit(Position(place, 7, "")).failed == ()
    assert Client(kafka).committed(group, name, 0)[0] == 7


def test_when_three_producers_hang_at_once_the_member_fails(
    kafka: KafkaBroker, topic: Topic, proxy: BrokerProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "GIVE_UP_S", 2.0)  # the new producer waits for the abort of the old one
    monkeypatch.setattr(transactions, "MAX_HUNG", 2)
    name, group = topic(), new_group()
    with transacting(proxy.bootstrap, name, group) as member:
        proxy.lose_reply(TXN_OFFSET_COMMIT, count=2)
        for offset in range(2):
            drive([member], lambda: member.owned)
            member.commit(Position(TopicPartition(name, 0), offset, ""))
        assert [error.fault for error, _ in member.errors] == [Fault.RETRY, Fault.FATAL]


def test_a_member_that_was_excluded_commits_nothing_until_it_has_joined_again(kafka: KafkaBroker, topic: Topic) -> None:
    """Between the exclusion and its callback the client cannot say who it is."""
    name, group = topic(), new_group()
    place = TopicPartition(name, 0)
    produce(kafka, name, 1)
    with transacting(kafka.bootstrap, name, group) as member, transacting(kafka.bootstrap, name, group) as other:
        drive([member, other], lambda: len(member.owned) + len(other.owned) == 1)
        owner = member if member.owned else other
        assert owner.commit(Position(place, 1, ""), beside=[member, other]).failed == ()
        client = owner.source._open
        evict(kafka.bootstrap, group, client.memberid())
        wait_until(lambda: not is_of_a_member(bytes(client.consumer_group_metadata())), "the client has noticed")
        outcome = owner.commit(Position(place, 9, ""))
        ((_, error),) = outcome.failed
        assert isinstance(error, SourceError)
        assert (error.code, error.fault) == ("NO_MEMBER", Fault.REBALANCING)
        assert Client(kafka).committed(group, name, 0)[0] == 1


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (b"CGMDv2:\x05\0\0\0group\0member\0\x01", True),
        (b"CGMDv2:\xff\xff\xff\xffgroup\0member\0\x01", False),
        (b"CGMDv2:\x05\0\0\0group\0\0\x01", False),
        (b"another format", True),
    ],
)
def test_who_is_a_member_is_read_from_the_clients_own_words(metadata: bytes, expected: bool) -> None:
    assert is_of_a_member(metadata) is expected
