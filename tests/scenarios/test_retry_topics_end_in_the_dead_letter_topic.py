"""Through all retry topics, and then a dead letter: with the original's place, bytes and whole story (P1, P9)."""

from __future__ import annotations

import json
import time

import pytest

from keepfast import Context, RetryLater, RetryPolicy, RetryTopics
from keepfast.core.inbox import ORIGIN
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.dead_letter_topic import limit
from tests.scenarios.test_a_dead_letter_keeps_the_bytes_of_its_record import HEADERS, config_of, original
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until

GROUP = "scenario.work"
WAY = RetryTopics(delays=("1s", "2s"), allow_reorder=True)
TWICE = RetryPolicy(max_retries=1, initial_delay_ms=5)


def edges(client: Client, topic: str, partitions: int) -> int:
    return sum(client.edges(topic, partition)[1] for partition in range(partitions))


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_the_letter_is_about_the_original_record(kafka: TopicAdmin, topic: TopicFactory, kind: str) -> None:
    name, client, app = topic(partitions=3), Client(kafka), app_for(kafka)
    seen: list[tuple[float, int, tuple[str, int, int], list[tuple[str, bytes | None]]]] = []
    register = app.consumer(name, name="work", dead_letter="{topic}.dlq", retry=TWICE, retry_topics=WAY)

    def note(ctx: Context) -> None:
        seen.append((time.monotonic(), ctx.attempt, (ctx.topic, ctx.partition, ctx.offset), list(ctx.headers)))

    def work(value: bytes, ctx: Context) -> None:
        note(ctx)
        raise RuntimeError("boom")

    async def work_async(value: bytes, ctx: Context) -> None:
        note(ctx)
        raise RuntimeError("boom")

    register(work if kind == "def" else work_async)
    value = b'{"a": 1}\x00\xff'
    with RunningApp(app) as running:
        retry_topics = [f"{name}.{GROUP}.retry.{delay}" for delay in WAY.delays]
        for retry_topic, delay_s in zip(retry_topics, (1, 2), strict=True):
            assert len(kafka.admin.list_topics(timeout=DEADLINE_S).topics[retry_topic].partitions) == 3, (
                "made like its source"
            )
            config = config_of(kafka, retry_topic)
            assert config["cleanup.policy"] == "delete"
            assert config["retention.ms"] == str((7 * 86_400 + delay_s) * 1000)
        running.wait_assigned(9)
        [(_, offset)] = client.produce(name, [NewRecord(value, b"\x00key", HEADERS, partition=2)])
        wait_until(lambda: edges(client, f"{name}.dlq", 3) == 1, "it is dead-lettered")
        wait_until(lambda: client.committed(GROUP, retry_topics[1], 2)[0] == 1, "and committed where it was last")
        assert client.committed(GROUP, name, 2)[0] == 1
        assert running.loop.counts.total().moved == 2
    assert [attempt for _, attempt, _, _ in seen] == [1, 2, 3, 4]
    assert {place for _, _, place, _ in seen} == {(name, 2, offset)}, "the handler sees where it came from"
    assert all(headers == HEADERS for *_, headers in seen), "and its own headers"
    at = [moment for moment, *_ in seen]
    assert at[2] - at[1] >= 1.0
    assert at[3] - at[2] >= 2.0
    (letter,) = client.read(f"{name}.dlq", 1, partitions=3)
    fields = json.loads(letter.value())
    assert letter.partition() == 2
    assert (letter.key(), original(fields)) == (b"\x00key", value)
    letter_id = f"{GROUP}/{name}/2/{offset}".encode()
    found = list(letter.headers() or [])
    assert [header for header in found if header[0] != ORIGIN] == [
        *HEADERS,
        ("keepfast-letter-id", letter_id),
        ("keepfast-error-code", b"UNHANDLED_EXCEPTION"),
    ]
    assert (fields["original_topic"], fields["original_partition"], fields["original_offset"]) == (name, 2, offset)
    (first,) = client.read(name, 1, partitions=3)
    assert fields["original_timestamp"] == first.timestamp()[1]
    assert (fields["retry_count"], len(fields["attempts"]), fields["reason"]) == (3, 4, "failed 4 times")
    moved = [
        (printed.fields["topic"], printed.fields["offset"], printed.fields["to"])
        for printed in running.log.of("moved_to_retry_topic")
    ]
    assert moved == [(name, offset, retry_topic) for retry_topic in retry_topics]


