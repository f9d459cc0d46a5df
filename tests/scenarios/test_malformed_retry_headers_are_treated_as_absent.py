"""Whoever writes what into a retry topic: no record waits longer than the topic's delay, none is retried forever, none
wedges the consumer, and every one of them is finished.
"""

from __future__ import annotations

import json
import random

from keepfast import Context, RetryPolicy, RetryTopics
from keepfast.core import retry_topics as codec
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

GROUP = "scenario.work"
NAMES = [
    codec.STEP, codec.FAILURES, codec.DUE, codec.TOPIC, codec.PARTITION, codec.OFFSET, codec.TIMESTAMP,
    codec.TIMESTAMP_KIND, codec.ATTEMPTS, codec.OWN_HEADERS,
]  # fmt: skip
BAD: list[bytes | None] = [
    None, b"", b"0", b"2", b"-1", b"1e9", b"253402300799999", b"99999999999999999999", b"\xff\xfe", b"x" * 3000, b"[[",
]  # fmt: skip


def nonsense(count: int) -> list[NewRecord]:
    rng = random.Random(7)
    records = []
    for number in range(count):
        printed = [(rng.choice(NAMES), rng.choice(BAD)) for _ in range(rng.randrange(12))]
        if number % 2:
            printed.append((codec.OWN_HEADERS, rng.choice([b"0", b"1", b"5", *filter(None, BAD)])))
        records.append(NewRecord(b"%d" % number, b"k", printed))
    return records


def test_every_record_is_done_or_dead_lettered_within_the_delays(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    attempts: dict[bytes, int] = {}

    @app.consumer(
        name,
        dead_letter="{topic}.dlq",
        retry=RetryPolicy(max_retries=0),
        retry_topics=RetryTopics(delays=("1s", "2s"), allow_reorder=True),
    )
    def work(value: bytes, ctx: Context) -> None:
        attempts[value] = attempts.get(value, 0) + 1
        assert 1 <= ctx.attempt <= codec.MAX_FAILURES + 2
        if int(value) % 3 == 0:
            raise RuntimeError("never")

    retry_topics = [f"{name}.{GROUP}.retry.{delay}" for delay in ("1s", "2s")]
    records = nonsense(300)
    with RunningApp(app) as running:
        running.wait_assigned(3)
        client.produce(retry_topics[0], records)
        wait_until(lambda: client.committed(GROUP, retry_topics[0])[0] == 300, "the first topic is through")
        wait_until(lambda: client.edges(f"{name}.dlq") == (0, 100), "those that never succeed are dead-lettered")
        wait_until(lambda: client.committed(GROUP, retry_topics[1])[0] == 100, "the second topic is through")
    assert len(attempts) == 300
    assert max(attempts.values()) == 2, "one attempt after each delay, whatever was told"
    for letter in client.read(f"{name}.dlq", 100):
        fields = json.loads(letter.value())
        assert fields["original_topic"] in (name, *retry_topics)
        assert letter.key() == b"k"


def test_a_record_of_another_group_is_let_pass_loudly(kafka: TopicAdmin, topic: TopicFactory) -> None:
    """Topic `a` with group `b.c` and topic `a.b` with group `c` have retry topics of the same name."""
    name, client, app = topic(), Client(kafka), app_for(kafka)
    seen: list[bytes] = []

    @app.consumer(name, dead_letter="{topic}.dlq", retry_topics=RetryTopics(delays=("1s",), allow_reorder=True))
    def work(value: bytes) -> None:
        seen.append(value)

    retry_topic = f"{name}.{GROUP}.retry.1s"
    groups = [b"work", GROUP.encode(), b"not a group's name"]
    records = [NewRecord(group, headers=[(codec.GROUP, group), (codec.OWN_HEADERS, b"0")]) for group in groups]
    with RunningApp(app) as running:
        running.wait_assigned(2)
        client.produce(retry_topic, records)
        wait_until(lambda: client.committed(GROUP, retry_topic)[0] == len(records), "all are finished")
        (printed,) = running.log.of("record_discarded")
    assert "another group" in printed.fields["reason"]
    assert seen == groups[1:]
