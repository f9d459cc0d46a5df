"""The sink on a real broker: what the conformance suite does not ask of every sink."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import TypeVar

import pytest

from keepfast.core.errors import Fault, SinkError
from keepfast.core.records import Outgoing, Receipt
from keepfast.kafka import KafkaSink, Producing, sink_properties
from keepfast.testing.broker import KafkaBroker
from tests.support.members import connection
from tests.support.new_leader import LateLeader
from tests.support.waiting import DEADLINE_S, wait_until

Answer = Receipt | SinkError
Topic = Callable[..., str]
T = TypeVar("T", int, bytes)


@pytest.fixture
def sink(kafka: KafkaBroker) -> Iterator[KafkaSink]:
    sink = KafkaSink(sink_properties(connection(kafka.bootstrap), Producing(delivery_timeout_ms=3_000)))
    yield sink
    sink.close(5.0)


def _note(answers: dict[T, list[Answer]], key: T, answer: Answer) -> None:
    answers.setdefault(key, []).append(answer)


def _wake(event: threading.Event, _: Answer) -> None:
    event.set()


def behind(late: LateLeader, **other: int) -> list[Answer]:
    """What becomes of three batches of one record each."""
    answers: dict[int, list[Answer]] = {}
    sink = KafkaSink(sink_properties(connection(late.address)) | {"batch.num.messages": 1, **other})
    for number in range(3):
        sink.send(Outgoing(late.topic, b"%d" % number, partition=0), partial(_note, answers, number))
    wait_until(lambda: len(answers) == 3, "each has its answer")
    sink.close(5.0)
    late.close()
    assert late.refused == 1
    return [answer for number in range(3) for answer in answers[number]]


def narrow(kafka: KafkaBroker, records: int) -> KafkaSink:
    """A sink whose client's queue holds only so many records."""
    properties = sink_properties(connection(kafka.bootstrap))
    return KafkaSink(properties | {"queue.buffering.max.messages": records})


@pytest.mark.timing
def test_when_the_clients_queue_is_full_records_wait_and_keep_their_order(kafka: KafkaBroker, topic: Topic) -> None:
    name = topic()
    sink = narrow(kafka, 10)
    answers: dict[int, list[Answer]] = {}
    began = time.monotonic()
    for number in range(2_000):
        sink.send(Outgoing(name, b"%d" % number, partition=0), partial(_note, answers, number))
    assert time.monotonic() - began < 1.0
    sink.close(30.0)
    offsets = {number: [getattr(answer, "offset", None) for answer in mine] for number, mine in answers.items()}
    assert offsets == {number: [number] for number in range(2_000)}


def test_a_key_goes_where_javas_producer_sends_it(topic: Topic, sink: KafkaSink) -> None:
    """The hashes are those of Java's Utils.murmur2."""
    name = topic(partitions=7)
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    answers: dict[bytes, list[Answer]] = {}
    for key in hashes:
        sink.send(Outgoing(name, b"v", key), partial(_note, answers, key))
    wait_until(lambda: len(answers) == 3)
    got = {key: mine[0].partition for key, mine in answers.items() if isinstance(mine[0], Receipt)}
    assert got == {key: (value & 0x7FFFFFFF) % 7 for key, value in hashes.items()}


def test_a_record_of_10_mb_is_delivered(topic: Topic, sink: KafkaSink) -> None:
    answers: list[Answer] = []
    sink.send(Outgoing(topic(), b"x" * 10_000_000), answers.append)
    wait_until(lambda: answers)
    assert isinstance(answers[0], Receipt)


def test_a_record_that_the_client_itself_finds_too_large_is_answered_so(topic: Topic, sink: KafkaSink) -> None:
    answers: list[Answer] = []
    sink.send(Outgoing(topic(), bytes(110_000_000)), answers.append)
    (answer,) = answers
    assert isinstance(answer, SinkError)
    assert answer.fault is Fault.TOO_LARGE


@pytest.mark.timing
def test_when_the_broker_is_frozen_the_record_fails_in_time_and_the_caller_never_waits(
    kafka: KafkaBroker, topic: Topic, sink: KafkaSink
) -> None:
    name = topic()
    answers: list[Answer] = []
    sink.send(Outgoing(name, b"first"), answers.append)
    wait_until(lambda: answers)
    kafka.pause()
    try:
        began = time.monotonic()
        sink.send(Outgoing(name, b"second"), answers.append)
        assert time.monotonic() - began < 0.2
        wait_until(lambda: len(answers) == 2)
    finally:
        kafka.resume()
        kafka.wait_ready()
    assert isinstance(answers[1], SinkError)
    assert answers[1].fault is Fault.RETRY
    sink.send(Outgoing(name, b"third"), answers.append)
    wait_until(lambda: len(answers) == 3)
    assert isinstance(answers[2], Receipt)


@pytest.mark.timing
def test_close_is_over_in_time_on_a_frozen_broker_and_answers_everything(kafka: KafkaBroker, topic: Topic) -> None:
    name = topic()
    sink = narrow(kafka, 5)
    answers: list[Answer] = []
    sink.send(Outgoing(name, b"first"), answers.append)
    wait_until(lambda: answers)
    kafka.pause()
    try:
        for _ in range(20):
            sink.send(Outgoing(name, b"v"), answers.append)
        began = time.monotonic()
        sink.close(1.0)
        assert time.monotonic() - began < 3.0
    finally:
        kafka.resume()
        kafka.wait_ready()
    assert len(answers) == 21
    assert {(type(answer), getattr(answer, "fault", None)) for answer in answers[1:]} == {(SinkError, Fault.RETRY)}


