"""What the conformance suite does not ask of kafka-python: raw bytes, races with its poll, what is refused."""

from __future__ import annotations

import ctypes
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.serializer import Deserializer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as ClientPlace

from keepfast.core.errors import ConfigError
from keepfast.core.ports import BEGINNING, Position
from keepfast.core.records import UNREADABLE_NAME, Message, TopicPartition, read_headers
from keepfast.kafka.kafka_python.source import KafkaPythonSource
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.members import GroupMember, connection, drive, kafka_member, new_group
from tests.support.waiting import wait_until
from tests.support.wire import produce_raw


class OldStyle(Deserializer):  # type: ignore[misc]
    """As deserialisers looked before version 3."""

    def deserialize(self, topic: str, data: bytes) -> Any:
        return topic, data


@pytest.fixture
def made(kafka: TopicAdmin) -> Iterator[list[KafkaConsumer]]:
    made: list[KafkaConsumer] = []
    yield made
    for consumer in made:
        consumer.close(autocommit=False, timeout_ms=1000)


def consumer(kafka: TopicAdmin, made: list[KafkaConsumer], **options: Any) -> KafkaConsumer:
    reported = {"bootstrap_servers": kafka.bootstrap, "group_id": "records", "enable_auto_commit": False, **options}
    made.append(KafkaConsumer(**reported))
    return made[-1]


def read(source: KafkaPythonSource, topic: str, count: int) -> list[Message]:
    GroupMember(source, topic, start=BEGINNING)
    found = collect(source, count)
    source.close()
    return found


def collect(source: KafkaPythonSource, count: int) -> list[Message]:
    found: list[Message] = []

    def read() -> None:
        one = source.poll(0.1)
        found.extend([one] if one is not None else [])
        found.extend(source.sweep(100))

    wait_until(lambda: len(found) >= count, f"{count} records", between=read)
    return found


def test_a_header_name_that_is_not_utf_8_wedges_nothing_and_becomes_a_placeholder(
    kafka: TopicAdmin, topic: TopicFactory, made: list[KafkaConsumer]
) -> None:
    name = topic()
    odd = [(b"plain", b"1"), (b"\xff\xfe", b"2"), (b"caf\xc3\xa9", None), (b"\xc3(", b"")]
    produce_raw(kafka.bootstrap, name, b"before")
    produce_raw(kafka.bootstrap, name, b"\x00\xff", key=b"\xfe", headers=odd)
    produce_raw(kafka.bootstrap, name, None, headers=[(b"\xff", None)])
    produce_raw(kafka.bootstrap, name, b"after")
    messages = read(KafkaPythonSource(consumer(kafka, made)), name, 4)
    assert [(m.offset(), m.key(), m.value(), len(m)) for m in messages] == [
        (0, None, b"before", 6),
        (1, b"\xfe", b"\x00\xff", 2),
        (2, None, None, 0),
        (3, None, b"after", 5),
    ]
    assert [list(read_headers(m)) for m in messages] == [
        [],
        [("plain", b"1"), (UNREADABLE_NAME, b"2"), ("café", None), (UNREADABLE_NAME, b"")],
        [(UNREADABLE_NAME, None)],
        [],
    ]
    assert all(m.timestamp()[0] == 1 and abs(m.timestamp()[1] / 1000 - time.time()) < 60 for m in messages)


def test_a_deserialiser_that_fails_wedges_nothing_and_the_bytes_are_as_they_were(
    kafka: TopicAdmin, topic: TopicFactory, made: list[KafkaConsumer]
) -> None:
    name = topic()
    produce_raw(kafka.bootstrap, name, b"{not json", key=b"\xff")
    produce_raw(kafka.bootstrap, name, b'{"a": 1}')
    with pytest.warns(DeprecationWarning, match="deserializer does not implement"):
        client = consumer(kafka, made, value_deserializer=json.loads, key_deserializer=lambda key: key.decode())
    source = KafkaPythonSource(client)
    messages = read(source, name, 2)
    assert [(m.key(), m.value()) for m in messages] == [(b"\xff", b"{not json"), (None, b'{"a": 1}')]
    assert source.adopted.value_deserialiser is not None
    assert source.adopted.value_deserialiser(name, [], b'{"a": 1}') == {"a": 1}


def test_what_a_poll_brings_that_was_under_way_when_its_partition_was_reset_is_not_handed_out(
    kafka: TopicAdmin, topic: TopicFactory, made: list[KafkaConsumer]
) -> None:
    name = topic()
    for number in range(50):
        produce_raw(kafka.bootstrap, name, b"%d" % number)
    source = KafkaPythonSource(consumer(kafka, made))
    GroupMember(source, name, start=BEGINNING)
    collect(source, 50)
    source.poll(0)
    assert source._thread is not None
    assert not source._thread.idle, "a poll is under way, at offset 50"
    source.reset(Position(TopicPartition(name, 0), 10))
    produce_raw(kafka.bootstrap, name, b"50")
    assert [message.offset() for message in collect(source, 41)] == list(range(10, 51))
    source.close()


