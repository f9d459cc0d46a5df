"""P1: a topic that is deleted and made again while a consumer runs, and filled beyond the old offset before the client
notices, looks to the client as if nothing had happened. All of its records are processed all the same.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]

from keepfast import App
from keepfast.engine import topic_ids
from keepfast.kafka import admin
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.runners import Running
from tests.support.broker_client import Client
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import happens, wait_until

OLD, NEW = 100, 150


def app_of(kafka: TopicAdmin, name: str, seen: list[bytes], **options: object) -> App:
    app = app_for(kafka)

    @app.consumer(name, **options)  # type: ignore[arg-type]
    def work(value: bytes) -> None:
        seen.append(value)

    return app


def make_anew(kafka: TopicAdmin, client: Client, name: str) -> None:
    kafka.delete_topic(name)
    kafka.create_topic(name)
    client.produce(name, [b"new-%d" % number for number in range(NEW)])


def new_ones(seen: list[bytes]) -> set[bytes]:
    return {value for value in seen if value.startswith(b"new")}


ALL_NEW = {b"new-%d" % number for number in range(NEW)}


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_all_of_it_is_processed_while_the_consumer_runs_on(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.setattr(topic_ids, "CHECK_INTERVAL_S", 1.0)
    name, client, seen = topic(), Client(kafka), list[bytes]()
    client.produce(name, [b"old-%d" % number for number in range(OLD)])
    client.commit("scenario.work", name, 0)
    with RunningApp(app_of(kafka, name, seen, auto_offset_reset=policy)) as inside:
        wait_until(lambda: client.committed("scenario.work", name)[0] == OLD, "the old topic is done")
        make_anew(kafka, client, name)
        wait_until(lambda: new_ones(seen) == ALL_NEW, "every record of the new topic is processed")
        wait_until(lambda: client.committed("scenario.work", name)[0] == NEW, "and committed")
        (printed,) = inside.log.of("topic_recreated")
        assert printed.level == "error"
        (moved,) = inside.log.of("partition_reset")
        assert moved.fields["policy"] == policy
    first = [seen.index(value) for value in sorted(ALL_NEW, key=lambda value: int(value[4:]))]
    assert first[:OLD] == sorted(first[:OLD]), "what was below the old offset is read in order"


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_member_that_gave_up_its_partitions_meanwhile_reports_it_too(
    kafka: TopicAdmin, topic: TopicFactory, policy: str
) -> None:
    """The broker takes them when the topic is deleted, and the group's commits are gone with it."""
    name, client, seen = topic(), Client(kafka), list[bytes]()
    client.produce(name, [b"old-%d" % number for number in range(OLD)])
    client.commit("scenario.work", name, 0)
    with RunningApp(app_of(kafka, name, seen, auto_offset_reset=policy, group_protocol="consumer")) as inside:
        wait_until(lambda: client.committed("scenario.work", name)[0] == OLD, "the old topic is done")
        kafka.delete_topic(name)
        wait_until(lambda: not len(inside.loop.ownership), "the partition is revoked")
        kafka.create_topic(name)
        client.produce(name, [b"new-%d" % number for number in range(NEW)])
        wait_until(lambda: inside.log.of("topic_recreated"), "the log says so")
        wait_until(lambda: new_ones(seen) == ALL_NEW, "every record of the new topic is processed")
        assert "topic_recreated" in [line.fields["reason"] for line in inside.log.of("partition_reset")]


