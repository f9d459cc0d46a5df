"""The value inside a JSON letter: strict JSON whatever went wrong, with the original bytes exactly."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keepfast.core.replays import ReplayMark
from keepfast.deadletters import envelope, nested
from keepfast.deadletters.inline import MAX_DEPTH
from keepfast.deadletters.letter import Attempted
from tests.support.letters import any_text, json_values, letter


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def read(written: bytes) -> dict[str, Any]:
    """Strictly: UTF-8, no constants of JavaScript, no name twice, no half of a surrogate pair, by two parsers."""
    fields: dict[str, Any] = json.loads(
        written.decode("utf-8"), parse_constant=no_constant, object_pairs_hook=no_duplicates
    )
    assert msgspec.json.decode(written).keys() == fields.keys()
    return fields


def original(fields: dict[str, Any]) -> bytes | None:
    """As whoever replays the letter gets the value back."""
    if "original_bytes" in fields:
        assert fields["original_encoding"] == "json"
        return b64decode(fields["original_bytes"], validate=True)
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
    """The original comes back byte for byte, by another program and by ours; says how it travelled."""
    written = envelope.write(letter(value=value))
    fields = read(written)
    assert original(fields) == value
    found = envelope.letter_of(fields, key=None, headers=())
    assert (found.value, found.exact) == (value, True)
    return "json and bytes" if "original_bytes" in fields else str(fields["original_encoding"])


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
        b"1e400",
        b'"\\ud83d"',
        "\u20ac".encode("utf-16"),
        '"a"'.encode("utf-16-le"),
        '"a"'.encode("utf-32-be"),
        b"1" * 5_000,
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=lambda value: repr(value[:20]),
)
def test_what_is_not_strict_json_travels_as_base64(value: bytes) -> None:
    assert assert_kept(value) == "base64"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'{"a":1,"a":2}', {"a": 2}),
        (b'{"a": 1}', {"a": 1}),
        (b'{"b": [1, 2], "a": "\\u00e9"}', {"b": [1, 2], "a": "é"}),
        (b" 1", 1),
        (b"1\n", 1),
        (b"-0", 0),
        (b"1.0e2", 100.0),
        (b"0.10", 0.1),
        (b"100000000000000000000000.0", 1e23),
        (b'"\\u00e9"', "é"),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\/"', "/"),
        (b'"\\u007f"', "\x7f"),
    ],
)
def test_json_is_readable_however_it_is_written_and_its_bytes_are_beside_it(value: bytes, shown: object) -> None:
    assert assert_kept(value) == "json and bytes"
    for fields in (read(envelope.write(letter(value=value))), read(nested.write(letter(value=value)))):
        assert fields["original_message"] == shown
        assert b64decode(fields["original_bytes"]) == value


def test_bytes_that_were_damaged_by_hand_leave_the_json_which_is_not_exact() -> None:
    fields = read(envelope.write(letter(value=b'{"a": 1}'))) | {"original_bytes": "!"}
    found = envelope.letter_of(fields, key=None, headers=())
    assert (found.value, found.exact) == (b'{"a":1}', False)


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


def test_a_null_value_and_the_json_null_are_distinguished() -> None:
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
        assert assert_kept(value) == (
            "json" if depth < MAX_DEPTH or (closing == b"]" and depth == MAX_DEPTH) else "base64"
        )


@given(message=any_text, stack=any_text, reason=any_text, code=any_text, error_type=any_text)
@example(message="\ud83d", stack='\\"\udcff', reason="\x00\x1f", code="\u2028", error_type="\U0010ffff")
def test_whatever_an_error_says_the_letter_is_strict_json(
    message: str, stack: str, reason: str, code: str, error_type: str
) -> None:
    printed = letter(
        error_message=message,
        stack_trace=stack,
        reason=reason,
        error_code=code,
        error_type=error_type,
        attempts=(Attempted(0, error_type),),
    )
    fields = read(envelope.write(printed))
    assert original(fields) == b'{"a":1}'
    for name, text in [("error_message", message), ("stack_trace", stack), ("reason", reason), ("error_code", code)]:
        assert fields[name] == text.encode("utf-8", "replace").decode()


def test_an_envelope_says_what_where_and_why() -> None:
    assert read(envelope.write(letter(value=b"1", trace_id="ab" * 16))) == {
        "version": 1,
        "id": "payments.charge/orders.payment.v1/3/17",
        "original_message": 1,
        "original_encoding": "json",
        "error_type": "ValueError",
        "error_class": "shop.errors.ValueError",
        "error_cause": "",
        "error_message": "no account",
        "error_code": "RETRIES_EXHAUSTED",
        "error_classification": "retryable",
        "reason": "failed 2 times",
        "fingerprint": "0123456789ab",
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
        "original_timestamp_type": "CreateTime",
        "consumer_group": "payments.charge",
        "handler": "app:charge",
        "app_version": "1.2.3",
        "trace_id": "ab" * 16,
        "schema": None,
        "replay_count": 0,
        "replayed_from": "",
        "stack_trace": "Traceback …",
    }


def test_the_nested_format_groups_the_same_facts() -> None:
    fields = read(nested.write(letter(replay=ReplayMark("g/t/0/1", "r", 2))))
    assert list(fields) == ["original_message", "original_encoding", "reason", "error", "metadata"]
    assert (fields["original_message"], fields["reason"]) == ({"a": 1}, "failed 2 times")
    assert fields["error"] == {
        "type": "ValueError",
        "message": "no account",
        "timestamp": "2023-11-14T22:13:21.500Z",
        "code": "RETRIES_EXHAUSTED",
        "classification": "retryable",
        "class": "shop.errors.ValueError",
        "cause": "",
        "fingerprint": "0123456789ab",
        "stack_trace": "Traceback …",
    }
    assert fields["metadata"]["original_topic"] == "orders.payment.v1"
    assert fields["metadata"]["original_partition"] == 3
    assert fields["metadata"]["original_offset"] == 17
    assert fields["metadata"]["consumer_group"] == "payments.charge"
    assert (fields["metadata"]["replay_count"], fields["metadata"]["replayed_from"]) == (2, "g/t/0/1")
    flat = {name: value for name, value in nested.flattened(fields).items() if name != "original_bytes"}
    assert flat == envelope.fields_of(letter(replay=ReplayMark("g/t/0/1", "r", 2)))


def test_a_record_without_a_timestamp_says_so() -> None:
    assert read(envelope.write(letter(timestamp_ms=None)))["original_timestamp"] is None