@pytest.mark.timing
def test_a_poll_does_not_wait_for_a_record_when_the_answer_to_a_commit_is_there(
    kafka: TopicAdmin, topic: TopicFactory, made: list[KafkaConsumer]
) -> None:
    name = topic()
    produce_raw(kafka.bootstrap, name, b"0")
    source = KafkaPythonSource(consumer(kafka, made, group_id=new_group()))
    GroupMember(source, name, start=BEGINNING)
    collect(source, 1)
    waited_s = 0.0
    for number in range(10):
        source.commit([Position(TopicPartition(name, 0), 1, str(number))])
        time.sleep(0.1)  # the answer comes meanwhile
        while source._request is not None:
            begun = time.monotonic()
            source.poll(0.5)
            waited_s += time.monotonic() - begun
    source.close()
    assert waited_s < 10 * 0.5 / 2


def test_a_deserialiser_of_the_old_shape_can_still_be_called(kafka: TopicAdmin, made: list[KafkaConsumer]) -> None:
    source = KafkaPythonSource(consumer(kafka, made, value_deserializer=OldStyle()))
    assert source.adopted.value_deserialiser is not None
    assert source.adopted.value_deserialiser("orders", [], b"x") == ("orders", b"x")


def test_a_consumer_tells_what_it_was_made_with(kafka: TopicAdmin, made: list[KafkaConsumer]) -> None:
    client = consumer(kafka, made, group_id="billing", auto_offset_reset="earliest", max_poll_records=1)
    client.subscribe(["b", "a"])
    adopted = KafkaPythonSource(client).adopted
    assert (adopted.group, adopted.topics, adopted.reset) == ("billing", ("a", "b"), "earliest")
    assert (adopted.max_poll_records, adopted.value_deserialiser) == (1, None)


def test_a_consumer_that_commits_by_itself_or_has_no_group_is_refused_with_every_reason(
    kafka: TopicAdmin, made: list[KafkaConsumer]
) -> None:
    client = consumer(kafka, made, group_id=None, enable_auto_commit=True)
    with pytest.raises(ConfigError) as caught:
        KafkaPythonSource(client)
    by_itself, no_group = caught.value.problems
    assert "enable_auto_commit=False" in by_itself
    assert "group_id" in no_group


def test_a_version_whose_inside_is_not_known_is_refused(kafka: TopicAdmin, made: list[KafkaConsumer]) -> None:
    client = consumer(kafka, made)
    fetcher, client._fetcher = client._fetcher, None
    with pytest.raises(ConfigError, match="install kafka-python 3"):
        KafkaPythonSource(client)
    client._fetcher = fetcher


def member_of(kind: str, kafka: TopicAdmin, made: list[KafkaConsumer], topic: str, group: str) -> GroupMember:
    if kind == "kafka-python":
        return GroupMember(KafkaPythonSource(consumer(kafka, made, group_id=group)), topic)
    return kafka_member(connection(kafka.bootstrap), topic, group)


def fill_free_memory(byte: int) -> None:
    """So that whoever reads beyond the end of a small piece of memory finds these bytes."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    pieces = [(libc.malloc(size), size) for size in range(24, 120, 16) for _ in range(200)]
    for piece, size in pieces:
        ctypes.memset(piece, byte, size)
    for piece, _ in pieces:
        libc.free(piece)


@pytest.mark.parametrize(("writer", "reader"), [*itertools.permutations(["kafka-python", "confluent-kafka"])])
def test_the_text_of_a_commit_comes_back_whole_through_the_other_library(
    kafka: TopicAdmin, topic: TopicFactory, made: list[KafkaConsumer], writer: str, reader: str
) -> None:
    name, group = topic(partitions=40), new_group()
    sent = [Position(TopicPartition(name, number), 1, "x" * number) for number in range(40)]
    with member_of(writer, kafka, made, name, group) as member:
        drive([member], lambda: len(member.owned) == 40)
        member.source.commit(sent)
        drive([member], lambda: member.outcomes)
        assert member.outcomes[0].failed == ()
    with member_of(reader, kafka, made, name, group) as member:
        fill_free_memory(ord("y"))
        found = member.source.committed([one.place for one in sent], 30.0)
    assert {one.place: one.metadata for one in found} == {one.place: one.metadata for one in sent}


def test_the_text_of_a_strangers_commit_stops_nothing(
    kafka: TopicAdmin, topic: TopicFactory, made: list[KafkaConsumer]
) -> None:
    """confluent-kafka reads beyond the end of a text that another library wrote; what it finds may not be UTF-8."""
    name, group = topic(partitions=40), new_group()
    places = [TopicPartition(name, number) for number in range(40)]
    stranger = consumer(kafka, made, group_id=group)
    stranger.assign([ClientPlace(*place) for place in places])
    stranger.commit({ClientPlace(*place): OffsetAndMetadata(7, "x" * place.partition, -1) for place in places})
    with member_of("confluent-kafka", kafka, made, name, group) as member:
        fill_free_memory(0xFF)
        found = member.source.committed(places, 30.0)
    assert {one.place: one.offset for one in found} == dict.fromkeys(places, 7)
