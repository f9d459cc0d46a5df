"""Conformance of sinks: every send is answered exactly once, and truthfully."""

from __future__ import annotations

import time

import pytest

from keepfast.core.errors import Fault, SinkError
from keepfast.core.ports import Sink
from keepfast.core.records import Outgoing, Receipt, TopicPartition
from tests.conformance.backend import Backend
from tests.conformance.member import Member
from tests.support.members import drive

Answers = list[Receipt | SinkError]


@pytest.fixture
def sink(backend: Backend) -> Sink:
    return backend.sink()


def send(backend: Backend, sink: Sink, outgoing: Outgoing) -> Receipt | SinkError:
    answers: Answers = []
    sink.send(outgoing, answers.append)
    assert backend.until(lambda: answers, 60)
    return answers[0]


def test_an_acknowledged_record_is_there_with_all_its_bytes(backend: Backend, sink: Sink) -> None:
    place = TopicPartition(backend.topic(partitions=3), 2)
    headers = [("a", b"\x00\xff"), ("a", b"2"), ("b", b"")]
    minute_ago_ms = int((time.time() - 60) * 1000)  # much older, and the topic's retention would take it away
    outgoing = Outgoing(place.topic, b"v\x00", b"k", headers, place.partition, minute_ago_ms)
    assert send(backend, sink, outgoing) == Receipt(place.topic, 2, 0)
    member = Member(backend, backend.group(), place.topic)
    drive([member], lambda: member.records)
    (message,) = member.records
    assert (message.key(), message.value(), message.headers()) == (b"k", b"v\x00", headers)
    assert message.timestamp() == (1, minute_ago_ms)


@pytest.mark.needs("null headers")
def test_headers_without_a_value_are_kept(backend: Backend, sink: Sink) -> None:
    topic, headers = backend.topic(), [("a", None), ("a", b""), ("b", None)]
    assert isinstance(send(backend, sink, Outgoing(topic, b"v", headers=headers)), Receipt)
    member = Member(backend, backend.group(), topic)
    drive([member], lambda: member.records)
    assert member.records[0].headers() == headers


@pytest.mark.needs("records of nothing")
def test_a_tombstone_and_a_null_key_are_kept(backend: Backend, sink: Sink) -> None:
    topic = backend.topic()
    assert isinstance(send(backend, sink, Outgoing(topic, None)), Receipt)
    member = Member(backend, backend.group(), topic)
    drive([member], lambda: member.records)
    assert (member.records[0].key(), member.records[0].value()) == (None, None)


def test_every_send_is_answered_exactly_once_in_the_order_of_its_partition(backend: Backend, sink: Sink) -> None:
    topic = backend.topic()
    answers: list[Answers] = [[] for _ in range(200)]
    for number, mine in enumerate(answers):
        sink.send(Outgoing(topic, b"%d" % number, partition=0), mine.append)
    assert backend.until(lambda: all(answers), 60)
    sink.close(10.0)
    assert [mine for mine in answers if len(mine) != 1] == []
    offsets = [mine[0].offset for mine in answers if isinstance(mine[0], Receipt)]
    assert offsets == list(range(200))


def test_a_key_always_goes_to_the_same_partition(backend: Backend, sink: Sink) -> None:
    topic = backend.topic(partitions=5)
    for key in (b"a", b"b", b"", b"\xff\x00"):
        receipts = [send(backend, sink, Outgoing(topic, b"v", key)) for _ in range(3)]
        assert len({r.partition for r in receipts if isinstance(r, Receipt)}) == 1


def test_a_record_that_is_too_large_is_refused_as_such(backend: Backend, sink: Sink) -> None:
    topic = backend.topic()
    answer = send(backend, sink, Outgoing(topic, b"x" * 3_000_000))
    assert isinstance(answer, SinkError)
    assert answer.fault is Fault.TOO_LARGE


@pytest.mark.needs("going on after a record too large")
def test_after_a_record_that_is_too_large_others_are_sent(backend: Backend, sink: Sink) -> None:
    topic = backend.topic()
    assert isinstance(send(backend, sink, Outgoing(topic, b"x" * 3_000_000)), SinkError)
    assert isinstance(send(backend, sink, Outgoing(topic, b"small")), Receipt)


@pytest.mark.needs("missing topics")
def test_a_missing_topic_is_reported_as_missing(backend: Backend, sink: Sink) -> None:
    answer = send(backend, sink, Outgoing(backend.missing_topic(), b"v"))
    assert isinstance(answer, SinkError)
    assert answer.fault is Fault.MISSING


def test_a_partition_that_does_not_exist_is_reported_as_missing(backend: Backend, sink: Sink) -> None:
    answer = send(backend, sink, Outgoing(backend.topic(partitions=2), b"v", partition=7))
    assert isinstance(answer, SinkError)
    assert answer.fault is Fault.MISSING


def test_close_flushes_what_is_under_way(backend: Backend, sink: Sink) -> None:
    topic = backend.topic()
    answers: Answers = []
    for number in range(50):
        sink.send(Outgoing(topic, b"%d" % number), answers.append)
    sink.close(30.0)
    assert [type(answer) for answer in answers] == [Receipt] * 50
