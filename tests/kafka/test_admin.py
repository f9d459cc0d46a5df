"""Asking the cluster: there or not, which topics, may we."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from queue import SimpleQueue
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]

from keepfast.core.errors import ConfigError, Fault, SourceError
from keepfast.kafka import KafkaAdmin, TopicFacts, admin_properties
from keepfast.kafka import admin as admin_module
from keepfast.kafka.places import ClientPlace
from keepfast.testing.broker import KafkaBroker
from keepfast.testing.embedded import PARTITIONS, EmbeddedBroker
from tests.support.broker_client import Client, NewRecord
from tests.support.members import connection, drive, kafka_member, new_group
from tests.support.waiting import DEADLINE_S, wait_until

Topic = Callable[..., str]


@pytest.fixture
def admin(kafka: KafkaBroker) -> KafkaAdmin:
    return KafkaAdmin(admin_properties(connection(kafka.bootstrap)))


@pytest.fixture(scope="module")
def guarded() -> Iterator[KafkaBroker]:
    with KafkaBroker(sasl_users={"alice": "wonder"}, authorize=True) as broker:
        yield broker


def login(broker: KafkaBroker, password: str = "wonder") -> dict[str, str]:
    return {
        "bootstrap": broker.bootstrap_sasl,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": password,
    }


def test_a_broker_that_answers_is_reached(admin: KafkaAdmin) -> None:
    admin.check(10.0)


@pytest.mark.timing
@pytest.mark.parametrize(("address", "reason"), [("127.0.0.1:1", "refused"), ("no-such-host.invalid:9092", "resolve")])
def test_a_broker_that_is_not_there_is_reported_with_its_address_and_the_reason(address: str, reason: str) -> None:
    admin = KafkaAdmin(admin_properties(connection(address)))
    began = time.monotonic()
    with pytest.raises(SourceError, match=reason) as caught:
        admin.check(1.5)
    assert time.monotonic() - began < 5.0
    assert caught.value.fault is Fault.RETRY
    assert address in str(caught.value)
    assert "Check the address" in str(caught.value)


@pytest.mark.timing
def test_a_frozen_broker_does_not_hold_the_check_beyond_its_time(kafka: KafkaBroker) -> None:
    admin = KafkaAdmin(admin_properties(connection(kafka.bootstrap)))
    kafka.pause()
    try:
        began = time.monotonic()
        with pytest.raises(SourceError):
            admin.check(1.5)
        assert time.monotonic() - began < 4.0
    finally:
        kafka.resume()
        kafka.wait_ready()


@pytest.mark.timing
def test_a_refused_login_is_reported_at_once(guarded: KafkaBroker) -> None:
    admin = KafkaAdmin(admin_properties(connection(**login(guarded, "wrong"))))
    began = time.monotonic()
    with pytest.raises(SourceError, match="password") as caught:
        admin.check(30.0)
    assert time.monotonic() - began < 10.0
    assert caught.value.fault is Fault.REFUSED


def test_a_good_login_is_let_in(guarded: KafkaBroker) -> None:
    KafkaAdmin(admin_properties(connection(**login(guarded)))).check(10.0)


def test_a_member_with_a_wrong_password_hears_that_it_is_refused(guarded: KafkaBroker) -> None:
    member = kafka_member(connection(**login(guarded, "wrong")), "any", new_group())
    drive([member], lambda: any(error.fault is Fault.REFUSED for error, _ in member.errors))
    member.source.close()


def test_topics_are_described_and_missing_ones_are_none(admin: KafkaAdmin, topic: Topic) -> None:
    name = topic(partitions=3)
    facts = admin.topics([name, "no-such-topic"], 10.0)
    assert facts["no-such-topic"] is None
    found = facts[name]
    assert found is not None
    assert (found.name, found.partitions) == (name, 3)
    assert found.topic_id is not None
    assert [len(part) for part in found.topic_id.split("@")] == [22, 22], "its own, and the cluster's"


class WithoutController(AdminClient):
    """Of the real broker's answers so many say that there is no controller."""

    left = 0

    def list_topics(self, *args: Any, **kwargs: Any) -> ClusterMetadata:
        found = super().list_topics(*args, **kwargs)
        if self.left:
            self.left -= 1
            found.controller_id = -1
        return found


@pytest.mark.parametrize(("answers", "known"), [(1, True), (2, False)])
def test_a_cluster_that_chooses_a_controller_is_asked_once_more_and_is_not_taken_for_the_embedded_one(
    admin: KafkaAdmin, topic: Topic, monkeypatch: pytest.MonkeyPatch, answers: int, known: bool
) -> None:
    monkeypatch.setattr(admin_module, "AdminClient", WithoutController)
    monkeypatch.setattr(WithoutController, "left", answers)
    name = topic()
    found = admin.topics([name], 10.0)[name]
    assert found is not None
    assert (found.topic_id is not None) is known
    assert not admin.embedded
    assert admin.has_topic_ids, "if not now, then later"


def test_the_embedded_broker_tells_no_ids() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        admin = KafkaAdmin(admin_properties(connection(broker.bootstrap)))
        assert admin.topics(["orders"], 10.0)["orders"] == TopicFacts("orders", PARTITIONS, None)
        assert admin.embedded
        assert not admin.has_topic_ids


