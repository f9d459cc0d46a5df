"""Headers as others may send them; headers are foreign input."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Producer

from keepfast.core.records import UNREADABLE_NAME, Record, read_headers
from keepfast.testing.broker import KafkaBroker
from tests.support.members import GroupMember, drive, new_group
from tests.support.wire import produce_raw

Join = Callable[..., GroupMember]
Topic = Callable[..., str]


def test_a_name_that_is_not_utf_8_neither_crashes_nor_hides_the_others(
    kafka: KafkaBroker, topic: Topic, join: Join
) -> None:
    name = topic(config={"message.timestamp.after.max.ms": str(2**62)})
    produce_raw(kafka.bootstrap, name, b"v", headers=[(b"ok", b"1"), (b"\xff\xfe", b"2"), (b"after", b"")])
    member = join(name, new_group())
    drive([member], lambda: member.records)
    (message,) = member.records
    expected = [("ok", b"1"), (UNREADABLE_NAME, b"2"), ("after", b"")]
    assert list(read_headers(message)) == expected
    assert list(read_headers(message)) == expected
    record = Record.of(message)
    assert (record.value, record.headers) == (b"v", tuple(expected))


def test_values_of_any_bytes_and_names_that_repeat_are_kept_in_order(
    kafka: KafkaBroker, topic: Topic, join: Join
) -> None:
    name = topic()
    headers: list[tuple[str, str | bytes | None]] = [
        ("a", b"\xff\xfe"),
        ("a", None),
        ("a", b""),
        ("ü", b"2"),
        ("", b"x"),
    ]
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(name, value=b"v", headers=headers)
    producer.produce(name, value=b"none")
    assert producer.flush(30) == 0
    member = join(name, new_group())
    drive([member], lambda: len(member.records) == 2)
    assert list(read_headers(member.records[0])) == headers
    assert list(read_headers(member.records[1])) == []


def test_tombstones_and_empty_values_come_out_of_poll_and_sweep(kafka: KafkaBroker, topic: Topic, join: Join) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(20):
        producer.produce(name, value=None if number % 2 else b"")
    assert producer.flush(30) == 0
    member = join(name, new_group())
    drive([member], lambda: len(member.records) == 20)
    assert [record.value() for record in member.records] == [b"", None] * 10
    assert {len(record) for record in member.records} == {0}
