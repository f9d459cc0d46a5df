"""A client that ends itself while a commit is under way: the answer says only that there is a fatal error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPlace
from confluent_kafka.admin import (  # type: ignore[attr-defined] # all of them public, says its docstring
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import CommitOutcome, Listener, Position
from keepfast.core.records import TopicPartition
from keepfast.kafka import Connection, KafkaSource, source
from keepfast.kafka.commits import CommitRequest
from keepfast.testing import KafkaBroker
from tests.support.members import drive, kafka_member, new_group
from tests.support.waiting import DEADLINE_S, wait_until

PLACE = TopicPartition("t", 0)
POSITION = Position(PLACE, 5)
BARE = KafkaError(KafkaError._FATAL)


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(sasl_users={"alice": "secret"}, authorize=True) as running:
        yield running


def withdraw(broker: KafkaBroker, group: str) -> None:
    denied = AclBinding(
        ResourceType.GROUP,
        group,
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.ALL,
        AclPermissionType.DENY,
    )
    for future in broker.admin.create_acls([denied]).values():
        future.result(DEADLINE_S)


def give_back(broker: KafkaBroker, group: str) -> None:
    denied = AclBindingFilter(
        ResourceType.GROUP,
        group,
        ResourcePatternType.LITERAL,
        "User:alice",
        None,  # type: ignore[arg-type] # any host
        AclOperation.ANY,
        AclPermissionType.DENY,
    )
    for future in broker.admin.delete_acls([denied]).values():
        future.result(DEADLINE_S)


def test_a_member_whose_right_is_withdrawn_while_it_commits_comes_back(broker: KafkaBroker) -> None:
    name, group = broker.create_topic(new_group()), new_group()
    login = Connection(
        brokers=[broker.bootstrap_sasl],
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="secret",
        properties={"log_level": 0},
    )
    place = TopicPartition(name, 0)
    with kafka_member(login, name, group, group_protocol="consumer") as member:
        drive([member], lambda: member.owned)
        withdraw(broker, group)
        ended = member.source._open
        wait_until(lambda: _is_fatal(ended), "a heartbeat was refused, and the client has ended itself")
        member.source.commit([Position(place, 3)])
        drive([member], lambda: member.outcomes)
        give_back(broker, group)
        [(position, error)] = member.outcomes[0].failed
        assert (position, error.fault, error.code) == (Position(place, 3), Fault.RETRY, "CLOSED")
        assert member.errors[0][0].code == "GROUP_AUTHORIZATION_FAILED"
        assert all(one.fault is Fault.REFUSED for one, _ in member.errors)
        drive([member], lambda: len(member.heard("assigned")) == 2)
        assert member.heard("lost") == [(place,)]
        assert member.commit(Position(place, 3)) == CommitOutcome((Position(place, 3),))


def _is_fatal(client: Consumer) -> bool:
    """Whether it answers commits only with its fatal error; asked without serving anything that waits in it."""
    try:
        client.commit(offsets=[ClientPlace("keepfast.probe", 0, 0)], asynchronous=False)
    except KafkaException as error:
        return bool(error.args[0].name() == "_FATAL")
    return False


class Heard:
    """A listener that keeps what it hears about commits and errors."""

    def __init__(self) -> None:
        self.outcomes: list[CommitOutcome] = []
        self.errors: list[SourceError] = []

    def on_committed(self, outcome: CommitOutcome) -> None:
        self.outcomes.append(outcome)

    def on_error(self, error: SourceError, place: TopicPartition | None) -> None:
        self.errors.append(error)


def answered_with_a_bare_error() -> tuple[KafkaSource, Heard]:
    """A source whose commit was answered so, and its listener, which has not heard of it."""
    member, heard = KafkaSource({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}), Heard()
    member._registered = cast(Listener, heard)
    member._requests.under_way = CommitRequest((POSITION,))
    member._on_commit(BARE, [ClientPlace(*PLACE, POSITION.offset)])
    member._before()
    assert heard.outcomes == []
    return member, heard


def test_the_reason_decides_what_becomes_of_the_commit() -> None:
    member, heard = answered_with_a_bare_error()
    member._on_error(KafkaError(KafkaError._FATAL, "Fatal error: Broker: Group authorization failed: ConsumerGroup"))
    assert [error.fault for error in heard.errors] == [Fault.REFUSED]
    member._before()
    [(position, error)] = heard.outcomes[0].failed
    assert (position, error.fault) == (POSITION, Fault.RETRY)


def test_a_reason_that_is_final_is_the_one_that_is_heard() -> None:
    member, heard = answered_with_a_bare_error()
    fenced = KafkaError(KafkaError.FENCED_INSTANCE_ID).str()
    member._on_error(KafkaError(KafkaError._FATAL, f"Fatal error: {fenced}: Broker: fenced"))
    assert [error.fault for error in heard.errors] == [Fault.FENCED]
    member._before()
    assert heard.outcomes == [], "nothing says first that the client failed without a reason"


def test_without_a_reason_the_commit_fails_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "EXPLANATION_S", 0.0)
    member, heard = KafkaSource({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}), Heard()
    member._registered = cast(Listener, heard)
    member._requests.under_way = CommitRequest((POSITION,))
    member._on_commit(BARE, [ClientPlace(*PLACE, POSITION.offset)])
    assert heard.outcomes == []
    member._before()
    [(_, error)] = heard.outcomes[0].failed
    assert (error.fault, error.code) == (Fault.FATAL, "_FATAL")
    assert member._requests.under_way is None
