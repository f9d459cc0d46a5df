"""The letter: strict JSON whatever went wrong, with the original bytes exactly."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.errors import Reject
from holdfast.core.partitions import Partition
from holdfast.core.ports import Delivery, Outgoing
from holdfast.core.records import Headers, Record, TopicPartition
from holdfast.core.runs import Attempt, Case
from holdfast.core.verdicts import Bury
from holdfast.deadletter.envelope import DEEPEST, Diagnosis, envelope, letter_id
from holdfast.deadletter.publisher import LONGEST_MESSAGE, Publisher
from holdfast.testing.simulator.log import FakeMessage

PLACE = TopicPartition("orders.payment.v1", 3)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
any_text = st.text(st.characters(exclude_categories=()))  # unpaired surrogates too


def record(value: bytes | None, **fields: Any) -> Record:
    known: dict[str, Any] = {"topic": PLACE.topic, "partition": 3, "offset": 17, "key": b"k", "headers": ()}
    return Record(**{**known, "timestamp_ms": 1_700_000_000_000, "value": value, **fields})


def diagnosis(**fields: Any) -> Diagnosis:
    known: dict[str, Any] = {
        "error_type": "ValueError",
        "error_message": "no account",
        "stack_trace": "Traceback …",
        "classification": "retryable",
        "code": "RETRIES_EXHAUSTED",
        "reason": "failed 2 times",
        "attempts": ((1_700_000_000.0, "TimeoutError"), (1_700_000_001.5, "ValueError")),
        "group": "payments.charge",
        "handler": "app:charge",
        "app_version": "1.2.3",
    }
    return Diagnosis(**{**known, **fields})


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def read(letter: bytes) -> dict[str, Any]:
    """Strictly: UTF-8, no constants of JavaScript, no name twice, no half of a surrogate pair, by two parsers."""
    fields: dict[str, Any] = json.loads(
        letter.decode("utf-8"), parse_constant=no_constant, object_pairs_hook=no_duplicates
    )
    assert msgspec.json.decode(letter)["id"] == fields["id"]
    return fields


def original(fields: dict[str, Any]) -> bytes | None:
    """As whoever replays the letter gets the value back."""
    match fields["original_encoding"]:
        case "null":
            assert fields["original_message"] is None
            return None
        case "base64":
            return b64decode(fields["original_message"], validate=True)
        case "json":
            return json.dumps(fields["original_message"], ensure_ascii=False, separators=(",", ":")).encode()
        case other:
            raise AssertionError(other)


def assert_kept(value: bytes | None) -> str:
    """The original comes back byte for byte; says how it travelled."""
    fields = read(envelope(record(value), diagnosis()))
    assert original(fields) == value
    return str(fields["original_encoding"])


@given(st.binary())
@example(b"")
@example(b"\xff\xfe{\x00}\x00")
@example(b"\xef\xbb\xbf{}")
@example(b'"\xed\xa0\x80"')
def test_any_bytes_come_back(value: bytes) -> None:
    assert_kept(value)


@given(
    json_values, st.booleans(), st.sampled_from([(",", ":"), (", ", ": "), (" ,", ":  ")]), st.sampled_from([None, 2])
)
def test_any_json_comes_back_however_it_is_spaced(
    value: object, ascii_only: bool, separators: tuple[str, str], indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, separators=separators, indent=indent)
    assert_kept(text.encode("utf-8", "surrogatepass"))


@given(json_values)
def test_compact_json_stays_readable(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    assert assert_kept(text) == "json"


@given(any_text)
def test_any_text_between_quotes_comes_back(text: str) -> None:
    assert_kept(f'{{"name":"{text}"}}'.encode("utf-8", "surrogatepass"))


@given(st.text('0123456789.eE+-[]{},:"\\ntfu \t', max_size=30))
def test_what_looks_like_json_comes_back(text: str) -> None:
    assert_kept(text.encode())


@pytest.mark.parametrize(
    "value",
    [
        b"NaN",
        b"[Infinity,-Infinity]",
        b'{"a":1,"a":2}',
        b'{"a": 1}',
        b" 1",
        b"1\n",
        b"-0",
        b"1.0e2",
        b"1e400",
        b"0.10",
        b"100000000000000000000000.0",
        b'"\\u00e9"',
        b'"\\ud83d\\ude00"',
        b'"\\ud83d"',
        b'"\\/"',
        b'"\\u007f"',
        "\u20ac".encode("utf-16"),
        '"a"'.encode("utf-16-le"),
        '"a"'.encode("utf-32-be"),
        b"1" * 5_000,
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=lambda value: repr(value[:20]),
)
def test_what_json_cannot_give_back_exactly_travels_as_base64(value: bytes) -> None:
    assert assert_kept(value) == "base64"


@pytest.mark.parametrize(
    "value",
    [
        b"null",
        b"true",
        b"1",
        b"-1.5",
        b"1e+16",
        b"123456789012345678901234567890",
        b'""',
        b"[]",
        b"{}",
        '"é€😀"'.encode(),
    ],
)
def test_what_json_gives_back_exactly_travels_as_json(value: bytes) -> None:
    assert assert_kept(value) == "json"


def test_a_null_value_and_the_json_null_are_told_apart() -> None:
    assert assert_kept(None) == "null"
    assert assert_kept(b"null") == "json"
    assert assert_kept(b"") == "base64"


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_every_depth_of_nesting_makes_a_letter_and_deep_ones_do_not_strain_parsers(
    opening: bytes, closing: bytes
) -> None:
    # Interpreters give up at different depths, and encoding gives up later than decoding: look at all of them.
    for depth in [*range(1, 60), *range(900, 1_010), *range(1_470, 1_530), *range(9_980, 10_010)]:
        value = opening * depth + (b"1" if closing == b"}" else b"") + closing * depth
        assert assert_kept(value) == ("json" if depth < DEEPEST or (closing == b"]" and depth == DEEPEST) else "base64")


@given(message=any_text, stack=any_text, reason=any_text, code=any_text, error_type=any_text)
@example(message="\ud83d", stack='\\"\udcff', reason="\x00\x1f", code="\u2028", error_type="\U0010ffff")
def test_whatever_an_error_says_the_letter_is_strict_json(
    message: str, stack: str, reason: str, code: str, error_type: str
) -> None:
    said = diagnosis(
        error_message=message,
        stack_trace=stack,
        reason=reason,
        code=code,
        error_type=error_type,
        attempts=((0.0, error_type),),
    )
    fields = read(envelope(record(b'{"a":1}'), said))
    assert original(fields) == b'{"a":1}'
    for name, text in [("error_message", message), ("stack_trace", stack), ("reason", reason), ("error_code", code)]:
        assert fields[name] == text.encode("utf-8", "replace").decode()


def test_a_letter_says_what_where_and_why() -> None:
    assert read(envelope(record(b"1"), diagnosis())) == {
        "version": 1,
        "id": "payments.charge/orders.payment.v1/3/17",
        "original_message": 1,
        "original_encoding": "json",
        "error_type": "ValueError",
        "error_message": "no account",
        "error_code": "RETRIES_EXHAUSTED",
        "error_classification": "retryable",
        "reason": "failed 2 times",
        "failed_at": "2023-11-14T22:13:21.500Z",
        "retry_count": 1,
        "attempts": [
            {"at": "2023-11-14T22:13:20.000Z", "error_type": "TimeoutError"},
            {"at": "2023-11-14T22:13:21.500Z", "error_type": "ValueError"},
        ],
        "original_topic": "orders.payment.v1",
        "original_partition": 3,
        "original_offset": 17,
        "original_timestamp": 1_700_000_000_000,
        "consumer_group": "payments.charge",
        "handler": "app:charge",
        "app_version": "1.2.3",
        "stack_trace": "Traceback …",
    }


def test_a_record_without_a_timestamp_says_so() -> None:
    assert read(envelope(record(b"1", timestamp_ms=None), diagnosis()))["original_timestamp"] is None


# -- the publisher, which builds letters from cases


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class SinkThatKeeps:
    """Implements `core.ports.Sink`."""

    def __init__(self) -> None:
        self.sent: list[tuple[Outgoing, Delivery]] = []

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        self.sent.append((outgoing, delivered))

    def close(self, timeout_s: float) -> None: ...


def publisher(sink: SinkThatKeeps | None = None, *, partitions: int = 12) -> Publisher:
    return Publisher(
        sink or SinkThatKeeps(),
        topics={PLACE.topic: "orders.payment.dlq"},
        partitions={"orders.payment.dlq": partitions},
        group="g",
        handler="app:charge",
        app_version="1",
    )


def case_of(value: bytes | None, *, key: bytes | None = b"k", headers: Headers = ()) -> Case:
    partition = Partition(PLACE, epoch=1, start=0)
    message = FakeMessage(PLACE, 17, key=key, value=value, headers=headers, timestamp_ms=5)
    case = Case(partition, 0, message, (), 0.0)
    case.attempts.append(Attempt(1_700_000_000.0, "ValueError"))
    return case


@given(
    value=st.none() | st.binary(),
    key=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(), st.none() | st.binary()), max_size=4),
)
def test_key_value_and_headers_of_a_letter_are_the_originals_and_ours_come_last(
    value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    letter = publisher().letter(case_of(value, key=key, headers=headers), ValueError(), Bury("why", "CODE"))
    assert (letter.topic, letter.partition, letter.key) == ("orders.payment.dlq", 3, key)
    assert list(letter.headers)[: len(headers)] == headers
    assert list(letter.headers)[len(headers) :] == [
        ("holdfast-letter-id", b"g/orders.payment.v1/3/17"),
        ("holdfast-error-code", b"CODE"),
    ]
    assert letter.value is not None
    assert original(read(letter.value)) == value


def test_headers_of_an_earlier_letter_are_replaced() -> None:
    headers = [("holdfast-letter-id", b"old"), ("trace", b"1"), ("trace", None)]
    letter = publisher().letter(case_of(b"1", headers=headers), ValueError(), Bury("why", "CODE"))
    names = [name for name, _ in letter.headers]
    assert names == ["trace", "trace", "holdfast-letter-id", "holdfast-error-code"]
    assert ("holdfast-letter-id", b"old") not in letter.headers


@pytest.mark.parametrize(("partitions", "chosen"), [(12, 3), (4, 3), (3, None), (1, None)])
def test_a_letter_goes_to_its_records_partition_where_there_is_one(partitions: int, chosen: int | None) -> None:
    letters = publisher(partitions=partitions)
    assert letters.letter(case_of(b"1"), ValueError(), Bury("why", "CODE")).partition == chosen


def test_an_error_that_cannot_be_put_into_words_is_buried_all_the_same() -> None:
    letter = publisher().letter(case_of(b"1"), Unspeakable(), Bury("why", "CODE"))
    assert letter.value is not None
    assert read(letter.value)["error_type"] == "Unspeakable"


def test_an_odd_code_is_buried_all_the_same() -> None:
    letter = publisher().letter(case_of(b"1"), Reject("x"), Bury("\udcff", "\ud800"))
    assert letter.value is not None
    assert read(letter.value)["error_code"] == "?"
    assert ("holdfast-error-code", b"?") in letter.headers


@given(value=st.none() | st.binary() | json_values.map(lambda value: json.dumps(value, separators=(",", ":")).encode()))
def test_a_letter_that_is_too_large_gives_up_its_diagnostics_never_the_original(value: bytes | None) -> None:
    letters = publisher()
    large = letters.letter(case_of(value), ValueError("x" * 10_000), Bury("why", "CODE"))
    small = letters.shrink(large)
    assert large.value is not None
    assert small.value is not None
    assert len(small.value) < len(large.value) - LONGEST_MESSAGE
    fields = read(small.value)
    assert original(fields) == value
    assert (fields["error_message"], fields["stack_trace"], fields["reason"]) == ("", "", "why")
    assert (small.topic, small.key, small.headers) == (large.topic, large.key, large.headers)
    assert letters.shrink(small) == small


def test_sending_hands_the_letter_to_the_sink_as_it_is() -> None:
    sink = SinkThatKeeps()
    letters = publisher(sink)
    letter = letters.letter(case_of(b"1"), ValueError(), Bury("why", "CODE"))
    told: list[object] = []
    letters.send(letter, told.append)
    assert sink.sent == [(letter, told.append)]
    assert letter_id("g", record(b"1")).encode() in dict(letter.headers).values()
