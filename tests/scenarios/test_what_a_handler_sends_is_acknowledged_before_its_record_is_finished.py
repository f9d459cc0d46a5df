"""P1: `ctx.send` is part of handling a record: the record counts as finished only when all in-sync replicas have what
was sent. If they do not take it, the attempt has failed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Context, Discard, Reject, RetryPolicy
from holdfast.testing.broker import KafkaBroker
from holdfast.testing.pytest_plugin import TopicFactory
from holdfast.testing.topics import TopicAdmin
from tests.scenarios.conftest import MakeScene
from tests.scenarios.inside import Client, Inside, Sent, app_for, until
from tests.scenarios.member import wait_until
from tests.scenarios.scene import Scene, Work

GROUP = "scenario.work"
PATIENT = {"topic.metadata.propagation.max.ms": 60_000}
"""The client waits so long for a topic to appear before it gives a record up."""


def finishing(app: App, kind: str, name: str, output: str, seen: list[int]) -> None:
    """A handler that sends, for records of partition 0, and then returns, or drops the record by its own word."""

    def send(ctx: Context) -> None:
        if ctx.partition == 0:
            ctx.send(output, b"%d" % ctx.offset, key="k", headers={"from": "work"})

    def end(ctx: Context) -> None:
        seen.append(ctx.partition)
        if ctx.partition == 0 and kind == "discard":
            raise Discard("done with it")
        if ctx.partition == 0 and kind == "reject":
            raise Reject("not for us")

    def work(value: bytes, ctx: Context) -> None:
        send(ctx)
        end(ctx)

    async def work_async(value: bytes, ctx: Context) -> None:
        send(ctx)
        end(ctx)

    app.consumer(name, name="work", dead_letter="{topic}.dlq")(work_async if kind == "async def" else work)


@pytest.mark.parametrize("kind", ["def", "async def", "discard", "reject"])
def test_nothing_is_committed_before_the_acknowledgement(kafka: TopicAdmin, topic: TopicFactory, kind: str) -> None:
    name, client = topic(partitions=2), Client(kafka)
    output = f"{name}.out"  # is not there yet, so nobody can acknowledge anything
    app, seen = app_for(kafka, librdkafka=PATIENT), list[int]()
    finishing(app, kind, name, output, seen)
    client.produce(name, [Sent(b"v", partition=0)])
    with Inside(app) as running:
        until(lambda: seen == [0], 20, "the handler has sent and returned")
        client.produce(name, [Sent(b"v", partition=1) for _ in range(20)])
        until(lambda: client.committed(GROUP, name, 1)[0] == 20, 20, "other lanes work and commit meanwhile")
        assert client.committed(GROUP, name, 0)[0] in (None, 0)
        assert seen.count(0) == 1
        kafka.create_topic(output)
        until(lambda: client.committed(GROUP, name, 0)[0] == 1, 20, "the record is committed")
        assert seen.count(0) == 1, "the handler was called once"
        assert running.loop.cases.counts.retries == 0
    (copy,) = client.read(output, 1)
    assert (copy.value(), copy.key(), copy.headers()) == (b"0", b"k", [("from", b"work")])


def test_sending_to_a_missing_topic_is_retried_and_then_buried(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(), Client(kafka)
    app, attempts = app_for(kafka, librdkafka={"topic.metadata.propagation.max.ms": 200}), list[int]()

    @app.consumer(name, dead_letter="{topic}.dlq", retry=RetryPolicy(max_retries=2, initial_delay_ms=10))
    def work(value: bytes, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        ctx.send("there-is-no-such-topic", value)

    client.produce(name, [b"precious"])
    with Inside(app):
        until(lambda: client.committed(GROUP, name)[0] == 1, 30, "the record is buried and committed")
    assert attempts == [1, 2, 3]
    (letter,) = client.read(f"{name}.dlq", 1)
    fields = json.loads(letter.value())
    assert (fields["error_type"], fields["error_code"]) == ("SinkError", "KAFKA_UNKNOWN_TOPIC")
    assert "there-is-no-such-topic" in fields["error_message"]


def copies(kafka: KafkaBroker, output: str) -> set[tuple[int, int]]:
    client = Client(kafka)
    _, high = client.edges(output)
    found: list[dict[str, Any]] = [json.loads(copy.value()) for copy in client.read(output, high)]
    return {(one["partition"], one["offset"]) for one in found}


def test_after_kill_9_every_committed_record_has_its_copy(
    make_scene: MakeScene, kafka: KafkaBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    scene: Scene = make_scene(partitions=2)
    output = topic(suffix=".out")
    sent = scene.send(Work(key=b"%d" % number) for number in range(1_000))
    member = scene.member(app="sending.py", variables={"SCENARIO_OUTPUT": output})
    wait_until(lambda: sum(scene.committed().values()) >= 200, what="the member is at work")
    member.kill()
    committed = scene.committed()
    assert sum(committed.values()) < len(sent)
    there = copies(kafka, output)
    assert {(p, offset) for p, end in committed.items() for offset in range(end)} <= there
    assert len(there) <= sum(committed.values()) + 2, "at most one record per lane was sent and not committed"
    scene.member(app="sending.py", variables={"SCENARIO_OUTPUT": output})
    scene.wait_committed()
    assert copies(kafka, output) == {(one.id.partition, one.id.offset) for one in sent}
