"""P9: a letter has the original key and headers as they were, ours after them, and the original value byte for byte. It
goes to the partition number its record came from, in a topic that was made when the app started.
"""

from __future__ import annotations

import functools
import json
import os
from base64 import b64decode
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined] # both of them public, says its docstring
    ConfigResource,
    ResourceType,
)

from keepfast import Context, Reject, RetryPolicy
from keepfast.core.inbox import ORIGIN
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until

PARTITIONS = 3
VALUES = [
    b'{"amount":1,"note":"h\xc3\xa9"}',
    b'{"amount": 1}',
    b'{"a":1,"a":2}',
    b'{"amount":1.0e2}',
    b'{"big":12345678901234567890123}',
    b'"\\u00e9"',
    b"",
    None,
    b"\x00\xff" * 500,
    os.urandom(5_000),
]
HEADERS: list[tuple[str, bytes | None]] = [
    ("trace", b"\x00\xff\xfe"),
    ("trace", b"again"),
    ("empty", b""),
    ("null", None),
    ("", b"no name"),
]


def original(fields: dict[str, Any]) -> bytes | None:
    if "original_bytes" in fields:
        return b64decode(fields["original_bytes"], validate=True)
    match fields["original_encoding"]:
        case "null":
            return None
        case "json":
            return json.dumps(fields["original_message"], ensure_ascii=False, separators=(",", ":")).encode()
        case _:
            return b64decode(fields["original_message"], validate=True)


def config_of(broker: TopicAdmin, topic: str) -> dict[str, str]:
    (future,) = broker.admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in future.result(DEADLINE_S).items()}


def test_key_value_and_headers_are_exact(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(partitions=PARTITIONS), Client(kafka)
    keys = [None, b"", b"\xff\x00", b"plain"]
    records = [
        NewRecord(value, keys[n % len(keys)], HEADERS if n % 2 else [], partition=n % PARTITIONS)
        for n, value in enumerate(VALUES)
    ]
    places = client.produce(name, records)
    app = app_for(kafka)

    @app.consumer(name, dead_letter="{topic}.dlq")
    def work(value: bytes | None) -> None:
        raise Reject("not today", code="NOT_TODAY")

    with RunningApp(app):
        facts = kafka.admin.list_topics(timeout=DEADLINE_S).topics[f"{name}.dlq"]
        assert len(facts.partitions) == PARTITIONS, "made at the start, like its source"
        config = config_of(kafka, f"{name}.dlq")
        assert (config["retention.ms"], config["cleanup.policy"]) == ("-1", "delete")
        ends = [sum(1 for partition, _ in places if partition == number) for number in range(PARTITIONS)]
        committed = [functools.partial(client.committed, "scenario.work", name, number) for number in range(PARTITIONS)]
        wait_until(lambda: [ask()[0] for ask in committed] == ends, "all are dead-lettered and committed")
    letters = client.read(f"{name}.dlq", len(records), partitions=PARTITIONS)
    found = {}
    for letter in letters:
        fields = json.loads(letter.value())
        place = fields["original_partition"], fields["original_offset"]
        assert letter.partition() == place[0]
        found[place] = letter, fields
    assert len(found) == len(letters)
    for record, place in zip(records, places, strict=True):
        letter, fields = found[place]
        assert original(fields) == record.value
        assert letter.key() == record.key
        identity = f"scenario.work/{name}/{place[0]}/{place[1]}".encode()
        ours = [("keepfast-letter-id", identity), ("keepfast-error-code", b"NOT_TODAY")]
        others = [header for header in letter.headers() or [] if header[0] != ORIGIN]
        assert others == [*record.headers, *ours]
        assert (fields["error_code"], fields["reason"], fields["retry_count"]) == ("NOT_TODAY", "not today", 0)
        assert (fields["original_topic"], fields["consumer_group"]) == (name, "scenario.work")
        assert fields["original_timestamp"] > 0


def test_a_record_that_fails_too_often_is_dead_lettered_with_its_attempts(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client = topic(), Client(kafka)
    app, attempts = app_for(kafka), list[int]()

    @app.consumer(name, dead_letter="{topic}.dlq", retry=RetryPolicy(max_retries=3, initial_delay_ms=5))
    def work(value: bytes, ctx: Context) -> None:
        if value == b"bad":
            attempts.append(ctx.attempt)
            raise RuntimeError("boom")

    client.produce(name, [b"good", b"bad", b"good"])
    with RunningApp(app):
        wait_until(lambda: client.committed("scenario.work", name)[0] == 3, "all are committed")
    assert attempts == [1, 2, 3, 4]
    (letter,) = client.read(f"{name}.dlq", 1)
    fields = json.loads(letter.value())
    assert (fields["error_type"], fields["error_message"], fields["retry_count"]) == ("RuntimeError", "boom", 3)
    assert [attempt["error_type"] for attempt in fields["attempts"]] == ["RuntimeError"] * 4
    assert "boom" in fields["stack_trace"]
    assert original(fields) == b"bad"