def test_the_next_member_does_not_trust_what_was_committed_for_the_old_topic(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client, seen = topic(), Client(kafka), list[bytes]()
    client.produce(name, [b"old-%d" % number for number in range(OLD)])
    with RunningApp(app_of(kafka, name, seen)):
        wait_until(lambda: client.committed("scenario.work", name)[0] == OLD, "the old topic is done")
        make_anew(kafka, client, name)
        wait_until(lambda: client.committed("scenario.work", name)[0] == NEW, "it went on at the old offset")
    assert new_ones(seen) != ALL_NEW, "nobody has noticed, for nobody has looked yet"

    with RunningApp(app_of(kafka, name, seen)) as second:
        wait_until(lambda: new_ones(seen) == ALL_NEW, "every record of the new topic is processed")
        wait_until(lambda: client.committed("scenario.work", name)[0] == NEW, "and committed")
        assert second.log.of("partition_reset")


def test_a_member_whose_question_for_the_id_fails_waits_and_throws_no_good_commit_away(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One member has noticed and committed in the new topic; the next owner knows the old one and gets no answer."""
    monkeypatch.setattr(topic_ids, "CHECK_INTERVAL_S", 1.0)
    name, client, seen, deaf = topic(), Client(kafka), list[bytes](), list[bytes]()
    client.produce(name, [b"old-%d" % number for number in range(OLD)])
    client.commit("scenario.work", name, 0)
    second = RunningApp(app_of(kafka, name, deaf, auto_offset_reset="latest"))
    with RunningApp(app_of(kafka, name, seen, auto_offset_reset="latest")):
        wait_until(lambda: client.committed("scenario.work", name)[0] == OLD, "the old topic is done")
        admin = second.assemble().clients.admin  # it has seen the old topic, and joins later
        make_anew(kafka, client, name)
        wait_until(lambda: new_ones(seen) == ALL_NEW, "the first one has noticed")
        wait_until(lambda: client.committed("scenario.work", name)[0] == NEW, "and committed")
    assert admin is not None
    admin.ask = lambda topics, answer: answer({})  # type: ignore[method-assign]
    with second:
        wait_until(lambda: second.log.of("topic_id_unknown"), "it has found a commit that it cannot judge")
        client.produce(name, [b"newer"])
        assert not happens(lambda: deaf, within_s=3.0), "it reads nothing before it has an answer"
        del admin.ask
        wait_until(lambda: deaf, "then it continues from the commit")
        assert not second.log.of("partition_reset")
    assert deaf == [b"newer"]


class WithoutController(AdminClient):
    """As a cluster that has no controller at the start: the answers to the checks say so."""

    def list_topics(self, *args: Any, **kwargs: Any) -> ClusterMetadata:
        found = super().list_topics(*args, **kwargs)
        found.controller_id = -1
        return found


def test_a_member_that_started_while_there_was_no_controller_notices_it_too(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_ids, "CHECK_INTERVAL_S", 1.0)
    monkeypatch.setattr(admin, "AdminClient", WithoutController)
    name, client, seen = topic(), Client(kafka), list[bytes]()
    client.produce(name, [b"old-%d" % number for number in range(OLD)])
    with RunningApp(app_of(kafka, name, seen)) as inside:
        assert inside.loop.plan.topic_ids == {}
        wait_until(lambda: client.committed("scenario.work", name)[0] == OLD, "the old topic is done")
        wait_until(lambda: inside.loop.identities.ids.get(name), "its id is known by now")
        make_anew(kafka, client, name)
        wait_until(lambda: new_ones(seen) == ALL_NEW, "every record of the new topic is processed")


def test_with_auto_offset_reset_error_the_consumer_halts_instead_of_choosing(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_ids, "CHECK_INTERVAL_S", 0.5)
    name, client, seen = topic(), Client(kafka), list[bytes]()
    client.produce(name, [b"old-%d" % number for number in range(OLD)])
    client.commit("scenario.work", name, 0)
    with RunningApp(app_of(kafka, name, seen, auto_offset_reset="error"), code=4) as inside:
        wait_until(lambda: client.committed("scenario.work", name)[0] == OLD, "the old topic is done")
        make_anew(kafka, client, name)
        wait_until(lambda: inside.ended, "it stops")


def test_a_topic_that_stays_the_same_is_left_alone(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_ids, "CHECK_INTERVAL_S", 0.1)
    name, client, seen = topic(), Client(kafka), list[bytes]()
    client.produce(name, [b"old-%d" % number for number in range(OLD)])
    with RunningApp(app_of(kafka, name, seen)) as inside:
        wait_until(lambda: client.committed("scenario.work", name)[0] == OLD, "it is done")
        answers = inside.loop.identities._answers
        wait_until(lambda: name in answers, "it was looked at again")
        first = answers[name].asked_at
        wait_until(lambda: answers[name].asked_at > first + 0.3, "more than once")
    with RunningApp(app_of(kafka, name, seen)):
        client.produce(name, [b"one more"])
        wait_until(lambda: client.committed("scenario.work", name)[0] == OLD + 1, "it continues where it was")
    assert len(seen) == OLD + 1


def test_a_runner_with_a_dict_of_configuration_notices_it_too(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_ids, "CHECK_INTERVAL_S", 1.0)
    name, client, seen = topic(), Client(kafka), list[bytes]()
    group = f"group-of-{name}"

    def process_message(message: dict[str, str]) -> None:
        seen.append(message["is"].encode())

    hooks = {"process_message": process_message, "dlq_publisher": lambda *_, **__: True}
    client.produce(name, [b'{"is": "old-%d"}' % number for number in range(OLD)])
    with Running("dict", kafka, name, **hooks) as running:
        running.wait_until(lambda: client.committed(group, name)[0] == OLD, "the old topic is done")
        kafka.delete_topic(name)
        kafka.create_topic(name)
        client.produce(name, [b'{"is": "new-%d"}' % number for number in range(NEW)])
        running.wait_until(lambda: new_ones(seen) == ALL_NEW, "every record of the new topic is processed")
        assert running.log.of("topic_recreated")
