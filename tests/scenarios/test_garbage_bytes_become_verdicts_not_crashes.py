"""P1, P9: whatever bytes a record has in key, value and headers, it is processed, dead-lettered with its exact bytes,
or discarded by rule. It never ends the consumer, is never lost, and never shows the user a traceback.
"""

from __future__ import annotations

import json
import os
import threading
from base64 import b64decode
from typing import Any

import pytest
from pydantic import BaseModel

from keepfast import App, Context
from keepfast.core.records import UNREADABLE_NAME, read_headers
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until
from tests.support.wire import produce_raw

MIB = 1024 * 1024


class Order(BaseModel):
    id: int


GOOD = b'{"id":1}'
VALUES: list[bytes | None] = [
    GOOD,
    None,
    b"",
    b" ",
    b"\x00",
    b"\xff\xfe\xfd",
    b"\xef\xbb\xbf" + GOOD,
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b'{"id":null}',
    b'{"id":1e999}',
    b'{"id":NaN}',
    b'{"id":%s}' % (b"9" * 5_000),
    b'{"id":"\\ud800"}',
    b'{"other":1}',
    b"[" * 200_000,
    b'{"a":' * 100_000,
    b"\x00\x00\x00\x00\x01avro-like",
    os.urandom(1_000),
    GOOD,
]
KEYS = [None, b"", b"\x00", b"\xff" * 300, b"plain", os.urandom(100)]
HEADERS: list[list[tuple[str, bytes | None]]] = [
    [],
    [("", b"")],
    [("trace", b"\xff\xfe"), ("trace", None), ("trace", b"")],
    [("nämé \u2603", os.urandom(50)), ("keepfast", b"not ours")],
]
RECORDS = [NewRecord(value, KEYS[n % len(KEYS)], HEADERS[n % len(HEADERS)]) for n, value in enumerate(VALUES)]


def original(letter: Any) -> bytes | None:
    """The value of the original record, from the letter."""
    fields = json.loads(letter.value())
    match fields["original_encoding"]:
        case "null":
            return None
        case "base64":
            return b64decode(fields["original_message"], validate=True)
        case _:
            return json.dumps(fields["original_message"], ensure_ascii=False, separators=(",", ":")).encode()


def place_of(letter: Any) -> tuple[str, int]:
    fields = json.loads(letter.value())
    return fields["consumer_group"], fields["original_offset"]


class Kinds:
    """One consumer for each kind of annotation, all reading the same topic; says what each one was called with."""

    def __init__(self, app: App, topic: str) -> None:
        self.called: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        for annotation, name in (
            (bytes | None, "raw"),
            (str, "text"),
            (dict[str, Any], "table"),
            (Order, "model"),
            (Order | None, "model_or_none"),
        ):
            self._add(app, topic, annotation, name, "dead-letter")
        self._add(app, topic, Order, "without_tombstones", "discard")

    def _add(self, app: App, topic: str, annotation: Any, name: str, tombstones: Any) -> None:
        self.called[name] = []

        def handle(value: Any, ctx: Context) -> None:
            assert isinstance(ctx.headers, tuple | list)
            with self._lock:
                self.called[name].append(ctx.offset)

        handle.__annotations__["value"] = annotation
        app.consumer(topic, name=name, dead_letter="{topic}.dlq", tombstones=tombstones)(handle)


def test_every_kind_of_garbage_meets_its_verdict(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(), Client(kafka)
    app = app_for(kafka)
    kinds = Kinds(app, name)
    client.produce(name, RECORDS)
    with RunningApp(app) as running:
        for consumer in kinds.called:
            wanted = lambda group=f"scenario.{consumer}": client.committed(group, name)[0] == len(RECORDS)  # noqa: E731
            wait_until(wanted, f"{consumer} commits everything")
    called = {consumer: set(offsets) for consumer, offsets in kinds.called.items()}
    everything = set(range(len(RECORDS)))
    good, null = {0, len(RECORDS) - 1}, 1
    assert called["raw"] == everything
    assert called["model"] == called["without_tombstones"] == good
    assert called["model_or_none"] == good | {null}
    assert good <= called["table"] < everything
    assert good <= called["text"] < everything
    dead = {f"scenario.{consumer}": everything - offsets for consumer, offsets in called.items()}
    dead["scenario.without_tombstones"].discard(null)
    letters = client.read(f"{name}.dlq", sum(map(len, dead.values())))
    assert sorted(map(place_of, letters)) == sorted((group, one) for group, found in dead.items() for one in found)
    for letter in letters:
        sent = RECORDS[place_of(letter)[1]]
        assert original(letter) == sent.value
        assert letter.key() == sent.key
        assert (letter.headers() or [])[: len(sent.headers)] == sent.headers
    assert [entry.fields["offset"] for entry in running.log.of("record_discarded")] == [null]
    assert running.log.of("retry_scheduled") == []
    assert running.log.of("consumer_halted") == []


@pytest.mark.parametrize("size", [10_000_000, 10 * MIB])
def test_a_record_of_10_mb_is_processed_or_dead_lettered_with_its_bytes(
    kafka: TopicAdmin, topic: TopicFactory, size: int
) -> None:
    name, client, sizes = topic(config={"max.message.bytes": str(15 * MIB)}), Client(kafka), list[int]()
    app = app_for(kafka)

    @app.consumer(name)
    def raw(value: bytes) -> None:
        sizes.append(len(value))

    @app.consumer(name, dead_letter="{topic}.dlq")
    def text(value: dict[str, Any]) -> None:
        sizes.append(0)

    large = os.urandom(size)
    client.produce(name, [large, b"{}"])
    with RunningApp(app):
        for group in ("scenario.raw", "scenario.text"):
            wait_until(lambda group=group: client.committed(group, name)[0] == 2, f"{group} commits both")  # type: ignore[misc]
    assert sorted(sizes) == [0, 2, size]
    (letter,) = client.read(f"{name}.dlq", 1)
    assert original(letter) == large


def test_header_names_that_are_not_utf_8_do_no_harm(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(), Client(kafka)
    app, seen = app_for(kafka), list[list[tuple[str, bytes | None]]]()

    @app.consumer(name, dead_letter="{topic}.dlq")
    def work(value: dict[str, Any], ctx: Context) -> None:
        seen.append(list(ctx.headers))

    headers = [(b"good", b"1"), (b"b\xffd", b"\xfe"), (b"\xc3", None), (b"good", b"2")]
    readable = [("good", b"1"), (UNREADABLE_NAME, b"\xfe"), (UNREADABLE_NAME, None), ("good", b"2")]
    # Many of them: the interpreter calls the client in another way once it has done so a few times.
    for number in range(0, 40, 2):
        assert produce_raw(kafka.bootstrap, name, b"{}", key=b"k", headers=headers) == number
        assert produce_raw(kafka.bootstrap, name, b"\xff", key=b"\xff", headers=headers) == number + 1
    with RunningApp(app):
        wait_until(lambda: client.committed("scenario.work", name)[0] == 40, "all are committed")
    assert seen == [readable] * 20
    for letter in client.read(f"{name}.dlq", 20):
        assert list(read_headers(letter))[:4] == readable
        assert (original(letter), letter.key()) == (b"\xff", b"\xff")