def test_two_groups_on_one_topic_do_not_run_each_others_retries(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    seen: list[tuple[str, int]] = []
    way = RetryTopics(delays=("1s",), allow_reorder=True)
    none = RetryPolicy(max_retries=0)

    @app.consumer(name, dead_letter="{topic}.dlq", retry=none, retry_topics=way)
    def fails(value: bytes, ctx: Context) -> None:
        seen.append(("fails", ctx.attempt))
        if ctx.attempt == 1:
            raise RuntimeError("not yet")

    @app.consumer(name, dead_letter="{topic}.dlq", retry=none, retry_topics=way)
    def works(value: bytes, ctx: Context) -> None:
        seen.append(("works", ctx.attempt))

    client.produce(name, [b"a"])
    with RunningApp(app):
        mine = f"{name}.scenario.fails.retry.1s"
        wait_until(lambda: client.committed("scenario.fails", mine)[0] == 1, "the retry is done and committed")
        assert client.edges(f"{name}.scenario.works.retry.1s") == (0, 0)
    assert sorted(seen) == [("fails", 1), ("fails", 2), ("works", 1)]


def test_a_long_wait_that_was_asked_for_does_not_hold_the_partition(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    seen: list[tuple[bytes, int, float]] = []
    patient = RetryPolicy(max_retries=3, initial_delay_ms=5, max_delay_ms=500)

    @app.consumer(name, dead_letter="{topic}.dlq", retry=patient, retry_topics=WAY)
    def work(value: bytes, ctx: Context) -> None:
        seen.append((value, ctx.attempt, time.monotonic()))
        if (value, ctx.attempt) == (b"a", 1):
            raise RetryLater(after_s=1.5)

    client.produce(name, [b"a", b"b"])
    with RunningApp(app):
        wait_until(lambda: len(seen) == 3, "both are done")
        wait_until(lambda: client.committed(GROUP, f"{name}.{GROUP}.retry.2s")[0] == 1, "in the topic long enough")
    assert [(value, attempt) for value, attempt, _ in seen] == [(b"a", 1), (b"b", 1), (b"a", 2)]
    assert seen[2][2] - seen[0][2] >= 2.0


def test_a_record_too_large_for_its_retry_topic_stays_and_is_dead_lettered(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    seen: list[tuple[bytes, int]] = []
    retry = RetryPolicy(max_retries=0, initial_delay_ms=5, max_delay_ms=50)

    @app.consumer(name, dead_letter="{topic}.dlq", retry=retry, retry_topics=WAY)
    def work(value: bytes, ctx: Context) -> None:
        seen.append((value[:1], ctx.attempt))
        if value[:1] == b"a":
            raise RuntimeError("never")

    with RunningApp(app) as running:
        running.wait_assigned(3)
        limit(kafka, f"{name}.{GROUP}.retry.1s", 1_000)
        client.produce(name, [b"a" * 2_000, b"b"])
        wait_until(lambda: client.committed(GROUP, name)[0] == 2, "the partition continues")
        assert len(running.log.of("retry_topic_publish_failed")) == 1
    assert seen == [(b"a", 1), (b"a", 2), (b"b", 1)]
    (letter,) = client.read(f"{name}.dlq", 1)
    assert json.loads(letter.value())["retry_count"] == 1


def test_while_the_retry_topic_is_gone_nothing_is_committed_and_nothing_lost(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client = topic(), Client(kafka)
    app, seen = app_for(kafka, librdkafka={"topic.metadata.propagation.max.ms": 200}), list[tuple[int, int]]()
    retry_topic = f"{name}.{GROUP}.retry.1s"

    @app.consumer(name, dead_letter="{topic}.dlq", retry=RetryPolicy(max_retries=0), retry_topics=WAY)
    def work(value: bytes, ctx: Context) -> None:
        seen.append((ctx.offset, ctx.attempt))
        if (ctx.offset, ctx.attempt) == (1, 1):
            raise RuntimeError("not yet")

    with RunningApp(app) as running:
        running.wait_assigned(3)
        kafka.delete_topic(retry_topic)
        client.produce(name, [b"v"] * 3)
        wait_until(lambda: len(running.log.of("retry_topic_publish_failed")) >= 2, "it is refused again and again")
        assert (client.committed(GROUP, name)[0], seen) == (1, [(0, 1), (1, 1)])
        kafka.create_topic(retry_topic)
        wait_until(lambda: client.committed(GROUP, name)[0] == 3, "the partition continues")
        wait_until(lambda: (1, 2) in seen, "and the record comes back")
    assert sorted(seen) == [(0, 1), (1, 1), (1, 2), (2, 1)]
