"""Reading ranges of topics without a group, on a real broker; and which groups read a topic."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from keepfast.core.errors import Fault, SourceError
from keepfast.core.records import Record
from keepfast.kafka import admin_properties
from keepfast.kafka.browser import KafkaBrowser, browser_properties
from keepfast.kafka.groups import KafkaGroups
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.members import connection
from tests.support.waiting import wait_until


@pytest.fixture
def browser(kafka: TopicAdmin) -> Iterator[KafkaBrowser]:
    browser = KafkaBrowser(browser_properties(connection(kafka.bootstrap)))
    yield browser
    browser.close()


def read_all(browser: KafkaBrowser, topic: str) -> list[Record]:
    return [record for record in browser.read(topic, browser.spans(topic, 10)) if record is not None]


def test_a_topic_is_read_from_its_first_to_its_last_record_and_again(
    kafka: TopicAdmin, topic: TopicFactory, browser: KafkaBrowser
) -> None:
    name = topic(partitions=3)
    Client(kafka).produce(name, [NewRecord(b"%d" % number, partition=number % 2) for number in range(2_000)])
    kafka.delete_records(name, partition=0, before=10)
    assert browser.spans(name, 10) == {0: (10, 1_000), 1: (0, 1_000), 2: (0, 0)}
    for _ in range(2):
        found = read_all(browser, name)
        assert len(found) == 1_990
        assert [record.offset for record in found if record.partition == 0] == list(range(10, 1_000))
    some = [record for record in browser.read(name, {0: (5, 12), 1: (998, 1_000)}) if record is not None]
    assert sorted((record.partition, record.offset) for record in some) == [(0, 10), (0, 11), (1, 998), (1, 999)]


def test_a_topic_that_ends_with_a_transaction_is_read_to_its_end(
    kafka: TopicAdmin, topic: TopicFactory, browser: KafkaBrowser
) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    for commits in (True, False):
        producer.begin_transaction()
        producer.produce(name, b"kept" if commits else b"aborted")
        producer.flush(10)
        producer.commit_transaction(30) if commits else producer.abort_transaction(30)
    # The coordinator writes its markers after it has answered.
    wait_until(lambda: browser.spans(name, 10)[0][1] == 4, "both markers are in the log")
    assert [record.value for record in read_all(browser, name)] == [b"kept"]


def test_a_topic_that_is_not_there_is_reported_as_missing(browser: KafkaBrowser) -> None:
    with pytest.raises(SourceError) as caught:
        browser.spans("no.such.topic", 10)
    assert caught.value.fault is Fault.MISSING


def test_groups_are_found_by_what_they_have_committed(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, other = topic(partitions=2), topic()
    client = Client(kafka)
    client.commit(f"one-{name}", name, 3, partition=1)
    client.commit(f"two-{name}", name, 0)
    client.commit(f"three-{name}", other, 0)
    groups = KafkaGroups(admin_properties(connection(kafka.bootstrap)))
    found = groups.reading({name, other, "unread"}, 60)  # the broker has the groups of other tests, too
    assert found == {name: {f"one-{name}", f"two-{name}"}, other: {f"three-{name}"}, "unread": set()}


def test_a_reader_that_takes_its_time_gets_to_the_end_behind_a_transaction_marker(
    kafka: TopicAdmin, topic: TopicFactory, browser: KafkaBrowser
) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"tx-{name}"})
    producer.init_transactions(20)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(name, b"%d" % number)
    producer.commit_transaction(20)
    spans = {0: (0, 4)}
    wait_until(lambda: browser.spans(name, 10) == spans, "the last offset is the marker's")
    found = []
    for record in browser.read(name, spans, silence_s=5.0):
        if record is not None:
            found.append(record.value)
            began = time.monotonic()
            wait_until(lambda began=began: time.monotonic() - began > 2.0, "the caller is slow, as one with a rate is")  # type: ignore[misc]
    assert found == [b"0", b"1", b"2"]
