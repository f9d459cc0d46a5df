"""Letters that other programs wrote, and letters that lie."""

from __future__ import annotations

import json

import pytest

from keepfast.core.policies import LETTER_FORMATS
from keepfast.core.records import Headers
from keepfast.deadletters.reading import read
from keepfast.deadletters.writing import write
from tests.support.letters import filed, letter

CONNECT: Headers = (
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"2"),
    ("__connect.errors.offset", b"41"),
    ("__connect.errors.connector.name", b"sink"),
    ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
    ("__connect.errors.exception.message", b"bad schema"),
    ("__connect.errors.exception.stacktrace", b"org...: bad schema\n\tat x"),
)
STREAMS: Headers = (
    ("__streams.errors.exception", b"java.lang.RuntimeException: bad 17"),
    ("__streams.errors.message", b"bad 17"),
    ("__streams.errors.stacktrace", b"java..."),
    ("__streams.errors.topic", b"orders"),
    ("__streams.errors.partition", b"2"),
    ("__streams.errors.offset", b"41"),
)
SHARE: Headers = (
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"2"),
    ("__dlq.errors.offset", b"41"),
    ("__dlq.errors.group", b"workers"),
    ("__dlq.errors.delivery.count", b"5"),
    ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
)


@pytest.mark.parametrize(
    ("headers", "form", "error_type", "group", "retries"),
    [
        (CONNECT, "connect", "DataException", "connect-sink", 0),
        (STREAMS, "streams", "RuntimeException", "", 0),
        (SHARE, "share", "", "workers", 4),
    ],
    ids=["connect", "streams", "share"],
)
def test_letters_of_kafkas_own_programs_are_read(
    headers: Headers, form: str, error_type: str, group: str, retries: int
) -> None:
    found = read(filed(b"\xff", (("mine", None), *headers), key=b"k"))
    assert (found.format, found.topic, found.partition, found.offset) == (form, "orders", 2, 41)
    assert (found.error_type, found.group, found.retry_count) == (error_type, group, retries)
    assert (found.key, found.value, found.headers, found.exact) == (b"k", b"\xff", (("mine", None),), True)
    assert found.error_message.startswith(("bad", "Offset"))


@pytest.mark.parametrize(
    ("value", "kept"),
    [({"b": 1, "a": [1.5]}, b'{"b":1,"a":[1.5]}'), ("text", b"text"), (None, None), (7, b"7")],
)
def test_a_json_letter_that_does_not_say_how_it_was_encoded_is_not_exact(value: object, kept: bytes | None) -> None:
    flat = {
        "original_message": value,
        "error_type": "ValueError",
        "error_message": "Invalid bacen_cod_inst format",
        "failed_at": "2024-01-01T00:00:00Z",
        "retry_count": 3,
        "error_classification": "non-retryable",
    }
    found = read(filed(json.dumps(flat).encode(), ()))
    assert (found.format, found.value, found.exact) == ("envelope", kept, False)
    assert (found.failed_at_ms, found.retry_count, found.topic) == (1_704_067_200_000, 3, None)


def test_a_nested_letter_of_another_program_is_read() -> None:
    fields = {
        "original_message": {"transaction_id": None},
        "error": {"type": "ValidationError", "message": "required", "timestamp": "2026-01-27T10:30:00Z"},
        "metadata": {
            "original_topic": "fraud.card.decisions.v1",
            "original_partition": 0,
            "original_offset": 12345,
            "consumer_group": "card-fraud-transaction-management.prod",
        },
    }
    found = read(filed(json.dumps(fields).encode(), ()))
    assert (found.format, found.exact) == ("nested", False)
    assert found.id == "card-fraud-transaction-management.prod/fraud.card.decisions.v1/0/12345"
    assert (found.error_type, found.error_message) == ("ValidationError", "required")


def test_a_record_that_is_no_letter_is_kept_as_it_is() -> None:
    for value in (None, b"", b"{", b"[]", b'{"a":1}', b"\xff", b'"original_message"', b"{" * 100_000):
        found = read(filed(value, (("mine", b"1"),), key=b"k"))
        assert (found.format, found.id, found.value, found.headers) == ("unknown", "", value, (("mine", b"1"),))


def test_what_a_producer_forges_is_overruled_by_the_writer_of_the_letter() -> None:
    """A payload that looks like a letter, and headers of every family, on a record dead-lettered afterwards."""
    payload = write(letter(topic="secrets"), "envelope")[0]
    forged: Headers = (
        *CONNECT,
        *STREAMS,
        ("kafka_dlt-original-topic", b"secrets"),
        ("keepfast-letter-id", b"g/secrets/0/0"),
    )
    for family in (CONNECT, STREAMS, SHARE, (("kafka_dlt-original-topic", b"orders"),)):
        assert read(filed(payload, (*forged, *family))).topic == "orders"
    kept = tuple(pair for pair in forged if not pair[0].startswith("keepfast-"))
    for form in LETTER_FORMATS:
        value, headers = write(letter(value=payload, headers=kept), form)
        found = read(filed(value, headers))
        assert (found.topic, found.value, found.headers) == ("orders.payment.v1", payload, kept)


@pytest.mark.parametrize(
    "bad",
    [
        {"original_topic": 7},
        {"original_topic": "../etc"},
        {"original_topic": "a" * 250},
        {"original_partition": -1},
        {"original_partition": 2**31},
        {"original_partition": True},
        {"original_offset": "17"},
        {"original_offset": 1.0},
        {"original_offset": 2**63},
    ],
    ids=str,
)
def test_an_origin_that_cannot_be_is_absent(bad: dict[str, object]) -> None:
    good = json.loads(write(letter(), "envelope")[0] or b"")
    found = read(filed(json.dumps(good | bad).encode(), ()))
    [name] = bad
    assert getattr(found, name.removeprefix("original_")) is None
    assert found.id == ""
    assert (found.format, found.value) == ("envelope", b'{"a":1}')


@pytest.mark.parametrize(
    "bad",
    [
        {"attempts": {}},
        {"attempts": [1, None, {}, {"at": 3}, {"at": "x"}, [], {"at": "2024-01-01", "error_type": 7}] * 100},
        {"failed_at": 1e300},
        {"failed_at": "0001-01-01T00:00:00+23:59"},
        {"failed_at": "9999-12-31T23:59:59-23:59"},
        {"retry_count": -1, "replay_count": 10**30},
        {"error_type": [], "error_message": 3, "stack_trace": {}, "reason": None},
        {"original_encoding": "base64", "original_message": "!"},
        {"original_encoding": "base64", "original_message": "é"},
        {"original_encoding": "json", "original_message": "\ud800"},
        {"original_encoding": "null"},
        {"original_encoding": []},
    ],
    ids=str,
)
def test_nonsense_in_a_field_costs_that_field_alone(bad: dict[str, object]) -> None:
    good = json.loads(write(letter(), "envelope")[0] or b"")
    found = read(filed(json.dumps(good | bad).encode(), ()))
    assert found.id == letter().id
    assert found.group == "payments.charge"
    assert len(found.attempts) <= 50
