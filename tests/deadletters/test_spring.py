"""The format `headers`, byte by byte as Spring Kafka writes its own."""

from __future__ import annotations

import struct

from keepfast.deadletters.reading import read
from keepfast.deadletters.writing import write
from tests.support.letters import filed, letter


def test_texts_are_utf_8_and_numbers_are_big_endian_of_4_and_8_bytes() -> None:
    value, headers = write(
        letter(
            headers=(("mine", b"\xff"),),
            partition=258,
            offset=2**40 + 3,
            timestamp_ms=1_700_000_000_000,
            error_cause="shop.Größe",
            error_message="no accöunt",
        ),
        "headers",
    )
    assert value == b'{"a":1}'
    assert headers[:11] == (
        ("mine", b"\xff"),
        ("kafka_dlt-original-topic", b"orders.payment.v1"),
        ("kafka_dlt-original-partition", b"\x00\x00\x01\x02"),
        ("kafka_dlt-original-offset", b"\x00\x00\x01\x00\x00\x00\x00\x03"),
        ("kafka_dlt-original-timestamp", b"\x00\x00\x01\x8b\xcf\xe5\x68\x00"),
        ("kafka_dlt-original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-original-consumer-group", b"payments.charge"),
        ("kafka_dlt-exception-fqcn", b"shop.errors.ValueError"),
        ("kafka_dlt-exception-cause-fqcn", b"shop.Gr\xc3\xb6\xc3\x9fe"),
        ("kafka_dlt-exception-message", b"no acc\xc3\xb6unt"),
        ("kafka_dlt-exception-stacktrace", b"Traceback \xe2\x80\xa6"),
    )
    assert all(name.startswith("keepfast-") for name, _ in headers[11:])
    reported = dict(headers[11:])
    assert reported["keepfast-letter-id"] == b"payments.charge/orders.payment.v1/258/1099511627779"
    assert reported["keepfast-error-code"] == b"RETRIES_EXHAUSTED"
    assert headers[-1] == ("keepfast-original-headers", b"1")


def test_no_timestamp_is_minus_one_as_in_java() -> None:
    _, headers = write(letter(timestamp_ms=None, timestamp_type="NoTimestampType"), "headers")
    assert ("kafka_dlt-original-timestamp", b"\xff" * 8) in headers
    assert ("kafka_dlt-original-timestamp-type", b"NoTimestampType") in headers
    found = read(filed(None, headers))
    assert (found.timestamp_ms, found.timestamp_type) == (None, "NoTimestampType")


def test_a_letter_that_spring_wrote_is_read() -> None:
    spring = (
        ("mine", b"1"),
        ("kafka_dlt-original-topic", b"deal.events"),
        ("kafka_dlt-original-partition", struct.pack(">i", 7)),
        ("kafka_dlt-original-offset", struct.pack(">q", 1_234_567)),
        ("kafka_dlt-original-timestamp", struct.pack(">q", 1_712_620_800_000)),
        ("kafka_dlt-original-timestamp-type", b"LogAppendTime"),
        ("kafka_dlt-original-consumer-group", b"cg-deal-events"),
        ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
        ("kafka_dlt-exception-cause-fqcn", b"java.lang.IllegalStateException"),
        ("kafka_dlt-exception-message", b"Listener failed; deal 17 is closed"),
        ("kafka_dlt-exception-stacktrace", b"java.lang.IllegalStateException: ...\n\tat ..."),
    )
    found = read(filed(b"\x00raw", spring, key=b"k"))
    assert (found.format, found.exact) == ("spring", True)
    assert (found.topic, found.partition, found.offset) == ("deal.events", 7, 1_234_567)
    assert (found.timestamp_ms, found.timestamp_type) == (1_712_620_800_000, "LogAppendTime")
    assert (found.key, found.value, found.headers) == (b"k", b"\x00raw", (("mine", b"1"),))
    assert (found.error_type, found.error_class) == ("IllegalStateException", "java.lang.IllegalStateException")
    assert found.id == "cg-deal-events/deal.events/7/1234567"
    assert found.fingerprint == read(filed(None, spring)).fingerprint != ""
