"""Letters with the headers that Kafka's own programs write, in a topic; `keepfast dlq` reads and replays them."""

from __future__ import annotations

import json
import time
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPlace

from keepfast.core.records import Headers
from keepfast.desk import CaseFilter, CaseState, Desk, DeskOptions, ReplayPolicy
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.command import keepfast
from tests.support.members import connection

PARTITIONS = 3
OWN: Headers = (("trace", b"\x00\xff"), ("empty", b""), ("null", None), ("trace", b"again"))
"""Of the record: bytes, an empty value, none, and a name twice."""


def connect(topic: str, partition: int, offset: int) -> Headers:
    """As DeadLetterQueueReporter writes them."""
    fields = {
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
        "connector.name": "sink",
        "task.id": "0",
        "stage": "VALUE_CONVERTER",
        "class.name": "org.apache.kafka.connect.json.JsonConverter",
        "exception.class.name": "org.apache.kafka.connect.errors.DataException",
        "exception.message": "Converting byte[] to Kafka Connect data failed due to serialization error: ",
        "exception.stacktrace": "org.apache.kafka.connect.errors.DataException: Converting\n\tat A.b(A.java:1)\n",
    }
    return tuple((f"__connect.errors.{name}", text.encode()) for name, text in fields.items())


def streams(topic: str, partition: int, offset: int) -> Headers:
    """As ExceptionHandlerUtils writes them."""
    fields = {
        "exception": "java.lang.ArithmeticException: / by zero",
        "message": "/ by zero",
        "stacktrace": "java.lang.ArithmeticException: / by zero\n\tat shop.Totals.add(Totals.java:12)\n",
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
    }
    return tuple((f"__streams.errors.{name}", text.encode()) for name, text in fields.items())


def share(topic: str, partition: int, offset: int) -> Headers:
    fields = {
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
        "group": "workers",
        "delivery.count": "5",
        "message": "Offset delivery count exceeded the threshold.",
    }
    return tuple((f"__dlq.errors.{name}", text.encode()) for name, text in fields.items())


KINDS = {"connect": connect, "streams": streams, "share": share}


def test_every_record_comes_back_as_it_was_and_nothing_of_the_letter_with_it(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> None:
    source, client = topic(partitions=PARTITIONS), Client(kafka)
    dlq, desk_topic = topic(partitions=PARTITIONS, suffix=".dlq"), topic(suffix=".desk")
    originals = {
        kind: [
            NewRecord(bytes([number, 0, 255]) * 40, kind.encode() + b"\x00\xff", OWN, number),
            NewRecord(None, kind.encode() + b"2", (), number),
        ]
        for number, kind in enumerate(KINDS)
    }
    for kind, both in originals.items():
        headers = [(*one.headers, *KINDS[kind](source, one.partition or 0, at)) for at, one in enumerate(both)]
        client.produce(
            dlq, [NewRecord(one.value, one.key, more, one.partition) for one, more in zip(both, headers, strict=True)]
        )
    environ = {"KAFKA_BROKERS": kafka.bootstrap, "KEEPFAST_DESK_TOPIC": desk_topic, "XDG_CACHE_HOME": str(tmp_path)}

    listed = keepfast("dlq", "list", dlq, "--json", cwd=tmp_path, **environ)
    cases = [json.loads(line) for line in listed.stdout.splitlines()]
    assert {(one["consumer_group"], one["error_type"], one["place"]) for one in cases} == {
        ("connect-sink", "DataException", "A.java:1"),
        ("", "ArithmeticException", "Totals.java:12"),
        ("workers", "(not given)", ""),
    }
    shown = keepfast("dlq", "show", dlq, "0:0", "--json", cwd=tmp_path, **environ)
    assert json.loads(shown.stdout)["format"] == "connect", shown.stderr
    grouped = keepfast("dlq", "replay", dlq, "--all", "--to", "group", "--dry-run", cwd=tmp_path, **environ)
    assert "another program wrote the letter" in grouped.stdout + grouped.stderr
    replayed = keepfast("dlq", "replay", dlq, "--all", "--yes", cwd=tmp_path, **environ)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr

    every = [one for both in originals.values() for one in both]
    found = {message.key(): message for message in client.read(source, len(every), partitions=PARTITIONS)}
    for one in every:
        message = found[one.key]
        assert (message.value(), message.partition()) == (one.value, one.partition), one.key
        assert tuple(message.headers())[: len(one.headers)] == tuple(one.headers), one.key
        assert {name for name, _ in message.headers()[len(one.headers) :]} == {"keepfast-replay"}, one.key


def test_a_connector_that_has_committed_past_its_records_has_processed_them(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    source, dlq, desk_topic = topic(partitions=1), topic(suffix=".dlq"), topic(suffix=".desk")
    group = f"{source}.sink"
    named = [
        (name, group.encode() if name.endswith("connector.name") else text) for name, text in connect(source, 0, 7)
    ]
    Client(kafka).produce(dlq, [NewRecord(b"1", b"k", tuple(named), 0)])
    options = DeskOptions(topics=(dlq,), by="ada", desk_topic=desk_topic)
    desk = Desk(connection(kafka.bootstrap), options, wall=lambda: time.time() + later_s)
    later_s = 0.0
    try:
        desk.refresh()
        desk.replayer(desk.start(desk.plan(CaseFilter(), ReplayPolicy(to="topic")))).execute()
        later_s = 60.0
        desk.refresh_facts()
        assert desk.infer_outcomes() == 0
        assert desk.summary().counts == {CaseState.REPLAYING: 1}
        reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": f"connect-{group}"})
        reader.commit(offsets=[ClientPlace(source, 0, 1)], asynchronous=False)
        reader.close()
        assert desk.infer_outcomes() == 1
        [case] = desk.cases().cases
        assert (case.state, case.badges) == (CaseState.RESOLVED, ("processed, outcome not reported",))
    finally:
        desk.close()