def test_after_close_a_record_is_answered_as_not_sent(topic: Topic, sink: KafkaSink) -> None:
    sink.close(1.0)
    answers: list[Answer] = []
    sink.send(Outgoing(topic(), b"v"), answers.append)
    assert isinstance(answers[0], SinkError)


def test_a_callback_that_raises_hurts_no_other_record(topic: Topic, sink: KafkaSink) -> None:
    name = topic()
    answers: list[Answer] = []

    def fail(answer: Answer) -> None:
        raise LookupError("from the callback")

    for number in range(10):
        sink.send(Outgoing(name, b"v"), fail if number % 2 else answers.append)
    wait_until(lambda: len(answers) == 5)


def test_what_cannot_be_sent_at_all_is_an_answer_not_an_exception(topic: Topic, sink: KafkaSink) -> None:
    answers: list[Answer] = []
    sink.send(Outgoing(topic(), 5), answers.append)  # type: ignore[arg-type]
    assert isinstance(answers[0], SinkError)


def test_properties_that_the_client_does_not_take_are_an_answer() -> None:
    answers: list[Answer] = []
    KafkaSink({"no.such.property": 1}).send(Outgoing("t", b"v"), answers.append)
    assert isinstance(answers[0], SinkError)
    assert answers[0].fault is Fault.FATAL


def test_a_first_batch_that_comes_before_its_partition_has_a_leader_is_sent_again(
    kafka: KafkaBroker, topic: Topic
) -> None:
    late = LateLeader(kafka.bootstrap, topic())
    assert behind(late) == [Receipt(late.topic, 0, offset) for offset in range(3)]


def test_a_record_that_is_reported_as_delivered_without_a_place_is_not_delivered(
    kafka: KafkaBroker, topic: Topic
) -> None:
    late = LateLeader(kafka.bootstrap, topic())
    first, *others = behind(late, **{"max.in.flight": 5})
    assert isinstance(first, SinkError)
    assert (first.code, first.fault) == ("UNCONFIRMED", Fault.RETRY)
    assert others == [Receipt(late.topic, 0, 0), Receipt(late.topic, 0, 1)], "these are there, and the first is not"


def test_many_threads_may_send(topic: Topic, sink: KafkaSink) -> None:
    name = topic(partitions=3)
    answers: list[Answer] = []

    def send() -> None:
        for _ in range(200):
            sink.send(Outgoing(name, b"v"), answers.append)

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: len(answers) == 1_600)
    assert {type(answer) for answer in answers} == {Receipt}


@pytest.mark.timing
def test_a_single_record_is_acknowledged_within_milliseconds(topic: Topic, sink: KafkaSink) -> None:
    name = topic()
    took_s = []
    for _ in range(50):
        acknowledged = threading.Event()
        began = time.perf_counter()
        sink.send(Outgoing(name, b"v" * 500), partial(_wake, acknowledged))
        assert acknowledged.wait(DEADLINE_S)
        took_s.append(time.perf_counter() - began)
    assert median(took_s) < 0.05


def test_innocent_records_in_a_batch_that_is_too_large_are_delivered(kafka: KafkaBroker, topic: Topic) -> None:
    name = topic(config={"max.message.bytes": "5000"})
    properties = sink_properties(connection(kafka.bootstrap), Producing(linger_ms=200))
    sink = KafkaSink(properties)
    answers: dict[int, list[Answer]] = {}
    for number in range(20):
        size = 9_000 if number == 7 else 400
        sink.send(Outgoing(name, b"%02d" % number + bytes(size), partition=0), partial(_note, answers, number))
    wait_until(lambda: sum(map(len, answers.values())) == 20)
    sink.close(5.0)
    assert {number: type(mine[0]) for number, mine in answers.items()} == {
        number: SinkError if number == 7 else Receipt for number in range(20)
    }
    (refused,) = answers[7]
    assert isinstance(refused, SinkError)
    assert refused.fault is Fault.TOO_LARGE


def gapless(kafka: KafkaBroker) -> KafkaSink:
    """A sink whose client fails for good as soon as the broker refuses a batch."""
    properties = sink_properties(connection(kafka.bootstrap), Producing(linger_ms=100))
    return KafkaSink(properties | {"enable.gapless.guarantee": True})


def test_a_client_that_failed_for_good_is_replaced_and_what_it_had_is_sent_again(
    kafka: KafkaBroker, topic: Topic
) -> None:
    strict, easy = topic(config={"max.message.bytes": "5000"}), topic()
    sink = gapless(kafka)
    answers: dict[int, list[Answer]] = {}
    sink.send(Outgoing(easy, b"first"), partial(_note, answers, 0))
    wait_until(lambda: 0 in answers)
    sink.send(Outgoing(strict, bytes(9_000)), partial(_note, answers, 1))
    for number in range(2, 10):
        sink.send(Outgoing(easy, b"beside it"), partial(_note, answers, number))
    wait_until(lambda: len(answers) == 10)
    assert {number for number, mine in answers.items() if not isinstance(mine[0], Receipt)} == {1}

    def goes_through() -> bool:
        reported: list[Answer] = []
        sink.send(Outgoing(easy, b"after it"), reported.append)
        wait_until(lambda: reported)
        return isinstance(reported[0], Receipt)

    wait_until(goes_through)
    sink.close(5.0)
    assert {len(mine) for mine in answers.values()} == {1}, "each is answered once"
