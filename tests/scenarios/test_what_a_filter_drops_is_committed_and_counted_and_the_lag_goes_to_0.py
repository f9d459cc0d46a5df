"""P1: a record that does not pass the filter is finished. The commit passes it, also where nothing of a partition
passes, and it never passes an unfinished record in front of it.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from keepfast import BatchPolicy, Context, RawRecord, Record, RetryPolicy, RetryTopics
from keepfast.deadletters.reading import read
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.web import Web, web_of

RECORDS, PARTITIONS = 300, 3
GROUP = "scenario.work"


def logins(record: RawRecord) -> bool:
    return record.header("type") == b"login"


def mixed() -> list[NewRecord]:
    """Of partition 0 a third passes, of partition 1 nothing, of partition 2 everything."""
    return [
        NewRecord(
            b"%d:%d" % (partition, number),
            key=b"%d" % (number % 7),
            headers=[("type", b"login" if partition == 2 or (partition == 0 and number % 3 == 0) else b"logout")],
            partition=partition,
        )
        for partition in range(PARTITIONS)
        for number in range(RECORDS)
    ]


def passing(records: list[NewRecord]) -> list[bytes]:
    return sorted(one.value or b"" for one in records if ("type", b"login") in one.headers)


def all_committed(client: Client, topic: str) -> bool:
    return all(client.is_committed(GROUP, topic, RECORDS, partition) for partition in range(PARTITIONS))


def values(web: Web, metric: str) -> list[float]:
    return [sample.value for sample in web.samples().get(metric, {}).values()]


@pytest.mark.parametrize("kind", ["def", "async def", "batch"])
@pytest.mark.parametrize("order", ["partition", "key"])
def test_the_handler_gets_what_passes_and_every_partition_is_committed_to_its_end(
    kafka: TopicAdmin, topic: TopicFactory, kind: str, order: Any
) -> None:
    name, client, records = topic(partitions=PARTITIONS), Client(kafka), mixed()
    app, seen = app_for(kafka), []
    options: dict[str, Any] = {"order": order, "filter": logins, "name": "work"}
    if kind == "def":

        @app.consumer(name, **options)
        def one(value: bytes) -> None:
            seen.append(value)

    elif kind == "async def":

        @app.consumer(name, **options)
        async def awaited(value: bytes) -> None:
            seen.append(value)

    else:

        @app.consumer(name, **options, batch=BatchPolicy(size=50, wait_s=0.05), idempotent=True)
        def several(values: list[bytes]) -> None:
            seen.extend(values)

    client.produce(name, records)
    with RunningApp(app) as running, web_of(running) as web:
        wait_until(lambda: all_committed(client, name), "all partitions are committed to their ends")
        wait_until(lambda: values(web, "kafka_consumer_lag") == [0] * PARTITIONS, "the lag is 0")
        assert values(web, "keepfast_filtered_records_total") == [len(records) - len(passing(records))]
        assert values(web, "ingestion_events_processed_total") == [len(passing(records))]
        counts = running.loop.counts
        assert (counts.processed, counts.filtered) == (len(passing(records)), len(records) - len(passing(records)))
        assert running.log.of("record_discarded") == []
    assert sorted(seen) == passing(records)


def test_the_commit_does_not_pass_a_record_in_hand_because_those_behind_it_were_filtered(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client = topic(), Client(kafka)
    app, free = app_for(kafka), threading.Event()

    @app.consumer(name, order="key", filter=lambda record: record.key == b"held")
    def work(value: bytes) -> None:
        free.wait(DEADLINE_S)

    client.produce(name, [NewRecord(b"v", b"held"), *(NewRecord(b"v", b"other") for _ in range(50))])
    with RunningApp(app):
        wait_until(lambda: client.finished_above(GROUP, name) == {*range(1, 51)}, "the others are finished")
        assert client.committed(GROUP, name)[0] == 0
        free.set()
        wait_until(lambda: client.is_committed(GROUP, name, 51), "everything is committed")


def test_a_filter_that_raises_is_retried_and_dead_lettered_like_a_handler_and_sees_originals_after_a_retry_topic(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client = topic(), Client(kafka)
    app, seen, asked = app_for(kafka), [], []

    def passes(record: RawRecord) -> bool:
        asked.append((record.value, record.topic, record.offset))
        if record.value == b"broken":
            raise ValueError("no type")
        if record.value == b"flaky" and sum(one[0] == b"flaky" for one in asked) == 1:
            raise ConnectionError("the list of tenants is away")
        return record.value != b"dropped"

    @app.consumer(
        name,
        order="none",
        filter=passes,
        retry=RetryPolicy(max_retries=0),
        retry_topics=RetryTopics(delays=("1s",)),
        dead_letter=f"{name}.dlq",
    )
    def work(value: bytes, ctx: Context) -> None:
        seen.append((value, ctx.attempt))

    client.produce(name, [b"good", b"broken", b"flaky", b"dropped"])
    with RunningApp(app) as running:
        wait_until(lambda: {value for value, _ in seen} == {b"good", b"flaky"}, "the flaky one comes back and passes")
        wait_until(lambda: client.is_committed(GROUP, name, 4), "everything is committed")
        assert running.loop.counts.filtered == 1
    [letter] = client.read(f"{name}.dlq", 1)
    assert read(Record.of(letter)).value == b"broken"
    assert sorted(seen) == [(b"flaky", 2), (b"good", 1)]
    assert [one for one in asked if one[0] == b"flaky"] == [(b"flaky", name, 2)] * 2
