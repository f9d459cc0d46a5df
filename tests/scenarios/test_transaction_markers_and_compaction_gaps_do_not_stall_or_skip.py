"""P1, P2: offsets that no consumer ever sees (markers of transactions, aborted records, compacted records) neither
stall the commit nor make it skip a record. Records of aborted transactions are not handled.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from keepfast import Context, RetryLater
from keepfast.core.commit_metadata import decode
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import QUIET, Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until


def transaction(broker: TopicAdmin, topic: str, values: Sequence[bytes], *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": uuid.uuid4().hex, **QUIET})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, key=value)
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
    # The marker is written after the call has returned: wait until no transaction is open in the log.
    wait_until(lambda: edge(broker, topic, "read_committed") == edge(broker, topic, "read_uncommitted"), "the marker")


def edge(broker: TopicAdmin, topic: str, isolation: str) -> int:
    """Up to where a reader of that isolation may read."""
    reader = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": isolation, **QUIET}
    )
    try:
        _, high = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S)
        return int(high)
    finally:
        reader.close()


def mixed(broker: TopicAdmin, client: Client, topic: str) -> list[bytes]:
    """Plain, committed and aborted records in turn, a plain one last; returns what a reader may see, in order."""
    visible = []
    for turn in range(6):
        plain = [b"plain-%d-%d" % (turn, number) for number in range(3)]
        kept = [b"kept-%d-%d" % (turn, number) for number in range(4)]
        client.produce(topic, [NewRecord(value, value) for value in plain])
        transaction(broker, topic, kept, commit=True)
        transaction(broker, topic, [b"aborted-%d" % turn] * 5, commit=False)
        visible += plain + kept
    client.produce(topic, [NewRecord(b"last", b"last")])
    return [*visible, b"last"]


@pytest.mark.parametrize("order", ["partition", "key"])
def test_aborted_records_are_not_seen_and_everything_is_committed(
    kafka: TopicAdmin, topic: TopicFactory, order: Any
) -> None:
    name, client = topic(), Client(kafka)
    visible = mixed(kafka, client, name)
    app, seen = app_for(kafka), list[bytes]()

    @app.consumer(name, order=order)
    def work(value: bytes) -> None:
        seen.append(value)

    _, high = client.edges(name)
    with RunningApp(app):
        wait_until(lambda: client.is_committed("scenario.work", name, high), "the commit is at the end of the log")
        # A transaction at the very end: the commit moves behind its marker.
        transaction(kafka, name, [b"after"], commit=True)
        wait_until(lambda: client.committed("scenario.work", name)[0] == high + 2, "the marker is committed")
        transaction(kafka, name, [b"aborted"], commit=False)
        wait_until(lambda: client.committed("scenario.work", name)[0] == high + 4, "the aborted one is committed")
        client.produce(name, [b"end"])
        wait_until(lambda: client.committed("scenario.work", name)[0] == client.edges(name)[1], "the end is committed")
    assert sorted(seen) == sorted([*visible, b"after", b"end"])
    if order == "partition":
        assert seen == [*visible, b"after", b"end"]


def test_the_completion_map_names_the_right_records_across_gaps(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(), Client(kafka)
    visible = mixed(kafka, client, name)
    app, seen, stuck = app_for(kafka), list[bytes](), visible[5]

    @app.consumer(name, order="key")
    def work(value: bytes, ctx: Context) -> None:
        if value == stuck and first_time:
            raise RetryLater(after_s=600)
        seen.append(value)

    first_time = True
    with RunningApp(app):
        wait_until(lambda: len(seen) == len(visible) - 1, "all but one are handled")
    offset, metadata = client.committed("scenario.work", name)
    assert offset is not None
    assert len(decode(metadata, offset=offset).bits) > 0
    first_time = False
    with RunningApp(app):
        wait_until(lambda: client.is_committed("scenario.work", name, client.edges(name)[1]), "all is committed")
    assert sorted(seen) == sorted(visible), "the stuck one was handled by the second run, the others not again"


def offsets_in(broker: TopicAdmin, topic: str) -> list[int]:
    """Every offset that a reader gets."""
    reader = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True, **QUIET}
    )
    try:
        reader.assign([TopicPartition(topic, 0, 0)])
        found: list[int] = []
        while True:
            message = reader.poll(10)
            assert message is not None
            error = message.error()
            if error is None:
                found.append(message.offset() or 0)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
    finally:
        reader.close()


@pytest.mark.parametrize("order", ["partition", "key"])
def test_compacted_records_leave_no_trace(kafka: TopicAdmin, topic: TopicFactory, order: Any) -> None:
    eager = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    name, client = topic(config={**eager, "max.compaction.lag.ms": "100"}), Client(kafka)
    client.produce(name, [NewRecord(b"%d" % number, b"key-%d" % (number % 10)) for number in range(500)])

    def compacted() -> bool:
        client.produce(name, [NewRecord(b"roll", b"roll")])  # the cleaner leaves the segment alone that is written to
        return len(offsets_in(kafka, name)) < 100

    wait_until(compacted, "the cleaner has been at work")
    app, seen = app_for(kafka), list[int]()

    @app.consumer(name, order=order)
    def work(value: bytes, ctx: Context) -> None:
        seen.append(ctx.offset)

    there = offsets_in(kafka, name)
    _, high = client.edges(name)
    with RunningApp(app):
        wait_until(lambda: client.is_committed("scenario.work", name, high), "the end is committed")
    # Compaction may have gone on meanwhile, but never takes the last record of a key.
    assert set(seen) <= set(there)
    assert {*range(490, 500), high - 1} <= set(seen)
    assert len(set(seen)) == len(seen)
