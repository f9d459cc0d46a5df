"""Letters and records for these tests, and what hypothesis may put into them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from keepfast.core.records import Headers, Record
from keepfast.core.replays import ReplayMark
from keepfast.deadletters.letter import (
    MAX_ATTEMPTS,
    MAX_MESSAGE,
    MAX_NAME,
    MAX_REASON,
    MAX_STACK,
    TIMESTAMP_TYPES,
    Attempted,
    Letter,
)

TOPIC = "orders.payment.v1"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
any_text = st.text(st.characters(exclude_categories=()))  # unpaired surrogates too
compact_json = json_values.map(lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
keys = st.none() | st.binary(max_size=40)
values = st.none() | st.binary() | compact_json | json_values.map(lambda value: json.dumps(value).encode())
names = st.one_of(
    st.text(max_size=20).filter(lambda name: not name.startswith("keepfast-")),
    # What foreign programs write on letters: a producer may send it too, and then it is the original's.
    st.sampled_from(
        [
            "",
            "traceparent",
            "kafka_dlt-original-topic",
            "kafka_dlt-original-partition",
            "kafka_dlt-exception-fqcn",
            "kafka_dlt-mine",
            "__connect.errors.topic",
            "__streams.errors.topic",
            "__dlq.errors.topic",
        ]
    ),
)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=40)), max_size=6).map(tuple)  # duplicates, nulls


def _text(limit: int) -> st.SearchStrategy[str]:
    return st.text(max_size=min(limit, 60))


moments = st.integers(0, 253_402_300_799_999)

letters = st.builds(
    Letter,
    topic=st.just(TOPIC) | st.text("abc._-", min_size=3, max_size=20).filter(lambda name: name.strip(".") != ""),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.none() | st.integers(0, 2**63 - 1),
    timestamp_type=st.sampled_from(TIMESTAMP_TYPES),
    key=keys,
    value=values,
    headers=headers,
    exact=st.just(True),
    error_type=_text(MAX_NAME),
    error_class=_text(MAX_NAME),
    error_cause=_text(MAX_NAME),
    error_message=_text(MAX_MESSAGE),
    error_code=_text(MAX_NAME),
    classification=st.sampled_from(["retryable", "non-retryable"]),
    reason=_text(MAX_REASON),
    fingerprint=st.text("0123456789abcdef", min_size=12, max_size=12),
    stack_trace=_text(MAX_STACK),
    failed_at_ms=st.none() | moments,
    retry_count=st.integers(0, 2**31 - 1),
    attempts=st.lists(st.builds(Attempted, moments, _text(MAX_NAME)), max_size=MAX_ATTEMPTS).map(tuple),
    group=st.text(max_size=30),
    handler=_text(MAX_NAME),
    app_version=_text(MAX_NAME),
    trace_id=st.text("0123456789abcdef", min_size=32, max_size=32),
    replay=st.none()
    | st.builds(
        ReplayMark, st.text("gt/0;", min_size=1, max_size=20), st.text("r0", min_size=1), st.integers(1, 1_000_000)
    ),
)


def letter(**fields: Any) -> Letter:
    known: dict[str, Any] = {
        "topic": TOPIC,
        "partition": 3,
        "offset": 17,
        "timestamp_ms": 1_700_000_000_000,
        "key": b"k",
        "value": b'{"a":1}',
        "headers": (),
        "error_type": "ValueError",
        "error_class": "shop.errors.ValueError",
        "error_message": "no account",
        "error_code": "RETRIES_EXHAUSTED",
        "classification": "retryable",
        "reason": "failed 2 times",
        "fingerprint": "0123456789ab",
        "stack_trace": "Traceback …",
        "failed_at_ms": 1_700_000_001_500,
        "retry_count": 1,
        "attempts": (Attempted(1_700_000_000_000, "TimeoutError"), Attempted(1_700_000_001_500, "ValueError")),
        "group": "payments.charge",
        "handler": "app:charge",
        "app_version": "1.2.3",
    }
    return Letter(**{**known, **fields})


def filed(value: bytes | None, headers: Headers, *, key: bytes | None = None) -> Record:
    """A record in a dead-letter topic."""
    return Record("orders.payment.dlq", 3, 5, key, value, tuple(headers), 1_700_000_002_000)