def test_a_topic_made_again_has_another_id(admin: KafkaAdmin, kafka: KafkaBroker, topic: Topic) -> None:
    name = topic()
    before = admin.topics([name], 10.0)[name]
    kafka.delete_topic(name)
    kafka.create_topic(name)
    after = admin.topics([name], 10.0)[name]
    assert before is not None
    assert after is not None
    assert before.topic_id != after.topic_id


def test_a_topic_is_created_once(admin: KafkaAdmin) -> None:
    name = f"made-{new_group()}"
    settings = {"cleanup.policy": "delete", "retention.ms": "-1"}
    assert admin.create_topic(name, partitions=2, timeout_s=10.0, config=settings) is True
    assert admin.create_topic(name, partitions=2, timeout_s=10.0) is False
    found = admin.topics([name], 10.0)[name]
    assert isinstance(found, TopicFacts)
    assert found.partitions == 2


def test_a_topic_that_may_not_be_made_is_refused_by_name(admin: KafkaAdmin) -> None:
    with pytest.raises(SourceError, match="not allowed/here"):
        admin.create_topic("not allowed/here", partitions=1, timeout_s=10.0)


def test_no_answer_about_topics_is_an_error_not_a_missing_topic(kafka: KafkaBroker, admin: KafkaAdmin) -> None:
    admin.check(10.0)
    kafka.pause()
    try:
        with pytest.raises(SourceError) as caught:
            admin.topics(["any"], 1.0)
        assert caught.value.fault is Fault.RETRY
    finally:
        kafka.resume()
        kafka.wait_ready()


def test_properties_that_the_client_does_not_take_are_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.property"):
        KafkaAdmin({"bootstrap.servers": "127.0.0.1:1", "no.such.property": 1}).check(1.0)


@pytest.mark.timing
def test_ids_are_reported_to_the_caller_without_blocking(admin: KafkaAdmin, topic: Topic) -> None:
    name, reported = topic(), list[dict[str, str | None]]()
    facts = admin.topics([name], 10.0)[name]
    assert facts is not None
    asked_at = time.monotonic()
    admin.ask([name, "no-such-topic"], lambda ids: reported.append(dict(ids)))
    assert time.monotonic() - asked_at < 1.0
    wait_until(lambda: reported, "the answer comes")
    assert reported == [{name: facts.topic_id, "no-such-topic": None}]


def test_an_unanswered_request_for_ids_raises_nothing() -> None:
    nowhere = KafkaAdmin(admin_properties(connection("127.0.0.1:1")))
    nowhere.ask(["t"], lambda _: pytest.fail("none is there"))


def test_the_records_of_topics_are_counted_and_a_topic_that_is_not_there_is_reported_as_such(
    admin: KafkaAdmin, kafka: KafkaBroker, topic: Topic
) -> None:
    name = topic(partitions=2)
    Client(kafka).produce(name, [NewRecord(b"v", partition=number % 2) for number in range(3)])
    kafka.admin.delete_records([ClientPlace(name, 0, 1)])[ClientPlace(name, 0)].result(DEADLINE_S)
    answers: SimpleQueue[Mapping[str, int | None]] = SimpleQueue()
    admin.ask_depths({name: 2, f"{name}.none": 1}, answers.put)
    assert answers.get(timeout=DEADLINE_S) == {name: 2, f"{name}.none": None}
    unreachable = KafkaAdmin(admin_properties(connection("127.0.0.1:1")))
    unreachable.ask_depths({name: 2}, answers.put)  # neither raises nor waits


def test_a_topic_that_is_created_after_the_first_question_is_found(
    admin: KafkaAdmin, kafka: KafkaBroker, topic: Topic
) -> None:
    """The client remembers which topics were missing, and answers some questions from memory."""
    name = topic()
    late = f"{name}.late"
    answers: SimpleQueue[Mapping[str, bool]] = SimpleQueue()
    for _ in range(2):
        admin.ask_existing([late], answers.put)
        assert answers.get(timeout=DEADLINE_S) == {late: False}
    admin.ask_existing([name, late], answers.put)
    assert answers.get(timeout=DEADLINE_S) == {name: True, late: False}
    kafka.create_topic(late, partitions=1)

    def found() -> bool:
        admin.ask_existing([late], answers.put)
        return answers.get(timeout=DEADLINE_S) == {late: True}

    wait_until(found, "it is found")
    KafkaAdmin(admin_properties(connection("127.0.0.1:1"))).ask_existing(
        [late], answers.put
    )  # neither raises nor waits


def test_partitions_without_an_owner_are_reported_and_a_group_that_is_not_stable_is_not_known(
    admin: KafkaAdmin, kafka: KafkaBroker, topic: Topic
) -> None:
    owned, other, group = topic(partitions=2), topic(partitions=2), new_group()
    answers: SimpleQueue[Any] = SimpleQueue()

    def answer(group: str, *topics: str) -> Any:
        admin.ask_unowned(group, topics, answers.put)
        return answers.get(timeout=DEADLINE_S)

    with kafka_member(connection(kafka.bootstrap), owned, group) as member:
        drive([member], lambda: len(member.owned) == 2)
        drive([member], lambda: answer(group, owned) is not None)
        assert answer(group, owned) == frozenset()
        assert answer(group, owned, other, "no.such.topic") == {(other, 0), (other, 1)}
    assert answer(group, owned) is None  # empty
    assert answer(new_group(), owned) is None
