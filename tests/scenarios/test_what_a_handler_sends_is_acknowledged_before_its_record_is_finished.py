"""P1: `ctx.send` is part of handling a record: the record counts as finished only when all in-sync replicas have what
was sent. If they do not take it, the attempt has failed.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keepfast import (
    App,
    BatchContext,
    BatchPolicy,
    Context,
    Discard,
    Reject,
    RetryLater,
    RetryPolicy,
    RetryTopics,
    Rule,
)
from keepfast.testing.broker import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.conftest import MakeScene
from tests.scenarios.scene import Scene, Work
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

GROUP = "scenario.work"
PATIENT = {"topic.metadata.propagation.max.ms": 60_000}
"""The client waits so long for a topic to appear before it gives a record up."""


class Old(Exception):
    """A rule of the user's discards it."""


ENDS: dict[str, Callable[[], BaseException]] = {
    "discard": lambda: Discard("done with it"),
    "reject": lambda: Reject("not for us"),
    "final": lambda: ValueError("never"),
    "rule": lambda: Old("too old"),
    "move": lambda: OSError("not now"),
    "later": lambda: RetryLater(after_s=90),
}
"""What a handler may raise that finishes its record here: by its own word, by a rule, or by moving it."""

OPTIONS: dict[str, dict[str, Any]] = {
    "rule": {"rules": [Rule(Old, "discard")]},
    "move": {"retry": RetryPolicy(max_retries=0), "retry_topics": RetryTopics(delays=("2m",), allow_reorder=True)},
    "later": {"retry_topics": RetryTopics(delays=("2m",), allow_reorder=True)},
    "timeout": {"timeout_s": 0.5},
}
"""What has to be set for that; a record that times out is given up while its handler hangs."""


def finishing(app: App, kind: str, name: str, output: str, seen: list[int]) -> threading.Event:
    """A handler that sends, for records of partition 0, and then ends as `kind` says. Setting the event ends one that
    hangs.
    """
    shape, _, end = kind.partition(" ")
    go = threading.Event()

    def send(ctx: Context) -> bool:
        concerned = ctx.partition == 0
        if concerned:
            ctx.send(output, b"%d" % ctx.offset, key="k", headers={"from": "work"})
        seen.append(ctx.partition)
        if concerned and end in ENDS:
            error = ENDS[end]()
            raise error
        return concerned and end == "timeout"

    def work(value: bytes, ctx: Context) -> None:
        if send(ctx):
            go.wait(60)

    async def work_async(value: bytes, ctx: Context) -> None:
        if send(ctx):
            await asyncio.sleep(60)

    def work_batch(values: list[bytes], ctx: BatchContext) -> None:
        if send(ctx[0]):
            go.wait(60)

    async def work_batch_async(values: list[bytes], ctx: BatchContext) -> None:
        if send(ctx[0]):
            await asyncio.sleep(60)

    handlers: dict[str, Callable[..., Any]] = {
        "def": work,
        "async": work_async,
        "batch": work_batch,
        "async-batch": work_batch_async,
    }
    options = OPTIONS.get(end, {})
    if "batch" in shape:
        options = {"idempotent": True, "batch": BatchPolicy(size=1), **options}
    app.consumer(name, name="work", dead_letter="{topic}.dlq", **options)(handlers[shape])
    return go


KINDS = [
    "def", "def discard", "def reject", "def final", "def rule", "def move", "def timeout",
    "async", "async final", "async rule", "async timeout",
    "batch final", "batch rule", "batch later", "batch timeout", "async-batch rule", "async-batch timeout",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_committed_before_the_acknowledgement(kafka: TopicAdmin, topic: TopicFactory, kind: str) -> None:
    name, client = topic(partitions=2), Client(kafka)
    output = f"{name}.out"  # is not there yet, so nobody can acknowledge anything
    app, seen = app_for(kafka, librdkafka=PATIENT), list[int]()
    go = finishing(app, kind, name, output, seen)
    client.produce(name, [NewRecord(b"v", partition=0)])
    with RunningApp(app) as running:
        wait_until(lambda: seen == [0], "the handler has sent")
        if kind.endswith("timeout"):
            wait_until(lambda: running.log.of("handler_timed_out"), "it is given up")
        client.produce(name, [NewRecord(b"v", partition=1) for _ in range(20)])
        wait_until(lambda: client.committed(GROUP, name, 1)[0] == 20, "other lanes work and commit meanwhile")
        assert client.committed(GROUP, name, 0)[0] in (None, 0)
        assert seen.count(0) == 1
        kafka.create_topic(output)
        wait_until(lambda: client.committed(GROUP, name, 0)[0] == 1, "the record is committed")
        assert seen.count(0) == 1, "the handler was called once"
        go.set()
        moves = kind.endswith(("move", "later"))
        assert running.loop.counts.total().retries == moves, "a move counts as a retry"
    (copy,) = client.read(output, 1)
    assert (copy.value(), copy.key(), copy.headers()) == (b"0", b"k", [("from", b"work")])


@pytest.mark.parametrize("end", ["", "reject", "discard", "final", "rule"])
def test_sending_to_a_missing_topic_is_retried_and_then_dead_lettered(
    kafka: TopicAdmin, topic: TopicFactory, end: str
) -> None:
    """Whatever the handler raises: the failed send replaces it."""
    name, client = topic(), Client(kafka)
    app, attempts = app_for(kafka, librdkafka={"topic.metadata.propagation.max.ms": 200}), list[int]()

    retry, rules = RetryPolicy(max_retries=2, initial_delay_ms=10), [Rule(Old, "discard")]

    @app.consumer(name, dead_letter="{topic}.dlq", retry=retry, rules=rules)
    def work(value: bytes, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        ctx.send("there-is-no-such-topic", value)
        if end:
            error = ENDS[end]()
            raise error

    client.produce(name, [b"precious"])
    with RunningApp(app):
        wait_until(lambda: client.committed(GROUP, name)[0] == 1, "the record is dead-lettered and committed")
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
    wait_until(lambda: sum(scene.committed().values()) >= 200, "the member is at work")
    member.kill()
    committed = scene.committed()
    assert sum(committed.values()) < len(sent)
    there = copies(kafka, output)
    assert {(p, offset) for p, end in committed.items() for offset in range(end)} <= there
    assert len(there) <= sum(committed.values()) + 2, "at most one record per lane was sent and not committed"
    scene.member(app="sending.py", variables={"SCENARIO_OUTPUT": output})
    scene.wait_committed()
    assert copies(kafka, output) == {(one.id.partition, one.id.offset) for one in sent}
